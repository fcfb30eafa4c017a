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

// The keys are divided by their first bits into parts that threads number apart. A part of some
// million tensors fits into the cache of a core.
constexpr int kPartBits = 5;
constexpr size_t kParts = size_t{1} << kPartBits;

constexpr size_t kChunk = 1 << 13;  // leaves

size_t PartOf(uint64_t key) { return key >> (64 - kPartBits); }

// The ContentKey of each leaf; 0 of those that have none.
std::vector<uint64_t> KeysOf(const Dump& dump, ThreadPool& pool) {
  std::vector<uint64_t> keys(dump.leaves.size());
  PageRelease pages(dump);
  pool.ParallelFor((keys.size() + kChunk - 1) / kChunk, [&](size_t chunk) {
    const size_t end = std::min(keys.size(), (chunk + 1) * kChunk);
    for (size_t i = chunk * kChunk; i < end; ++i) {
      const Leaf& leaf = dump.leaves[i];
      keys[i] = leaf.kind == LeafKind::kTensor ? ContentKey(leaf) : 0;
    }
    pages.RowsDone(end - chunk * kChunk);
  });
  return keys;
}

bool IsResult(Slot slot) {
  return slot == Slot::kOutput || slot == Slot::kParameterGrad || slot == Slot::kDebug;
}

}  // namespace

ContentIds::ContentIds(const Dump& target, const Dump& golden, ThreadPool& pool)
    : leaves_{target.leaves.data(), golden.leaves.data()} {
  const std::array<std::vector<uint64_t>, 2> keys = {KeysOf(target, pool), KeysOf(golden, pool)};
  for (const int side : {0, 1}) codes_[side].assign(keys[side].size(), -1);
  std::array<int32_t, kParts> sizes{};
  pool.ParallelFor(kParts, [&](size_t part) {
    ContentMap numbers;  // in this part, from 0
    for (const int side : {0, 1}) {
      for (size_t i = 0; i < keys[side].size(); ++i) {
        const uint64_t key = keys[side][i];
        if (key == 0 || PartOf(key) != part) continue;
        codes_[side][i] = numbers.Insert(key, static_cast<int32_t>(numbers.size()));
      }
    }
    sizes[part] = static_cast<int32_t>(numbers.size());
  });
  std::array<int32_t, kParts> first{};
  std::exclusive_scan(sizes.begin(), sizes.end(), first.begin(), 0);
  size_ = static_cast<size_t>(first.back()) + static_cast<size_t>(sizes.back());
  for (const int side : {0, 1}) {
    pool.ParallelFor((keys[side].size() + kChunk - 1) / kChunk, [&](size_t chunk) {
      for (size_t i = chunk * kChunk; i < std::min(keys[side].size(), (chunk + 1) * kChunk); ++i) {
        int32_t& code = codes_[side][i];
        if (code < 0) continue;
        code = 2 * (first[PartOf(keys[side][i])] + code);
        code += IsResult(leaves_[side][i].slot) ? kResult : 0;
      }
    });
  }
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
