#include "engine/compare/explain/classify.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/threads.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/optimizer_steps.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/limits.h"
#include "engine/compare/judge/operations.h"

namespace msprobe::compare {
namespace {

void Add(const Measure& m, int32_t row, SideSummary* side) {
  switch (m.verdict) {
    case RowVerdict::kEqual:
      side->equal = true;
      break;
    case RowVerdict::kNoise:
      side->noise = true;
      break;
    case RowVerdict::kDiffers:
      side->differs = true;
      break;
    case RowVerdict::kUnknown:
      if (!IsNeutral(m)) side->unknown = true;
      if (m.reason == Reason::kUninitialised) side->unwritten = true;
      return;
  }
  const double severity = std::isnan(m.severity) ? 0 : m.severity;
  if (severity > side->severity || (m.verdict == RowVerdict::kDiffers && side->worst_row < 0)) {
    side->severity = std::max(side->severity, severity);
    side->worst_row = row;
  }
}

bool IsOutput(Slot slot) {
  return slot == Slot::kOutput || slot == Slot::kParameterGrad || slot == Slot::kDebug;
}

// Whether the arguments that differ are no further apart than rounding explains in the dtype of the
// call's results: numbers that the program computed from tensors within rounding (loss.item()).
bool ArgumentsAreWithinRounding(const Comparison& c, int32_t p, const CallSummary& s) {
  ElementType dtype = DType::kFloat32;
  if (s.out.worst_row >= 0 && c.rows[s.out.worst_row].golden >= 0)
    dtype = c.golden.leaves[c.rows[s.out.worst_row].golden].dtype;
  const Rounding& r = RoundingOf(dtype);
  return s.arguments.severity * RoundingOf("float").epsilon <=
         Limits(c, c.golden.records[c.pairs[p].golden].api).Explained(r) * r.epsilon;
}

// What was found in the pairs before this one.
struct Before {
  bool diverged = false, noise = false;
};

// `s`: the summary of the pair.
CallClass Classify(const Comparison& c, int32_t p, CallSummary s, const Before& before) {
  const RecordPair& pair = c.pairs[p];
  if (pair.target < 0 || pair.golden < 0) return CallClass::kUnknown;
  const int32_t forward = p < static_cast<int32_t>(c.forward_of.size()) ? c.forward_of[p] : -1;
  // Pairs are classified in execution order, forward before backward.
  const bool forward_diverged =
      forward >= 0 && forward < p &&
      (c.classes[forward] == CallClass::kIntroduced || c.classes[forward] == CallClass::kInherited);
  const bool gradients = c.target.records[pair.target].direction == Direction::kParameterGrad;
  if (s.out.differs && gradients && !before.diverged) s = SummarizeGradients(c, p);
  if (s.in.differs) return CallClass::kInherited;
  if (s.out.differs) {
    if (forward_diverged || (gradients && before.diverged)) return CallClass::kInherited;
    const bool knows_inputs = s.in.any() || s.arguments.any();
    if (!knows_inputs || s.in.unknown) return CallClass::kUnknown;
    return CallClass::kIntroduced;
  }
  const bool computed =
      c.exact.empty() && (before.noise || s.in.noise) && ArgumentsAreWithinRounding(c, p, s);
  // What the argument changes may be seen later only: momentum of batch_norm, in the next step.
  const bool shows =
      s.out.noise || UpdatesBuffers(OperationsOf(c), c.target.records[pair.target].api);
  if (s.arguments.differs && shows && !computed) return CallClass::kIntroduced;
  if (s.in.unknown || s.out.unknown) return CallClass::kUnknown;
  if (s.in.noise || s.out.noise || s.arguments.noise) return CallClass::kNoise;
  if (s.in.equal || s.out.equal || s.arguments.equal) return CallClass::kEqual;
  return CallClass::kUnknown;
}

}  // namespace

bool IsPlain(const Comparison& c, int32_t row) {
  const Row& r = c.rows[row];
  return (r.target >= 0 && c.target.leaves[r.target].kind == LeafKind::kScalar) ||
         (r.golden >= 0 && c.golden.leaves[r.golden].kind == LeafKind::kScalar);
}

CallSummary SummarizeCall(const Comparison& c, int32_t p) {
  CallSummary s;
  const RecordPair& pair = c.pairs[p];
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    const Leaf& leaf = row.target >= 0 ? c.target.leaves[row.target] : c.golden.leaves[row.golden];
    const Measure& m = c.measures[i];
    const int32_t at = static_cast<int32_t>(i);
    if (IsOutput(leaf.slot)) {
      Add(m, at, &s.out);
    } else if (IsPlain(c, at) && !IsOptimizerState(RecordOf(c, p), leaf)) {
      Add(m, at, &s.arguments);
    } else {
      Add(m, at, &s.in);
      if (leaf.slot == Slot::kParameter) Add(m, at, &s.parameters);
    }
  }
  return s;
}

int32_t ModuleCallOf(const Comparison& c, int32_t gradients, Direction direction) {
  constexpr int32_t kNear = 1 << 16;  // calls; bounds the time
  const auto record_of = [&](int32_t p) -> const Record& {
    const RecordPair& pair = c.pairs[p];
    return pair.target >= 0 ? c.target.records[pair.target] : c.golden.records[pair.golden];
  };
  const Record& wanted = record_of(gradients);
  const auto fits = [&](int32_t p) {
    const Record& r = record_of(p);
    return r.direction == direction && r.is_module && r.api == wanted.api;
  };
  const int32_t size = static_cast<int32_t>(c.pairs.size());
  // The backward call ends just before or after; the forward call lies far back.
  for (int32_t away = 1; away < kNear && (gradients - away >= 0 || gradients + away < size);
       ++away) {
    if (gradients + away < size && fits(gradients + away)) return gradients + away;
    if (gradients - away >= 0 && fits(gradients - away)) return gradients - away;
  }
  return -1;
}

CallSummary SummarizeGradients(const Comparison& c, int32_t gradients) {
  CallSummary s = SummarizeCall(c, gradients);
  const int32_t backward = ModuleCallOf(c, gradients, Direction::kBackward);
  if (backward >= 0 && c.pairs[backward].matched()) s.in = SummarizeCall(c, backward).in;
  return s;
}

void ClassifyCalls(Comparison* c) {
  c->classes.assign(c->pairs.size(), CallClass::kUnknown);
  Before before;
  // The summaries of some thousand calls are made on all threads. What was found before a call
  // decides on its class, so classes are given one after the other.
  constexpr size_t kBlock = 1 << 14, kChunk = 512;  // calls
  std::vector<CallSummary> summaries(std::min(kBlock, c->pairs.size()));
  for (size_t first = 0; first < c->pairs.size(); first += kBlock) {
    const size_t size = std::min(kBlock, c->pairs.size() - first);
    ThreadPool::Default().ParallelFor((size + kChunk - 1) / kChunk, [&](size_t chunk) {
      for (size_t i = chunk * kChunk; i < std::min(size, (chunk + 1) * kChunk); ++i) {
        if (c->pairs[first + i].matched())
          summaries[i] = SummarizeCall(*c, static_cast<int32_t>(first + i));
      }
    });
    for (size_t p = first; p < first + size; ++p) {
      c->classes[p] = Classify(*c, static_cast<int32_t>(p), summaries[p - first], before);
      before.noise |= c->classes[p] == CallClass::kNoise;
      before.diverged |=
          c->classes[p] == CallClass::kIntroduced || c->classes[p] == CallClass::kInherited;
    }
  }
}

}  // namespace msprobe::compare
