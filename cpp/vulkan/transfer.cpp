#include "vulkan/transfer.h"

#include <algorithm>
#include <deque>

#include "core/checked.h"
#include "cpu/memory.h"
#include "cpu/strided_copy.h"
#include "vulkan/logical_device.h"

namespace vkconv::vulkan {
namespace {

constexpr std::int64_t kSliceBytes = 8 << 20;  // of one staging copy
constexpr std::size_t kSlicesInFlight = 4;
// Smaller arrays go where the host writes and kernels read without a copy, as parameters do.
constexpr std::size_t kSmallBytes = 16 << 10;

// Calls f(box) for the boxes, in order, that make up elements [begin, end) of the array behind `axis`: whole steps
// along the axis, and before and after them the parts of two, which steps of the last axis have none of.
template <class F>
void for_boxes(const HostArray& array, std::size_t axis, std::int64_t begin, std::int64_t end, const F& f) {
  if (begin == end || axis == array.extent.size()) return;
  std::int64_t step = 1;
  for (std::size_t a = axis + 1; a < array.extent.size(); ++a) step *= array.extent[a];
  const std::int64_t first = ceil_div(begin, step), last = end / step;
  const auto steps = [&](std::int64_t from, std::int64_t count) {
    HostArray box = array;
    box.data += from * box.stride[axis] * static_cast<std::int64_t>(box.element_bytes);
    box.extent[axis] = count;
    return box;
  };
  if (first > last) return for_boxes(steps(last, 1), axis + 1, begin - last * step, end - last * step, f);
  if (begin < first * step) for_boxes(steps(first - 1, 1), axis + 1, begin - (first - 1) * step, step, f);
  if (first < last) f(steps(first, last - first));
  if (last * step < end) for_boxes(steps(last, 1), axis + 1, 0, end - last * step, f);
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
  for_boxes(array, 0, begin, end, [&](const HostArray& box) {
    cpu::copy(box, packed(box, to));
    to += box.bytes();
  });
}

void unpack(const HostArray& array, std::int64_t begin, std::int64_t end, const std::byte* from) {
  for_boxes(array, 0, begin, end, [&](const HostArray& box) {
    cpu::copy(packed(box, const_cast<std::byte*>(from)), box);
    from += box.bytes();
  });
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
