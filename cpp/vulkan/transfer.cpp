#include "vulkan/transfer.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "core/checked.h"
#include "cpu/memory.h"
#include "cpu/thread_pool.h"
#include "vulkan/logical_device.h"

namespace vkconv::vulkan {
namespace {

constexpr std::int64_t kTaskBytes = 256 << 10;  // of one packing task
constexpr std::int64_t kSliceBytes = 8 << 20;   // of one staging copy
constexpr std::size_t kSlicesInFlight = 4;
// Smaller arrays go where the host writes and kernels read without a copy, as parameters do.
constexpr std::size_t kSmallBytes = 16 << 10;

// The array with axes of extent 1 dropped and contiguous neighbours merged; the last axis is the run copied at once.
struct Rows {
  std::array<std::int64_t, 6> extent{}, stride{};
  int axes = 0;  // before the run
  std::int64_t run = 1, run_stride = 1;

  explicit Rows(const HostArray& array) {
    for (int a = 0; a < 6; ++a) {
      const std::int64_t n = array.extent[a], s = array.stride[a];
      if (n == 1) continue;
      if (axes > 0 && stride[axes - 1] == n * s) {
        extent[axes - 1] *= n;
        stride[axes - 1] = s;
      } else {
        extent[axes] = n;
        stride[axes++] = s;
      }
    }
    if (axes == 0) return;
    --axes;
    run = extent[axes];
    run_stride = stride[axes];
  }

