#include "engine/compare/model/content_ids.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "engine/compare/model/comparison.h"
#include "engine/compare/model/content_map.h"
#include "engine/compare/model/page_release.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

// The keys are divided by their first bits into parts that threads number apart. The numbers of a
// part of some million tensors fit into the cache of a core.
constexpr int kPartBits = 8;
constexpr size_t kParts = size_t{1} << kPartBits;

constexpr size_t kChunk = 1 << 15;  // leaves

size_t PartOf(uint64_t key) { return key >> (64 - kPartBits); }

bool IsResult(Slot slot) {
  return slot == Slot::kOutput || slot == Slot::kParameterGrad || slot == Slot::kDebug;
}

// The leaves of one dump that have a content, grouped by the part of their keys and in the order of
// the dump within one.
class KeysByPart {
 public:
  // Sets the code of a leaf to 0 or `result`, and to -1 where it has no content.
  KeysByPart(const Dump& dump, int32_t result, ThreadPool& pool, std::vector<int32_t>* codes) {
    const size_t leaves = dump.leaves.size(), chunks = (leaves + kChunk - 1) / kChunk;
    std::vector<uint64_t> keys(leaves);
    // Of each part in each chunk first how many leaves there are, then where the next one is put.
    std::vector<std::array<uint32_t, kParts>> places(chunks);
    codes->assign(leaves, -1);
    PageRelease pages(dump);
    pool.ParallelFor(chunks, [&](size_t chunk) {
      const size_t end = std::min(leaves, (chunk + 1) * kChunk);
      for (size_t i = chunk * kChunk; i < end; ++i) {
        const Leaf& leaf = dump.leaves[i];
        keys[i] = leaf.kind == LeafKind::kTensor ? ContentKey(leaf) : 0;
        if (keys[i] == 0) continue;
        ++places[chunk][PartOf(keys[i])];
        (*codes)[i] = IsResult(leaf.slot) ? result : 0;
      }
      pages.RowsDone(end - chunk * kChunk);
    });
    uint32_t all = 0;
    for (size_t part = 0; part < kParts; ++part) {
      begin_[part] = all;
      for (auto& of_chunk : places) of_chunk[part] = std::exchange(all, all + of_chunk[part]);
    }
    begin_[kParts] = all;
    keys_.resize(all);
    leaves_.resize(all);
    pool.ParallelFor(chunks, [&](size_t chunk) {
      for (size_t i = chunk * kChunk; i < std::min(leaves, (chunk + 1) * kChunk); ++i) {
        if (keys[i] == 0) continue;
        const uint32_t at = places[chunk][PartOf(keys[i])]++;
        keys_[at] = keys[i];
        leaves_[at] = static_cast<uint32_t>(i);
      }
    });
  }

  size_t SizeOf(size_t part) const { return begin_[part + 1] - begin_[part]; }
  // Calls use(key, leaf) for the leaves of a part.
  template <typename Use>
  void Each(size_t part, Use use) const {
    for (uint32_t i = begin_[part]; i < begin_[part + 1]; ++i) use(keys_[i], leaves_[i]);
  }

 private:
  std::vector<uint64_t> keys_;
  std::vector<uint32_t> leaves_;
  std::array<uint32_t, kParts + 1> begin_{};
};

}  // namespace

ContentIds::ContentIds(const Dump& target, const Dump& golden, ThreadPool& pool)
    : leaves_{target.leaves.data(), golden.leaves.data()} {
  const std::array<KeysByPart, 2> keys = {KeysByPart(target, kResult, pool, &codes_[0]),
                                          KeysByPart(golden, kResult, pool, &codes_[1])};
  std::array<int32_t, kParts> sizes{};
  pool.ParallelFor(kParts, [&](size_t part) {
    ContentMap numbers;  // in this part, from 0
    numbers.Reserve(std::max(keys[0].SizeOf(part), keys[1].SizeOf(part)) / 2);
    for (const int side : {0, 1}) {
      keys[side].Each(part, [&](uint64_t key, uint32_t leaf) {
        codes_[side][leaf] += 2 * numbers.Insert(key, static_cast<int32_t>(numbers.size()));
      });
    }
    sizes[part] = static_cast<int32_t>(numbers.size());
  });
  std::array<int32_t, kParts> first{};
  std::exclusive_scan(sizes.begin(), sizes.end(), first.begin(), 0);
  size_ = static_cast<size_t>(first.back()) + static_cast<size_t>(sizes.back());
  pool.ParallelFor(kParts, [&](size_t part) {
    for (const int side : {0, 1}) {
      keys[side].Each(part,
                      [&](uint64_t, uint32_t leaf) { codes_[side][leaf] += 2 * first[part]; });
    }
  });
}

const ContentIds& ContentOf(Comparison* c) {
  if (c->content == nullptr) c->content = ContentOf(std::as_const(*c));
  return *c->content;
}

std::shared_ptr<const ContentIds> ContentOf(const Comparison& c) {
  if (c.content != nullptr) return c.content;
  return std::make_shared<const ContentIds>(c.target, c.golden, ThreadPool::Default());
}

}  // namespace msprobe::compare
