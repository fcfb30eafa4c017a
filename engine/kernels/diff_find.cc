#include "engine/kernels/diff_find.h"

#include <algorithm>

#include "engine/kernels/chunks.h"
#include "engine/kernels/diff_pairs.h"
#include "engine/kernels/diff_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/diff_find.cc"
#include <hwy/foreach_target.h>  // compiles this file once for each target
#include <hwy/highway.h>

#include "engine/kernels/decode-inl.h"

#ifndef ENGINE_KERNELS_DIFF_FIND_CC_
#define ENGINE_KERNELS_DIFF_FIND_CC_
namespace msprobe::kernels {
namespace {

// Which pair to find: the first unequal one. With `mismatch`: the first unequal one that is not
// finite. With `distance` > 0: the first finite one whose values are that far apart.
struct Search {
  PairKind kind;
  bool mismatch = false;
  double distance = 0;

  bool Matches(const Pair& p) const {
    if (distance > 0) return p.Finite() && p.Distance(kind) == distance;
    return !p.Same() && (!mismatch || !p.Finite());
  }
};

// Index in the chunk, -1 if none matches.
[[maybe_unused]] int64_t FindPairScalar(const ChunkPair& c, const Search& search) {
  for (int64_t v = 0; v < c.n; ++v) {
    if (search.Matches(PairAt(c.t, c.tp, c.g, c.gp, v))) return v;
  }
  return -1;
}

}  // namespace
}  // namespace msprobe::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

int64_t FindPair(const ChunkPair& c, const Search& search) { return FindPairScalar(c, search); }

#else

// For real dtypes: decodes and compares a block at a time.
int64_t FindPair(const ChunkPair& c, const Search& search) {
  const PairKind kind = PairKindOf(c.t, c.g);
  if (kind == PairKind::kInteger || kind == PairKind::kComplex) return FindPairScalar(c, search);
  constexpr int64_t kBlock = 256;
  double t[kBlock], g[kBlock];
  const int64_t tv = ValuesPerElement(c.t), gv = ValuesPerElement(c.g);
  const int64_t t_size = static_cast<int64_t>(DTypeSize(c.t)),
                g_size = static_cast<int64_t>(DTypeSize(c.g));
  for (int64_t first = 0; first < c.n; first += kBlock) {
    const int64_t n = c.n - first < kBlock ? c.n - first : kBlock;
    DecodeDoubles(c.t, c.tp + first / tv * t_size, n / tv, t);
    DecodeDoubles(c.g, c.gp + first / gv * g_size, n / gv, g);
    for (int64_t i = 0; i < n; ++i) {
      if (search.Matches(Pair{t[i], 0, g[i], 0})) return first + i;
    }
  }
  return -1;
}

#endif  // HWY_TARGET == HWY_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {
namespace {

HWY_EXPORT(FindPair);

// The index in the tensor of the pair searched for, which is known to be in `chunk`.
[[gnu::noinline]] int64_t FindInChunk(const ChunkPairReader& reader, int64_t chunk, int64_t count,
                                      const Search& search, Pair* found) {
  ChunkPairReader::Windows windows(/*one_chunk=*/true);
  const int64_t first = chunk * kChunkElements;
  const ChunkPair c = reader.Read(first, std::min(kChunkElements, count - first), &windows);
  const int64_t at = HWY_DYNAMIC_DISPATCH(FindPair)(c, search);
  if (at < 0) return -1;
  *found = PairAt(c.t, c.tp, c.g, c.gp, at);
  return first + at;
}

}  // namespace

void FindIndices(const ChunkPairReader& reader, const DiffNode& node, PairKind kind, int64_t count,
                 Diff* diff) {
  Pair pair;
  diff->first_index = FindInChunk(reader, node.first_chunk, count, {.kind = kind}, &pair);
  if (node.mismatch > 0) {
    diff->worst_index =
        FindInChunk(reader, node.mismatch_chunk, count, {.kind = kind, .mismatch = true}, &pair);
  } else {
    diff->worst_index = FindInChunk(reader, node.worst_chunk, count,
                                    {.kind = kind, .distance = node.max_abs}, &pair);
  }
  if (diff->worst_index < 0) return;
  diff->worst_target = kind == PairKind::kComplex ? Modulus(pair.t, pair.ti) : pair.t;
  diff->worst_golden = kind == PairKind::kComplex ? Modulus(pair.g, pair.gi) : pair.g;
}

}  // namespace msprobe::kernels
#endif  // HWY_ONCE