  std::int64_t offset(std::int64_t row) const {
    std::int64_t at = 0;
    for (int a = axes - 1; a >= 0; --a) {
      at += row % extent[a] * stride[a];
      row /= extent[a];
    }
    return at;
  }
};

template <class T, bool to_array>
void copy_strided(std::byte* array, std::int64_t stride, std::byte* packed, std::int64_t count) {
  T* a = reinterpret_cast<T*>(array);
  T* p = reinterpret_cast<T*>(packed);
  for (std::int64_t i = 0; i < count; ++i)
    if constexpr (to_array)
      std::memcpy(a + i * stride, p + i, sizeof(T));
    else
      std::memcpy(p + i, a + i * stride, sizeof(T));
}

template <bool to_array>
void copy_run(std::byte* array, std::int64_t stride, std::byte* packed, std::int64_t count, std::size_t element) {
  if (stride == 1) {
    std::memcpy(to_array ? array : packed, to_array ? packed : array, static_cast<std::size_t>(count) * element);
    return;
  }
  switch (element) {
    case 2:
      return copy_strided<std::uint16_t, to_array>(array, stride, packed, count);
    case 4:
      return copy_strided<std::uint32_t, to_array>(array, stride, packed, count);
    default:
      return copy_strided<std::uint64_t, to_array>(array, stride, packed, count);
  }
}

template <bool to_array>
void copy_range(const HostArray& array, std::int64_t begin, std::int64_t end, std::byte* packed) {
  const Rows rows(array);
  const auto element = static_cast<std::int64_t>(array.element_bytes);
  const std::int64_t per_task = kTaskBytes / element;
  cpu::thread_pool().run(ceil_div(end - begin, per_task), [&](std::int64_t task) {
    const std::int64_t last = std::min(end, begin + (task + 1) * per_task);
    for (std::int64_t i = begin + task * per_task; i < last;) {
      const std::int64_t row = i / rows.run, within = i % rows.run, count = std::min(rows.run - within, last - i);
      copy_run<to_array>(array.data + (rows.offset(row) + within * rows.run_stride) * element, rows.run_stride,
                         packed + (i - begin) * element, count, array.element_bytes);
      i += count;
    }
  });
}

// Calls f(begin, end) for each slice of the array; the copies of different slices need no order.
template <class F>
void for_slices(Stream& stream, const HostArray& array, F&& f) {
  const std::int64_t elements = array.elements(), step = kSliceBytes / static_cast<std::int64_t>(array.element_bytes);
  stream.for_each_independent(ceil_div(elements, step), false,
                              [&](std::int64_t i) { f(i * step, std::min(elements, (i + 1) * step)); });
}

std::size_t copied_bytes(std::int64_t elements, std::size_t element_bytes) {
  return static_cast<std::size_t>(round_up(elements * static_cast<std::int64_t>(element_bytes), 4));
}

// A slice whose copy the device may be at. The stream keeps the buffer, as an interruption may end the transfer first.
struct StagedSlice {
  const Buffer* staging;
  std::uint64_t submitted;
  std::int64_t begin, end;
};

const Buffer& make_staging(Stream& stream, const HostArray& array) {
  return stream.keep(stream.allocate(std::min<std::size_t>(kSliceBytes, array.bytes() + 4), MemoryKind::staging));
}

}  // namespace

void pack(const HostArray& array, std::int64_t begin, std::int64_t end, std::byte* to) {
  copy_range<false>(array, begin, end, to);
}

void unpack(const HostArray& array, std::int64_t begin, std::int64_t end, const std::byte* from) {
  copy_range<true>(array, begin, end, const_cast<std::byte*>(from));
}

void upload(Stream& stream, const HostArray& array, const Buffer& to) {
  if (to.mapped()) return pack(array, 0, array.elements(), to.mapped());
  upload_staged(stream, array, to.pointer());
}

Pointer upload_new(Stream& stream, const HostArray& array) {
  const bool small = array.bytes() <= kSmallBytes;
  const Buffer& made = stream.keep(stream.allocate(array.bytes(), small ? MemoryKind::params : MemoryKind::device));
  upload(stream, array, made);
  return made.pointer();
}

void upload_staged(Stream& stream, const HostArray& array, Pointer to) {
  std::deque<StagedSlice> in_flight;
  for_slices(stream, array, [&](std::int64_t begin, std::int64_t end) {
    const Buffer* staging = nullptr;
    if (in_flight.size() == kSlicesInFlight) {
      stream.wait_for(in_flight.front().submitted);
      staging = in_flight.front().staging;
      in_flight.pop_front();
    } else {
      staging = &make_staging(stream, array);
    }
    pack(array, begin, end, staging->mapped());
    stream.copy(to + static_cast<std::uint64_t>(begin) * array.element_bytes, staging->pointer(),
                copied_bytes(end - begin, array.element_bytes));
    const bool more = end < array.elements();
    in_flight.push_back({staging, more ? stream.submit() : 0, begin, end});  // the last goes with what follows
  });
}

void download(Stream& stream, const Buffer& from, const HostArray& array) {
  if (from.mapped() && stream.device().memory().host_cached(MemoryKind::device)) {
    stream.wait();
    return unpack(array, 0, array.elements(), from.mapped());
  }
  download_staged(stream, from.pointer(), array);
}

void download_view(Stream& stream, const Buffer& from, const HostArray& view, const HostArray& to) {
  const auto offset = reinterpret_cast<std::uintptr_t>(view.data) - from.pointer();
  if (from.mapped() && stream.device().memory().host_cached(MemoryKind::device)) {
    stream.wait();
    HostArray seen = view;
    seen.data = from.mapped() + offset;
    return pack(seen, 0, seen.elements(), to.data);
  }
  if (view.stride == packed(view, nullptr).stride) return download_staged(stream, from.pointer() + offset, to);
  // All that the view spans is copied, and gathered on the host.
  const Span span = span_of(view);
  const auto element = static_cast<std::int64_t>(view.element_bytes);
  const cpu::Buffer all(static_cast<std::size_t>(span.elements() * element));
  const HostArray flat{all.pointer(), {1, 1, 1, 1, 1, span.elements()}, {0, 0, 0, 0, 0, 1}, view.element_bytes};
  download_staged(stream, from.pointer() + offset + static_cast<std::uint64_t>(span.lo * element), flat);
  HostArray seen = view;
  seen.data = all.pointer() - span.lo * element;
  pack(seen, 0, seen.elements(), to.data);
}

void download_staged(Stream& stream, Pointer from, const HostArray& array) {
  std::deque<StagedSlice> in_flight;
  const auto finish_first = [&] {
    const StagedSlice slice = in_flight.front();
    in_flight.pop_front();
    stream.wait_for(slice.submitted);
    unpack(array, slice.begin, slice.end, slice.staging->mapped());
    return slice.staging;
  };
  for_slices(stream, array, [&](std::int64_t begin, std::int64_t end) {
    const Buffer* staging = in_flight.size() == kSlicesInFlight ? finish_first() : &make_staging(stream, array);
    stream.copy(staging->pointer(), from + static_cast<std::uint64_t>(begin) * array.element_bytes,
                copied_bytes(end - begin, array.element_bytes));
    in_flight.push_back({staging, stream.submit(), begin, end});
  });
  while (!in_flight.empty()) finish_first();
  stream.wait();
}

}  // namespace vkconv::vulkan
