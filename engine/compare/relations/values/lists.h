// Lists of numbers, one for each of n things, in one array.
//
//   Lists<int32_t> takers;
//   takers.Build(2, {{0, 7}, {1, 8}, {0, 9}});
//   takers.Of(0);  // 7, 9
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace msprobe::compare::relations {

template <typename Item>
class Lists {
 public:
  void Build(size_t n, const std::vector<std::pair<int32_t, Item>>& items) {
    begin_.assign(n + 1, 0);
    for (const auto& [key, item] : items) ++begin_[key + 1];
    for (size_t i = 0; i < n; ++i) begin_[i + 1] += begin_[i];
    items_.resize(items.size());
    std::vector<uint32_t> next(begin_.begin(), begin_.end() - 1);
    for (const auto& [key, item] : items) items_[next[key]++] = item;
  }
  std::span<const Item> Of(int32_t key) const {
    return {items_.data() + begin_[key], begin_[key + 1] - begin_[key]};
  }

 private:
  std::vector<uint32_t> begin_;
  std::vector<Item> items_;
};

}  // namespace msprobe::compare::relations
