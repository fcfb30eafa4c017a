#include "engine/tensor/unwritten_bytes.h"

#include <algorithm>

namespace msprobe {
namespace {

constexpr int64_t kMostRuns = 4096;  // bounds the time of one call

// The addresses of `count` elements `stride` apart, the first one at `first`.
struct Span {
  uintptr_t begin, end;
};
Span SpanOf(uintptr_t first, int64_t count, int64_t stride, uint64_t size) {
  const uintptr_t last = first + static_cast<uintptr_t>((count - 1) * stride) * size;
  return {std::min(first, last), std::max(first, last) + size};
}

// Calls visit(begin, end) for each part of a view that is dense in memory. False: they are too
// many.
template <typename Visit>
bool ForEachDensePart(const TensorView& view, Visit&& visit) {
  const StridedRuns runs = MakeRuns(view);
  if (runs.run == 0) return true;
  const bool dense = runs.run_stride == 1 || runs.run_stride == -1 || runs.run == 1;
  if (runs.count > kMostRuns || (!dense && runs.count * runs.run > kMostRuns)) return false;
  const uint64_t size = DTypeSize(view.dtype);
  const auto data = reinterpret_cast<uintptr_t>(view.data);
  runs.ForEach(0, runs.count, [&](int64_t offset) {
    const uintptr_t first = data + static_cast<uintptr_t>(offset) * size;
    if (dense) {
      const Span span = SpanOf(first, runs.run, runs.run_stride, size);
      visit(span.begin, span.end);
      return;
    }
    for (int64_t i = 0; i < runs.run; ++i) {
      const uintptr_t element = first + static_cast<uintptr_t>(i * runs.run_stride) * size;
      visit(element, element + size);
    }
  });
  return true;
}

// From the first to the last byte of a view that is not empty.
Span Extent(const TensorView& view) {
  const uint64_t size = DTypeSize(view.dtype);
  const auto data = reinterpret_cast<uintptr_t>(view.data);
  Span all{data, data + size};
  for (int d = 0; d < view.ndim && view.strides != nullptr; ++d) {
    const Span one = SpanOf(data, view.shape[d], view.strides[d], size);
    all.begin -= data - one.begin;
    all.end += one.end - (data + size);
  }
  if (view.strides == nullptr) all.end = data + static_cast<uint64_t>(view.numel()) * size;
  return all;
}

}  // namespace

UnwrittenBytes::UnwrittenBytes(const void* data, uint64_t size) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  if (size > 0) ranges_.emplace(begin, begin + size);
}

void UnwrittenBytes::Write(const TensorView& view) {
  if (ranges_.empty()) return;
  (void)ForEachDensePart(view, [&](uintptr_t begin, uintptr_t end) { Remove(begin, end); });
}

bool UnwrittenBytes::Shows(const TensorView& view) const {
  if (ranges_.empty() || view.numel() == 0) return false;
  const Span all = Extent(view);
  if (!Overlaps(all.begin, all.end)) return false;
  bool any = false;
  const bool exact = ForEachDensePart(
      view, [&](uintptr_t begin, uintptr_t end) { any = any || Overlaps(begin, end); });
  return any || !exact;
}

bool UnwrittenBytes::Overlaps(uintptr_t begin, uintptr_t end) const {
  const auto after = ranges_.lower_bound(end);  // begins at the end or after it
  return after != ranges_.begin() && std::prev(after)->second > begin;
}

void UnwrittenBytes::Remove(uintptr_t begin, uintptr_t end) {
  auto range = ranges_.upper_bound(begin);
  if (range != ranges_.begin() && std::prev(range)->second > begin) --range;
  while (range != ranges_.end() && range->first < end) {
    const auto [first, last] = *range;
    range = ranges_.erase(range);
    if (first < begin) ranges_.emplace(first, begin);
    if (last > end) ranges_.emplace(end, last);
  }
}

}  // namespace msprobe
