#include "engine/report_page/data_links.h"

#include <functional>
#include <string_view>
#include <unordered_map>

#include "engine/compare/explain/dataflow.h"
#include "engine/compare/model/page_release.h"

namespace msprobe::report_page {
namespace {

// Equal for leaves of which SameNumbers holds.
uint64_t KeyOf(const Leaf& leaf) {
  const auto hash = [](std::string_view text) {
    return static_cast<uint64_t>(std::hash<std::string_view>()(text));
  };
  if (!leaf.fingerprint.empty()) return hash(leaf.fingerprint);
  if (!leaf.checksum.empty()) return hash(leaf.checksum);
  return hash(leaf.norm) * 31 + hash(leaf.mean) * 37 + leaf.shape.key_without_ones();
}

struct Makers {
  int32_t api = -1, module = -1;  // leaves
};

}  // namespace

std::vector<int32_t> MakersOf(const Dump& dump) {
  std::vector<int32_t> made_by(dump.leaves.size(), -1);
  std::unordered_map<uint64_t, Makers> makers;
  makers.reserve(dump.records.size());
  const auto same = [&](int32_t leaf, const Leaf& other) {
    return leaf >= 0 && compare::SameNumbers(dump.leaves[leaf], other);
  };
  compare::PageRelease pages(dump);
  for (const Record& record : dump.records) {
    pages.RowsDone(record.leaf_count);
    for (const bool output : {false, true}) {
      for (uint32_t i = record.first_leaf; i < record.first_leaf + record.leaf_count; ++i) {
        const Leaf& leaf = dump.leaves[i];
        if ((leaf.slot == Slot::kOutput) != output || !compare::TellsTensorsApart(leaf)) continue;
        const uint64_t key = KeyOf(leaf);
        const auto found = makers.find(key);
        if (found != makers.end() && (!output || record.is_module)) {
          const Makers& m = found->second;
          if (same(m.api, leaf)) {
            made_by[i] = static_cast<int32_t>(dump.leaves[m.api].record);
          } else if (same(m.module, leaf)) {
            made_by[i] = static_cast<int32_t>(dump.leaves[m.module].record);
          }
        }
        if (!output) continue;
        Makers& kept = makers[key];
        (record.is_module ? kept.module : kept.api) = static_cast<int32_t>(i);
      }
    }
  }
  return made_by;
}

Takers::Takers(const Dump& dump, std::span<const int32_t> made_by)
    : begin_(dump.records.size() + 2) {
  // A record that takes the same output twice is listed once.
  const auto each = [&](auto&& use) {
    for (size_t i = 0; i < dump.leaves.size(); ++i) {
      const Leaf& leaf = dump.leaves[i];
      if (made_by[i] < 0 || leaf.slot == Slot::kOutput) continue;
      bool before = false;
      for (size_t j = dump.records[leaf.record].first_leaf; j < i && !before; ++j)
        before = made_by[j] == made_by[i] && dump.leaves[j].slot != Slot::kOutput;
      if (!before) use(made_by[i], static_cast<int32_t>(leaf.record));
    }
  };
  each([&](int32_t maker, int32_t) { ++begin_[maker + 2]; });
  for (size_t i = 2; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
  takers_.resize(begin_.back());
  each([&](int32_t maker, int32_t taker) { takers_[begin_[maker + 1]++] = taker; });
}

}  // namespace msprobe::report_page
