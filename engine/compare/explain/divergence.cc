#include "engine/compare/explain/divergence.h"

#include <algorithm>
#include <vector>

#include "engine/compare/explain/classify.h"
#include "engine/compare/explain/dataflow.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/explain.h"
#include "engine/compare/explain/source_places.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

constexpr size_t kMaxRunnersUp = 5;

int32_t SizeOf(const Comparison& c) { return static_cast<int32_t>(c.pairs.size()); }

// Whether `module` is the call of a module and `inner` is a call inside it, directly or not.
bool Contains(const Comparison& c, int32_t module, int32_t inner) {
  if (inner < 0 || module < 0 || !RecordOf(c, module).is_module ||
      RecordOf(c, inner).parent.empty())
    return false;
  const std::string_view name = RecordOf(c, module).name;
  std::string_view at = RecordOf(c, inner).parent;
  // The call of a module is recorded after the calls inside it: each parent follows its child.
  int32_t from = inner;
  for (int depth = 0; depth < 64 && !at.empty(); ++depth) {
    if (at == name) return true;
    int32_t p = from + 1;
    while (p < SizeOf(c) && p <= module && RecordOf(c, p).name != at) ++p;
    if (p >= SizeOf(c) || p > module) return false;
    at = RecordOf(c, p).parent;
    from = p;
  }
  return false;
}

// The backward call that made the wrong gradient of a parameter, when it follows pair `p` and
// introduces a difference itself; otherwise `p`. A parameter's gradient is recorded as soon as it
// is complete, the backward call that made it only when all its gradients are complete.
int32_t MakerOfGradient(const Comparison& c, int32_t p) {
  constexpr int32_t kNear = 64;
  if (RecordOf(c, p).direction != Direction::kParameterGrad) return p;
  const auto makes = [&](int32_t q) {
    const RecordPair &gradients = c.pairs[p], &call = c.pairs[q];
    for (uint32_t i = gradients.first_row; i < gradients.first_row + gradients.row_count; ++i) {
      if (c.measures[i].verdict != RowVerdict::kDiffers) continue;
      for (uint32_t j = call.first_row; j < call.first_row + call.row_count; ++j) {
        const Row &gradient = c.rows[i], &made = c.rows[j];
        if (made.target >= 0 && made.golden >= 0 && gradient.target >= 0 && gradient.golden >= 0 &&
            c.target.leaves[made.target].slot == Slot::kOutput &&
            SameNumbers(c.target.leaves[made.target], c.target.leaves[gradient.target]) &&
            SameNumbers(c.golden.leaves[made.golden], c.golden.leaves[gradient.golden]))
          return true;
      }
    }
    return false;
  };
  for (int32_t q = p + 1; q < SizeOf(c) && q <= p + kNear; ++q) {
    if (c.classes[q] == CallClass::kIntroduced && c.pairs[q].matched() && makes(q)) return q;
  }
  return p;
}

FirstDivergence Explain(const Comparison& c, int32_t p) {
  if (c.classes[p] == CallClass::kInherited) return ExplainInherited(c, p);
  return ExplainIntroduced(c, p);
}

// Calls after `first` that introduce a difference, the one with the highest confidence first. A
// module is left out when a call inside it is named already.
std::vector<FirstDivergence> RunnersUp(const Comparison& c, int32_t first, int32_t named) {
  std::vector<FirstDivergence> out;
  for (int32_t p = first + 1; p < SizeOf(c) && out.size() < kMaxRunnersUp; ++p) {
    if (p == named || c.classes[p] != CallClass::kIntroduced || Contains(c, p, named)) continue;
    const bool holds_another = std::any_of(
        out.begin(), out.end(), [&](const FirstDivergence& r) { return Contains(c, p, r.pair); });
    if (!holds_another) out.push_back(ExplainIntroduced(c, p));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.confidence > b.confidence; });
  return out;
}

bool IsWrong(const Comparison& c, int32_t p) {
  return c.classes[p] == CallClass::kIntroduced || c.classes[p] == CallClass::kInherited ||
         (c.classes[p] == CallClass::kUnknown && c.pairs[p].matched() &&
          SummarizeCall(c, p).out.differs);
}

}  // namespace

int32_t FirstWrongCall(const Comparison& c) {
  // msprobe 1.2 to 8 write the gradients of a module's parameters into the place of its forward
  // call. They were computed behind all calls of the forward pass, and before the optimizer's.
  int32_t early_gradients = -1;
  bool backward = false;
  for (int32_t p = 0; p < SizeOf(c); ++p) {
    const Record& record = RecordOf(c, p);
    backward = backward || record.direction == Direction::kBackward;
    if (!IsWrong(c, p)) continue;
    if (record.direction == Direction::kParameterGrad && !backward) {
      if (early_gradients < 0) early_gradients = p;
    } else {
      return early_gradients >= 0 && IsOptimizerCall(record.api) ? early_gradients : p;
    }
  }
  return early_gradients;
}

void FindFirstDivergence(Comparison* c) {
  int32_t first = FirstWrongCall(*c);
  if (first < 0) return;
  first = MakerOfGradient(*c, first);
  c->first = Explain(*c, first);
  if (c->pairs[c->first.pair].golden < 0 && c->first.golden_line.empty())
    c->first.golden_line = GoldenLineOfRegion(*c, c->first);
  c->runners_up = RunnersUp(*c, first, c->first.pair);
}

}  // namespace msprobe::compare
