#include "engine/checkpoint/reordered.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "engine/checkpoint/slice_order.h"
#include "engine/kernels/fingerprint.h"

namespace msprobe::checkpoint {
namespace {

using PrintList = std::vector<uint64_t>;
constexpr int kMostDimensions = 8;
constexpr int64_t kMostSlices = 1 << 22;  // of a dimension; bounds the memory

std::vector<int64_t> StridesOf(const TensorView& view) {
  if (view.strides != nullptr) return {view.strides, view.strides + view.ndim};
  return ContiguousStrides(view.dims());
}

uint64_t Load(const char* at, size_t size) {
  uint64_t word = 0;
  std::memcpy(&word, at, std::min(size, sizeof(word)));
  if (size <= sizeof(word)) return word;
  uint64_t second = 0;
  std::memcpy(&second, at + sizeof(word), sizeof(second));
  return kernels::Mix64(word) ^ second;
}

// Calls use(index, offset) for each element in logical order; `offsets[d][i]` is what index i of
// dimension d adds to the offset. Stops when use returns false.
template <typename Use>
bool EachElement(std::span<const int64_t> shape, const std::vector<std::vector<int64_t>>& offsets,
                 Use use) {
  const size_t n = shape.size();
  std::vector<int64_t> index(n, 0);
  for (const int64_t extent : shape) {
    if (extent == 0) return true;
  }
  while (true) {
    int64_t offset = 0;
    for (size_t d = 0; d + 1 < n; ++d) offset += offsets[d][index[d]];
    const int64_t last = n == 0 ? 1 : shape[n - 1];
    for (int64_t i = 0; i < last; ++i) {
      if (n > 0) index[n - 1] = i;
      if (!use(index, offset + (n > 0 ? offsets[n - 1][i] : 0))) return false;
    }
    size_t d = n > 0 ? n - 1 : 0;
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return true;
  }
}

std::vector<std::vector<int64_t>> OffsetsOf(const TensorView& view) {
  const std::vector<int64_t> strides = StridesOf(view);
  std::vector<std::vector<int64_t>> offsets(view.ndim);
  for (int d = 0; d < view.ndim; ++d) {
    for (int64_t i = 0; i < view.shape[d]; ++i) offsets[d].push_back(i * strides[d]);
  }
  return offsets;
}

// For each dimension the fingerprints of its slices. With `any_order` a fingerprint does not depend
// on where in the slice an element stands.
std::vector<PrintList> PrintsOf(const TensorView& view, bool any_order) {
  std::vector<PrintList> prints(view.ndim);
  for (int d = 0; d < view.ndim; ++d) prints[d].assign(view.shape[d], 0);
  const auto* data = static_cast<const char*>(view.data);
  const size_t size = DTypeSize(view.dtype);
  const size_t n = prints.size();
  EachElement(view.dims(), OffsetsOf(view), [&](const std::vector<int64_t>& index, int64_t offset) {
    const uint64_t word = Load(data + offset * static_cast<int64_t>(size), size);
    if (any_order) {
      const uint64_t mixed = kernels::Mix64(word + 0x9e3779b97f4a7c15);
      for (size_t d = 0; d < n; ++d) prints[d][index[d]] += mixed;
    } else {
      for (size_t d = 0; d < n; ++d) {
        uint64_t& print = prints[d][index[d]];
        print = (print ^ word) * 0x9fb21c651e98df25;
        print ^= print >> 29;
      }
    }
    return true;
  });
  return prints;
}

// How the golden's elements stand in the target: dimension d of the target is dimension axis[d] of
// the golden, and its slice i is slice from[d][i] there (empty: slice i).
struct Arrangement {
  std::vector<int> axis;
  std::vector<std::vector<int64_t>> from;
};

bool IsArranged(const TensorView& target, const TensorView& golden, const Arrangement& a) {
  const std::vector<int64_t> strides = StridesOf(golden);
  std::vector<std::vector<int64_t>> theirs(target.ndim);
  for (int d = 0; d < target.ndim; ++d) {
    for (int64_t i = 0; i < target.shape[d]; ++i)
      theirs[d].push_back((a.from[d].empty() ? i : a.from[d][i]) * strides[a.axis[d]]);
  }
  const std::vector<std::vector<int64_t>> ours = OffsetsOf(target);
  const auto *t = static_cast<const char*>(target.data), *g = static_cast<const char*>(golden.data);
  const size_t size = DTypeSize(target.dtype);
  return EachElement(target.dims(), ours, [&](const std::vector<int64_t>& index, int64_t at) {
    int64_t there = 0;
    for (size_t d = 0; d < index.size(); ++d) there += theirs[d][index[d]];
    const auto bytes = static_cast<int64_t>(size);
    return std::memcmp(t + at * bytes, g + there * bytes, size) == 0;
  });
}

SliceUnit UnitOf(const TensorView& view, int d) {
  if (view.ndim == 1) return {"element"_t, "elements"_t};
  if (view.ndim == 2 && d == 0) return {"row"_t, "rows"_t};
  if (view.ndim == 2) return {"column"_t, "columns"_t};
  return {"slice along dimension {}"_t(d), "slices along dimension {}"_t(d)};
}

bool IsAttention(std::string_view name) {
  for (const std::string_view mark :
       {"qkv", "QKV", "attn", "attention", "query_key_value", "in_proj"}) {
    if (name.find(mark) != name.npos) return true;
  }
  return false;
}

bool IsTooLarge(const TensorView& view) {
  return view.ndim > kMostDimensions ||
         std::any_of(view.shape, view.shape + view.ndim, [](int64_t n) { return n > kMostSlices; });
}

class Finder {
 public:
  Finder(const TensorView& target, const TensorView& golden, std::string_view name)
      : t_(target), g_(golden), attention_(IsAttention(name)) {}

