// What XLA hands to a function that it calls, as xla/ffi/api/c_api.h of version 0.1 and later declares it: a stable C
// interface, of which this is the part that a call on host memory reads. So vkconv is built without XLA, and serves
// whichever jaxlib is there.
#pragma once
#include <cstddef>
#include <cstdint>

namespace vkconv::bindings::xla {

struct Extension {
  std::size_t struct_size;
  int type;
  Extension* next;
};
inline constexpr int kMetadata = 1;  // the call asks for the version that the function was written for

struct Version {
  std::size_t struct_size;
  Extension* extensions;
  int major, minor;
};

struct Metadata {
  std::size_t struct_size;
  Version version;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct Error;
struct ErrorArguments {
  std::size_t struct_size;
  Extension* extensions;
  const char* message;
  int code;
};
inline constexpr int kInternal = 13, kResourceExhausted = 8;

struct Api {
  std::size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*make_error)(ErrorArguments*);
};

struct Buffer {
  std::size_t struct_size;
  Extension* extensions;
  int dtype;
  std::byte* data;
  std::int64_t rank;
  std::int64_t* extents;
};

struct Text {
  const char* data;
  std::size_t size;
};

struct Buffers {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t size;
  int* types;
  Buffer** buffers;
};

struct Attributes {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t size;
  int* types;
  Text** names;
  Text** values;
};

inline constexpr int kExecute = 3;

struct Call {
  std::size_t struct_size;
  Extension* extensions;
  const Api* api;
  void* context;
  int stage;
  Buffers arguments, results;
  Attributes attributes;
};

}  // namespace vkconv::bindings::xla
