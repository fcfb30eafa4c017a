// Lists of numbers, one for each of n things, in one array.
//
//   Lists<int32_t> takers;
//   takers.Build(2, {{0, 7}, {1, 8}, {0, 9}});
//   takers.Of(0);  // 7, 9
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/compare/model/content_map.h"

namespace msprobe::compare::relations {

template <typename Item>
class Lists {
 public:
  void Build(size_t n, const std::vector<std::pair<int32_t, Item>>& items) {
    BuildOf(n, [&items](const auto& add) {
      for (const auto& [key, item] : items) add(key, item);
    });
  }
  // `each(add)` calls add(key, item) for each item; it is called twice, and must say the same.
  template <typename Each>
  void BuildOf(size_t n, const Each& each) {
    begin_.assign(n + 1, 0);
    each([this](int32_t key, const Item&) { ++begin_[key + 1]; });
    for (size_t i = 0; i < n; ++i) begin_[i + 1] += begin_[i];
    items_.resize(begin_[n]);
    if (items_.empty()) {
      begin_ = {};
      return;
    }
    std::vector<uint32_t> next(begin_.begin(), begin_.end() - 1);
    each([&](int32_t key, const Item& item) { items_[next[key]++] = item; });
  }
  std::span<const Item> Of(int32_t key) const {
    if (items_.empty()) return {};
    return {items_.data() + begin_[key], begin_[key + 1] - begin_[key]};
  }

 private:
  std::vector<uint32_t> begin_;
  std::vector<Item> items_;
};

// Lists by 64-bit hashes, each in the order in which its items were added.
//
//   HashedLists values;
//   values.Add(hash, 7);
//   values.Build();       // once, after the last item
//   values.Of(hash);      // {7}
class HashedLists {
 public:
  void Add(uint64_t hash, int32_t item) { items_.emplace_back(hash, item); }
  void Build() {
    shift_ = 64 - std::bit_width(kBits * items_.size() + 1);
    may_have_.assign(size_t{1} << (64 - shift_), false);
    numbers_.Reserve(items_.size());
    for (auto& [hash, item] : items_) {
      may_have_[hash >> shift_] = true;
      hash = static_cast<uint64_t>(numbers_.Insert(hash, static_cast<int32_t>(numbers_.size())));
    }
    lists_.BuildOf(numbers_.size(), [this](const auto& add) {
      for (const auto& [number, item] : items_) add(static_cast<int32_t>(number), item);
    });
    items_ = {};
  }
  std::span<const int32_t> Of(uint64_t hash) const {
    if (may_have_.empty() || !may_have_[hash >> shift_]) return {};
    const int32_t number = numbers_.Find(hash);
    return number < 0 ? std::span<const int32_t>() : lists_.Of(number);
  }
  bool empty() const { return items_.empty() && numbers_.size() == 0; }

 private:
  static constexpr size_t kBits = 8;

  ContentMap numbers_;
  std::vector<std::pair<uint64_t, int32_t>> items_;  // until they are in lists_
  Lists<int32_t> lists_;
  // By the first bits of a hash. Most hashes that are asked for are not there, and this small table
  // is in the cache of the core.
  std::vector<bool> may_have_;
  int shift_ = 0;
};

}  // namespace msprobe::compare::relations