  Message Run() {
    if (t_.dtype != g_.dtype || t_.numel() != g_.numel() || t_.numel() < 2 || IsTooLarge(t_) ||
        IsTooLarge(g_))
      return {};
    if (Message text = OtherShape(); !text.empty()) return text;
    if (t_.ndim != g_.ndim) return {};
    std::vector<int> same(t_.ndim);
    std::iota(same.begin(), same.end(), 0);
    if (HasAxes(same)) {
      if (Message text = OtherSlices(same); !text.empty()) return text;
    }
    if (t_.ndim != 2 || !HasAxes({1, 0})) return {};
    Message text = OtherSlices({1, 0});
    return text.empty() ? text : "transposed, and {}"_t(std::move(text));
  }

 private:
  bool HasAxes(const std::vector<int>& axis) const {
    for (int d = 0; d < t_.ndim; ++d) {
      if (t_.shape[d] != g_.shape[axis[d]]) return false;
    }
    return true;
  }

  // The dimensions are exchanged, or the elements stand in the same order under another shape.
  Message OtherShape() const {
    if (t_.ndim == g_.ndim && t_.ndim > 1 && t_.ndim <= 4) {
      std::vector<int> axis(t_.ndim);
      std::iota(axis.begin(), axis.end(), 0);
      while (std::next_permutation(axis.begin(), axis.end())) {
        if (!HasAxes(axis) ||
            !IsArranged(t_, g_, {axis, std::vector<std::vector<int64_t>>(axis.size())}))
          continue;
        if (t_.ndim == 2) return "the same elements, transposed"_t;
        std::string order;
        for (const int a : axis) order += fmt::format("{}{}", order.empty() ? "" : ", ", a);
        return "the same elements, with the golden's dimensions in the order {}"_t(order);
      }
    }
    if (std::equal(t_.shape, t_.shape + t_.ndim, g_.shape, g_.shape + g_.ndim)) return {};
    const size_t bytes = static_cast<size_t>(t_.numel()) * DTypeSize(t_.dtype);
    std::vector<char> rooms[2];
    const auto in_order = [&](const TensorView& view, std::vector<char>* room) -> const void* {
      if (view.IsContiguous()) return view.data;
      room->resize(bytes);
      CopyContiguous(view, room->data());
      return room->data();
    };
    const bool same = std::memcmp(in_order(t_, &rooms[0]), in_order(g_, &rooms[1]), bytes) == 0;
    return same ? "the same elements under another shape"_t : Message();
  }

  Message OtherSlices(const std::vector<int>& axis) {
    if (ours_.empty()) ours_ = PrintsOf(t_, false), theirs_ = PrintsOf(g_, false);
    Arrangement a{axis, std::vector<std::vector<int64_t>>(axis.size())};
    for (int d = 0; d < t_.ndim; ++d) {
      const std::optional<SliceOrder> order = OrderOf(ours_[d], theirs_[axis[d]]);
      if (!order) continue;
      a.from[d] = order->from;
      if (IsArranged(t_, g_, a)) return Describe(d, *order);
      a.from[d].clear();
    }
    return t_.ndim == 2 ? RowsAndColumns(std::move(a)) : Message();
  }

  // Both at once: what is in a row is known by its elements in any order; then the columns follow.
  Message RowsAndColumns(Arrangement a) {
    if (sums_.empty()) sums_ = PrintsOf(t_, true), their_sums_ = PrintsOf(g_, true);
    std::vector<Message> texts;
    for (int d = 0; d < 2; ++d) {
      const std::optional<SliceOrder> order = OrderOf(sums_[d], their_sums_[a.axis[d]]);
      if (!order) return {};
      a.from[d] = order->from;
      texts.push_back(Describe(d, *order));
    }
    return IsArranged(t_, g_, a) ? Message::Joined(std::move(texts), "; ") : Message();
  }

  Message Describe(int d, const SliceOrder& order) const {
    Message text = DescribeOrder(order.pattern, UnitOf(t_, d), attention_);
    const size_t all = order.from.size();
    if (t_.ndim > 2) {
      return "the slices along dimension {} are in another order: {} ({} of {} moved)"_t(
          d, std::move(text), order.moved, all);
    }
    return (t_.ndim == 1 ? "the elements are in another order: {} ({} of {} moved)"_t
            : d == 0     ? "the rows are in another order: {} ({} of {} moved)"_t
                     : "the columns are in another order: {} ({} of {} moved)"_t)(std::move(text),
                                                                                  order.moved, all);
  }

  const TensorView &t_, &g_;
  const bool attention_;
  std::vector<PrintList> ours_, theirs_, sums_, their_sums_;
};

}  // namespace

Message DescribeReordering(const TensorView& target, const TensorView& golden,
                           std::string_view name) {
  return Finder(target, golden, name).Run();
}

bool MayBeReordered(const kernels::Diff& d) {
  if (d.unequal == 0) return false;
  const double golden = d.euclidean / d.relative_l2;
  if (!std::isfinite(golden) || !std::isfinite(d.cosine)) return true;
  // |T - G|^2 = |T|^2 + |G|^2 - 2 |T| |G| cos: with |T| = |G| it is 2 |G|^2 (1 - cos).
  const double expected = 2 * golden * golden * (1 - d.cosine), found = d.euclidean * d.euclidean;
  constexpr double kApart = 1e-6, kRounding = 1e-12;
  return std::abs(expected - found) <= kApart * found + kRounding * golden * golden;
}

}  // namespace msprobe::checkpoint
