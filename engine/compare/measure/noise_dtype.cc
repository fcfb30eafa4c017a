#include "engine/compare/measure/noise_dtype.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "engine/base/threads.h"
#include "engine/compare/measure/judge_row.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"

namespace msprobe::compare {
namespace {

// The epsilon of bfloat16, the coarsest dtype that programs compute in. float8 and narrower dtypes
// are formats in which single, scaled tensors are stored: their rounding says nothing of later
// calls.
constexpr double kCoarsest = DTypeEpsilon(DType::kBFloat16);

// A real float dtype, or none: an empty type.
ElementType Coarser(ElementType a, ElementType b) {
  return RoundingOf(a).epsilon >= RoundingOf(b).epsilon ? a : b;
}

// The dtype of the numbers in a tensor of `type`; empty for anything whose rounding is not carried
// on: integers, float8.
ElementType NumbersOf(ElementType type) {
  const Rounding& r = RoundingOf(type);
  if (r.epsilon == 0 || r.epsilon > kCoarsest) return {};
  if (type == DType::kComplex64) return DType::kFloat32;
  if (type == DType::kComplex128) return DType::kFloat64;
  if (type == DType::kComplex32) return DType::kFloat16;
  return type;
}

bool BitEqual(const Leaf& a, const Leaf& b) {
  if (a.dtype != b.dtype) return false;
  if (!a.fingerprint.empty() && !b.fingerprint.empty()) return a.fingerprint == b.fingerprint;
  return !a.checksum.empty() && a.checksum == b.checksum;
}

// The noise of the tensors that one run has returned so far.
class KnownTensors {
 public:
  void Add(const Leaf& leaf, ElementType noise) {
    const uint64_t key = ContentKey(leaf);
    if (key == 0) return;
    const auto [at, inserted] = noise_.emplace(key, noise);
    if (!inserted) at->second = Coarser(at->second, noise);
  }
  // nullptr: no call has returned this tensor.
  const ElementType* Find(const Leaf& leaf) const {
    const auto at = noise_.find(ContentKey(leaf));
    return at == noise_.end() ? nullptr : &at->second;
  }

 private:
  std::unordered_map<uint64_t, ElementType> noise_;
};

class NoiseFlow {
 public:
  explicit NoiseFlow(Comparison* c) : c_(*c), pairs_(c->pairs.size()) {
    c_.noise_dtypes.assign(c_.rows.size(), {});
  }

  void Run() {
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (c_.pairs[p].matched()) {
        FollowPair(p);
      } else {
        FollowOneSide(c_.pairs[p]);
      }
    }
  }

 private:
  // A row of two tensors that are not equal bit for bit.
  bool HasNoise(uint32_t i) const {
    const Row& row = c_.rows[i];
    if (row.target < 0 || row.golden < 0) return false;
    const Leaf &t = c_.target.leaves[row.target], &g = c_.golden.leaves[row.golden];
    return t.kind == LeafKind::kTensor && g.kind == LeafKind::kTensor && !BitEqual(t, g);
  }
  ElementType OwnDType(uint32_t i) const {
    const Row& row = c_.rows[i];
    return Coarser(NumbersOf(c_.target.leaves[row.target].dtype),
                   NumbersOf(c_.golden.leaves[row.golden].dtype));
  }
  // The noise that the row's tensors had where a call returned them. Both empty: `unknown`.
  ElementType NoiseBefore(uint32_t i, ElementType unknown) const {
    const ElementType* t = target_.Find(c_.target.leaves[c_.rows[i].target]);
    const ElementType* g = golden_.Find(c_.golden.leaves[c_.rows[i].golden]);
    if (t == nullptr && g == nullptr) return unknown;
    return Coarser(t == nullptr ? ElementType() : *t, g == nullptr ? ElementType() : *g);
  }

  // Sets the noise of a row and judges it again where that is coarser than its own dtype.
  void SetNoise(uint32_t i, ElementType noise, RowJudge* judge) {
    coarsest_ = Coarser(coarsest_, noise);
    const Row& row = c_.rows[i];
    const Leaf &t = c_.target.leaves[row.target], &g = c_.golden.leaves[row.golden];
    if (RoundingOf(JudgedType(t.dtype, g.dtype, noise)).epsilon ==
        CoarserRounding(t.dtype, g.dtype).epsilon)
      return;
    c_.noise_dtypes[i] = noise;
    Measure& m = c_.measures[i];
    if (m.verdict == RowVerdict::kDiffers || m.verdict == RowVerdict::kNoise)
      judge->Judge(i, noise, &m);
  }

  void FollowPair(size_t p) {
    const RecordPair& pair = c_.pairs[p];
    const Record& record = c_.golden.records[pair.golden];
    RowJudge judge(c_, pair);
    // Inside a module anything may be computed in the dtype of what goes in, and calls before its
    // end may be calls inside it.
    ElementType in = record.is_module ? coarsest_ : ElementType();
    if (p < c_.forward_of.size() && c_.forward_of[p] >= 0)
      in = Coarser(in, pairs_[c_.forward_of[p]]);
    if (record.direction == Direction::kParameterGrad) in = Coarser(in, coarsest_);
    const uint32_t end = pair.first_row + pair.row_count;
    for (uint32_t i = pair.first_row; i < end; ++i) {
      if (IsResult(i)) continue;
      const bool noise = HasNoise(i);
      if (!noise && !(record.is_module && IsTensor(i))) continue;
      ElementType dtype = OwnDType(i);
      if (noise) {
        dtype = Coarser(dtype, NoiseBefore(i, coarsest_));
        if (!dtype.empty()) SetNoise(i, dtype, &judge);
      }
      in = Coarser(in, dtype);
    }
    pairs_[p] = in;
    const bool other_arguments = HasOtherArguments(c_, pair);
    for (uint32_t i = pair.first_row; i < end; ++i) {
      if (!IsResult(i) || !HasNoise(i)) continue;
      const ElementType dtype = Coarser(Coarser(OwnDType(i), in), NoiseBefore(i, {}));
      if (dtype.empty()) continue;
      pairs_[p] = Coarser(pairs_[p], dtype);
      if (!other_arguments) SetNoise(i, dtype, &judge);
      target_.Add(c_.target.leaves[c_.rows[i].target], dtype);
      golden_.Add(c_.golden.leaves[c_.rows[i].golden], dtype);
    }
  }

  // A call of one side only, such as a cast: its results have the noise of what goes in.
  void FollowOneSide(const RecordPair& pair) {
    const bool is_target = pair.target >= 0;
    const Dump& dump = is_target ? c_.target : c_.golden;
    KnownTensors& known = is_target ? target_ : golden_;
    ElementType in;
    for (const Leaf& leaf : dump.LeavesOf(dump.records[is_target ? pair.target : pair.golden])) {
      if (leaf.kind != LeafKind::kTensor) continue;
      if (leaf.slot != Slot::kOutput) {
        const ElementType* noise = known.Find(leaf);
        if (noise != nullptr) in = Coarser(in, *noise);
      } else if (const ElementType dtype = Coarser(NumbersOf(leaf.dtype), in); !dtype.empty()) {
        known.Add(leaf, dtype);
      }
    }
  }

  bool IsResult(uint32_t i) const {
    const Row& row = c_.rows[i];
    const Leaf& leaf =
        row.target >= 0 ? c_.target.leaves[row.target] : c_.golden.leaves[row.golden];
    return leaf.slot == Slot::kOutput || leaf.slot == Slot::kParameterGrad ||
           leaf.slot == Slot::kDebug;
  }
  bool IsTensor(uint32_t i) const {
    const Row& row = c_.rows[i];
    return row.target >= 0 && row.golden >= 0 &&
           c_.target.leaves[row.target].kind == LeafKind::kTensor;
  }

  Comparison& c_;
  std::vector<ElementType> pairs_;  // the coarsest noise of each pair so far
  ElementType coarsest_;            // of all rows so far
  KnownTensors target_, golden_;
};

// Fills coarse_row and coarse_dtype.
void FindCoarseDType(Comparison* c) {
  double coarsest = 0;
  for (uint32_t i = 0; i < c->rows.size(); ++i) {
    const Row& row = c->rows[i];
    if (c->measures[i].reason != Reason::kDTypeDiffers || row.target < 0 || row.golden < 0)
      continue;
    const Leaf &target = c->target.leaves[row.target], &golden = c->golden.leaves[row.golden];
    if (target.kind != LeafKind::kTensor) continue;
    const Rounding& r = CoarserRounding(target.dtype, golden.dtype);
    if (r.kind != NumberKind::kFloat || r.epsilon <= coarsest || r.epsilon > kCoarsest) continue;
    if (coarsest == 0) c->coarse_row = i;
    coarsest = r.epsilon;
    c->coarse_dtype = CoarserType(target.dtype, golden.dtype);
  }
}

// Whether a row is not equal, and the tensors are floats of two dtypes.
bool HasTwoDTypes(const Comparison& c) {
  const auto differs = [](const Measure& m) {
    return m.verdict == RowVerdict::kNoise || m.verdict == RowVerdict::kDiffers;
  };
  if (std::none_of(c.measures.begin(), c.measures.end(), differs)) return false;
  std::atomic<double> epsilon = 0;  // of the first such row that a thread has seen
  std::atomic<bool> two = false;
  constexpr size_t kChunk = 1 << 14;  // rows
  const size_t rows = c.rows.size();
  ThreadPool::Default().ParallelFor((rows + kChunk - 1) / kChunk, [&](size_t chunk) {
    for (size_t i = chunk * kChunk; i < std::min(rows, (chunk + 1) * kChunk) && !two; ++i) {
      const Row& row = c.rows[i];
      if (row.target < 0 || row.golden < 0) continue;
      for (const ElementType type :
           {c.target.leaves[row.target].dtype, c.golden.leaves[row.golden].dtype}) {
        const double own = RoundingOf(NumbersOf(type)).epsilon;
        if (own == 0 || !type.dtype()) continue;
        double first = epsilon;
        if (first == 0 && epsilon.compare_exchange_strong(first, own)) first = own;
        if (first != own) two = true;
      }
    }
  });
  return two;
}

}  // namespace

void JudgeByNoiseDType(Comparison* comparison) {
  if (!HasTwoDTypes(*comparison)) return;
  FindCoarseDType(comparison);
  NoiseFlow(comparison).Run();
}

}  // namespace msprobe::compare
