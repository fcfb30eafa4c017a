#include "engine/compare/divergence.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/compare/classify.h"
#include "engine/compare/dataflow.h"
#include "engine/compare/evidence.h"
#include "engine/compare/judge.h"
#include "engine/compare/operations.h"
#include "engine/compare/record_keys.h"
#include "engine/compare/source_line.h"

namespace msprobe {
namespace {

constexpr int kMaxRunnersUp = 5;
// Below this jump, and this many times the limit, an error has grown rather than begun.
constexpr double kDriftJump = 8, kDriftSize = 8;
constexpr double kDriftConfidence = 0.4;
constexpr double kUnrecordedConfidence = 0.7;  // the place is sure, the operation was not recorded
constexpr double kFlowConfidence =
    0.9;  // a call without partner whose output is the first wrong input
constexpr double kNeighbourConfidence =
    0.5;  // a call without partner just before the first wrong input
constexpr double kContainerConfidence = 0.8;  // a module whose recorded children show nothing
constexpr int kNeighbourhood =
    16;  // pairs before the first wrong one in which a missing call counts as near

class Finder {
 public:
  explicit Finder(Comparison* c) : c_(*c) {}

  void Run() {
    const int32_t first = FirstDiverged();
    if (first < 0) return;
    c_.first = Explain(first);
    for (int32_t p = first + 1;
         p < Size() && static_cast<int>(c_.runners_up.size()) < kMaxRunnersUp; ++p) {
      if (p == c_.first.pair || c_.classes[p] != CallClass::kIntroduced ||
          Contains(p, c_.first.pair))
        continue;
      const bool holds_another =
          std::any_of(c_.runners_up.begin(), c_.runners_up.end(),
                      [&](const FirstDivergence& r) { return Contains(p, r.pair); });
      if (!holds_another) c_.runners_up.push_back(Introduced(p));
    }
    std::stable_sort(c_.runners_up.begin(), c_.runners_up.end(),
                     [](const auto& a, const auto& b) { return a.confidence > b.confidence; });
  }

 private:
  int32_t Size() const { return static_cast<int32_t>(c_.pairs.size()); }
  bool Matched(int32_t p) const { return c_.pairs[p].target >= 0 && c_.pairs[p].golden >= 0; }
  const Record& RecordOf(int32_t p) const {
    return c_.pairs[p].target >= 0 ? c_.target.records[c_.pairs[p].target]
                                   : c_.golden.records[c_.pairs[p].golden];
  }
  const Dump& DumpOf(int32_t p) const { return c_.pairs[p].target >= 0 ? c_.target : c_.golden; }

  int32_t FirstDiverged() const {
    for (int32_t p = 0; p < Size(); ++p) {
      if (c_.classes[p] == CallClass::kIntroduced || c_.classes[p] == CallClass::kInherited)
        return p;
      if (c_.classes[p] == CallClass::kUnknown && Matched(p) && SummarizeCall(c_, p).out.differs)
        return p;
    }
    return -1;
  }

  // `module` is a module call that runs `inner` inside itself.
  bool Contains(int32_t module, int32_t inner) const {
    if (inner < 0 || module < 0 || !RecordOf(module).is_module || RecordOf(inner).parent.empty())
      return false;
    const std::string_view name = RecordOf(module).name;
    std::string_view at = RecordOf(inner).parent;
    // Parents complete after their children: the chain is looked up in the pairs that follow.
    int32_t from = inner;
    for (int depth = 0; depth < 64 && !at.empty(); ++depth) {
      if (at == name) return true;
      int32_t p = from + 1;
      while (p < Size() && p <= module && RecordOf(p).name != at) ++p;
      if (p >= Size() || p > module) return false;
      at = RecordOf(p).parent;
      from = p;
    }
    return false;
  }

  FirstDivergence Start(int32_t p, int32_t row) const {
    FirstDivergence f;
    f.pair = p;
    f.row = row;
    f.call_class = c_.classes[p];
    f.source_line = SourceLine(p);
    return f;
  }

  std::string SourceLine(int32_t p) const {
    const auto line = [&](const Dump& dump, int32_t record) -> std::string {
      if (record < 0) return "";
      const int32_t stack = dump.records[record].stack;
      if (stack < 0 || static_cast<size_t>(stack) >= dump.stacks.size()) return "";
      return UserSourceLine(dump.stacks[stack]);
    };
    std::string text = line(c_.target, c_.pairs[p].target);
    if (text.empty()) text = line(c_.golden, c_.pairs[p].golden);
    if (text.empty() && p < static_cast<int32_t>(c_.forward_of.size()) && c_.forward_of[p] >= 0) {
      text = SourceLine(c_.forward_of[p]);  // backward records have no stack of their own
    }
    return text;
  }

  FirstDivergence Explain(int32_t p) {
    if (c_.classes[p] == CallClass::kInherited) return Inherited(p);
    if (const int32_t drift = LargestJump(p); drift >= 0) return Drift(drift, p);
    if (c_.classes[p] == CallClass::kIntroduced) {
      if (const int32_t inside = UnmatchedInside(p); inside >= 0) {
        return Unmatched(inside, p, -1, kNeighbourConfidence);
      }
    }
    return Introduced(p);
  }

  // The call's inputs agree, or are not recorded, and an output differs.
  FirstDivergence Introduced(int32_t p) const {
    const CallSummary call = SummarizeCall(c_, p);
    const Before before = WhatCameBefore(c_, p);
    FirstDivergence f = Start(p, call.out.worst_row);
    f.confidence = ConfidenceOf(c_, p, call, before);
    const Record& r = RecordOf(p);
    std::string inputs;
    if (!call.in.any() && !call.arguments.any()) {
      inputs = "its inputs were not recorded";
    } else if (call.in.unknown) {
      inputs = "not all of its inputs could be judged";
    } else if (call.in.noise) {
      inputs = fmt::format("its inputs agree within rounding (worst {} roundings)",
                           ShortNumber(call.in.severity));
    } else {
      inputs = fmt::format("its inputs are {}", EqualWord(c_));
    }
    if (call.arguments.differs) {
      inputs += fmt::format(", but the call itself was made differently: {}",
                            DescribeRow(c_, call.arguments.worst_row));
    }
    f.why = fmt::format("{}; {}; {}", DescribeBefore(c_, before), inputs, DescribeRow(c_, f.row));
    f.advice = Advice(p, call);
    if (r.is_module) {
      int children = 0;
      for (int32_t q = p - 1; q >= 0 && q > p - 4096; --q) children += RecordOf(q).parent == r.name;
      if (children > 0) {
        f.confidence *= kContainerConfidence;
        f.advice = fmt::format(
            "none of the {} recorded calls directly inside this module shows the error: it enters "
            "in "
            "an operation that was not recorded, or in its own code",
            children);
      } else if (f.advice.empty() && c_.target.level == Level::kL0) {
        f.advice =
            "only modules were recorded; collect this one at level mix to see the operation inside";
      }
    }
    return f;
  }

  std::string Advice(int32_t p, const CallSummary& call) const {
    const Record& r = RecordOf(p);
    const Measure* worst = call.out.worst_row >= 0 ? &c_.measures[call.out.worst_row] : nullptr;
    if (call.arguments.differs) return "compare the two call sites and the configuration they read";
    if (DrawsRandomNumbers(r.api)) {
      return "this operation draws random numbers: fix the seed on both sides (seed_all) before "
             "looking further";
    }
    if (worst != nullptr && worst->reason == Reason::kShapeDiffers)
      return "the two runs do not compute on the same shapes";
    if (call.in.noise && AmplifiesRounding(r.api)) {
      return "this kind of operation enlarges the rounding of its inputs: check whether the "
             "difference matters downstream";
    }
    if (worst != nullptr && std::isfinite(worst->severity) && IsContraction(r.api) &&
        worst->severity > 256 && worst->severity < 0x1p15 && IsFloat32(call.out.worst_row)) {
      return "an error of this size is what TF32 or a 16-bit accumulation makes of float32: check "
             "the matmul precision setting";
    }
    return "";
  }

  bool IsFloat32(int32_t row) const {
    const Row& r = c_.rows[row];
    return r.golden >= 0 && (c_.golden.leaves[r.golden].dtype == "torch.float32" ||
                             c_.golden.leaves[r.golden].dtype == "Float32");
  }

  // Nothing recorded before `p` is wrong, and yet what goes into it is.
  FirstDivergence Inherited(int32_t p) {
    int32_t row = -1;
    // The first row that differs: the tensor to follow back.
    const RecordPair& pair = c_.pairs[p];
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count && row < 0; ++i) {
      const Row& r = c_.rows[i];
      if (r.target < 0 || r.golden < 0) continue;
      const Slot slot = c_.target.leaves[r.target].slot;
      const bool goes_in = slot == Slot::kInput || slot == Slot::kKwarg || slot == Slot::kParameter;
      if (goes_in && c_.target.leaves[r.target].kind != LeafKind::kScalar &&
          c_.measures[i].verdict == RowVerdict::kDiffers) {
        row = static_cast<int32_t>(i);
      }
    }
    const Before before = WhatCameBefore(c_, p);
    if (row < 0) {  // a backward call of a diverged forward one, and nothing before it: cannot be
                    // the first
      return Introduced(p);
    }
    const Leaf &t = c_.target.leaves[c_.rows[row].target],
               &g = c_.golden.leaves[c_.rows[row].golden];
    if (const int32_t u = MissingCallBefore(p, t, g); u >= 0)
      return Unmatched(u, p, row, kFlowConfidence);

    FirstDivergence f = Start(p, row);
    const std::string label(LeafLabel(c_, row));
    const std::string wrong =
        fmt::format("{}; {}", DescribeBefore(c_, before), DescribeRow(c_, row));
    const double judged = before.total() > 0 ? 1 - 0.5 * static_cast<double>(before.unjudged) /
                                                       static_cast<double>(before.total())
                                             : 1;
    if (t.slot == Slot::kParameter) {
      f.confidence = 0.95 * judged * pair.confidence;
      f.why = fmt::format(
          "{}: a parameter differs before its first use, so the error begins before the first "
          "recorded operation",
          wrong);
      f.advice = "compare the checkpoints, the initialisation and its seed";
      return f;
    }
    if (const std::string name = ParameterName(p, t); !name.empty()) {
      f.confidence = 0.95 * judged * pair.confidence;
      f.why = fmt::format(
          "{}: it is {}, which differs before its first use, so the error begins before the first "
          "recorded operation",
          wrong, name);
      f.advice = "compare the checkpoints, the initialisation and its seed";
      return f;
    }
    const int32_t made_t = FindProducer(c_.target, t, pair.target),
                  made_g = FindProducer(c_.golden, g, pair.golden);
    if (made_t >= 0 && made_g >= 0 && !ArePartners(made_t, made_g)) {
      f.confidence = kFlowConfidence * judged * pair.confidence;
      f.why = fmt::format("{}: the target passes the output of {}, the golden that of {}", wrong,
                          c_.target.records[made_t].name, c_.golden.records[made_g].name);
      f.advice = "the two programs are wired differently here: compare the source lines";
      return f;
    }
    if (const int32_t module = EnclosingIntroducer(p); module >= 0) {
      f.confidence = kUnrecordedConfidence * judged * pair.confidence;
      f.why = fmt::format(
          "{}: it was still right when {} began, so the error enters inside it before this call, "
          "in an operation that "
          "was not recorded",
          wrong, RecordOf(module).name);
      f.advice = "look at the code between this call and the one before it";
      return f;
    }
    if (const int32_t u = UnmatchedNear(p); u >= 0)
      return Unmatched(u, p, row, kNeighbourConfidence);
    const bool weight =
        t.requires_grad == "True" && g.requires_grad == "True" && made_t < 0 && made_g < 0;
    f.confidence = (before.total() == 0 ? 0.95
                    : weight            ? 0.85
                                        : kUnrecordedConfidence) *
                   judged * pair.confidence;
    if (before.total() == 0) {
      f.why = fmt::format("{}: the error begins before the first recorded operation", wrong);
      f.advice = "compare the input data and their order, the seed, and the weights";
    } else {
      f.why = fmt::format(
          "{}: no recorded operation made it, so it comes from outside what was recorded", wrong);
      f.advice = weight ? "it requires a gradient and nothing recorded made it: probably a weight; "
                          "compare the checkpoints"
                        : "compare the data that enter here, or record more: an operation that was "
                          "not recorded may have made it";
    }
    return f;
  }

  bool ArePartners(int32_t target, int32_t golden) const {
    return std::any_of(c_.pairs.begin(), c_.pairs.end(), [&](const RecordPair& p) {
      return p.target == target && p.golden == golden;
    });
  }

  // "parameters.weight of Module.fc.Linear.forward.0" when the module around `p` recorded `value`
  // as its parameter; else "".
  std::string ParameterName(int32_t p, const Leaf& value) const {
    const std::string_view parent = RecordOf(p).parent;
    for (int32_t q = p + 1; q < Size() && !parent.empty(); ++q) {
      if (RecordOf(q).name != parent || c_.pairs[q].target < 0) continue;
      const RecordPair& pair = c_.pairs[q];
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
        const int32_t leaf = c_.rows[i].target;
        if (leaf >= 0 && c_.target.leaves[leaf].slot == Slot::kParameter &&
            SameNumbers(c_.target.leaves[leaf], value)) {
          return fmt::format("{} of {}", LeafLabel(c_, static_cast<int32_t>(i)), parent);
        }
      }
      return "";
    }
    return "";
  }

  // The innermost module call around `p` whose own inputs agree: the error enters inside it.
  int32_t EnclosingIntroducer(int32_t p) const {
    std::string_view at = RecordOf(p).parent;
    for (int32_t q = p + 1, depth = 0; q < Size() && depth < 64 && !at.empty(); ++q) {
      if (RecordOf(q).name != at) continue;
      if (c_.classes[q] == CallClass::kIntroduced) return q;
      at = RecordOf(q).parent;
      ++depth;
    }
    return -1;
  }

  // A call without partner, before `p`, that made one of the two values: an operation inserted here
  // or missing there.
  int32_t MissingCallBefore(int32_t p, const Leaf& t, const Leaf& g) const {
    for (int32_t q = p - 1; q >= 0; --q) {
      if (Matched(q)) continue;
      const bool in_target = c_.pairs[q].target >= 0;
      for (const Leaf& leaf : DumpOf(q).LeavesOf(RecordOf(q))) {
        if (leaf.slot == Slot::kOutput && SameNumbers(leaf, in_target ? t : g)) return q;
      }
    }
    return -1;
  }

  int32_t UnmatchedNear(int32_t p) const {
    for (int32_t q = p - 1; q >= 0 && q >= p - kNeighbourhood; --q) {
      if (!Matched(q) && RecordOf(q).direction == RecordOf(p).direction) return q;
    }
    return -1;
  }

  int32_t UnmatchedInside(int32_t module) const {
    if (!RecordOf(module).is_module) return -1;
    for (int32_t q = module - 1; q >= 0 && q > module - 4096; --q) {
      if (!Matched(q) && WithoutCall(RecordOf(q).parent) == WithoutCall(RecordOf(module).name))
        return q;
    }
    return -1;
  }

  // `u` has no partner; `p` is the first call with a wrong number, at `row` (-1: as a whole).
  FirstDivergence Unmatched(int32_t u, int32_t p, int32_t row, double confidence) const {
    FirstDivergence f = Start(u, -1);
    const bool inserted = c_.pairs[u].target >= 0;
    const Before before = WhatCameBefore(c_, u);
    f.call_class = CallClass::kIntroduced;
    const double judged = before.total() > 0 ? 1 - 0.5 * static_cast<double>(before.unjudged) /
                                                       static_cast<double>(before.total())
                                             : 1;
    f.confidence = confidence * judged;
    f.why = fmt::format("{}; this call exists only in the {}; ", DescribeBefore(c_, before),
                        inserted ? "target" : "golden");
    f.why += confidence == kFlowConfidence
                 ? fmt::format("its output is what goes into {}, where {}", EntryName(c_, p),
                               DescribeRow(c_, row))
                 : fmt::format("right after it {} is the first call with a wrong number",
                               EntryName(c_, p));
    f.advice = inserted ? "the target runs an operation that the golden does not have"
                        : "the target skips an operation that the golden runs";
    return f;
  }

  // When the error at `p` has grown rather than begun: the call, at or before `p`, with the largest
  // growth. -1: it began at `p`.
  int32_t LargestJump(int32_t p) const {
    const CallSummary call = SummarizeCall(c_, p);
    if (call.in.severity <= 0 || call.arguments.differs || !std::isfinite(call.out.severity))
      return -1;
    if (call.out.worst_row < 0 ||
        call.out.severity >= kDriftSize * ExplainedFor(c_, call.out.worst_row))
      return -1;
    if (JumpOf(call) >= kDriftJump) return -1;
    int32_t best = p;
    double best_jump = JumpOf(call);
    for (int32_t q = 0; q < p; ++q) {
      if (c_.classes[q] != CallClass::kNoise || RecordOf(q).is_module) continue;
      const CallSummary s = SummarizeCall(c_, q);
      // From bit-equal inputs one rounding is what everybody makes.
      const double jump = s.out.severity / std::max(s.in.severity, 1.0);
      if (jump > best_jump) best = q, best_jump = jump;
    }
    return best;
  }

  FirstDivergence Drift(int32_t q, int32_t p) const {
    const CallSummary call = SummarizeCall(c_, q), last = SummarizeCall(c_, p);
    const Before before = WhatCameBefore(c_, q);
    FirstDivergence f = Start(q, call.out.worst_row);
    f.confidence = std::min(kDriftConfidence, std::max(0.1, ConfidenceOf(c_, q, call, before)));
    f.why = fmt::format(
        "{}; rounding errors grow from call to call and leave what rounding explains at {} ({} "
        "roundings, from {} "
        "in its inputs)",
        DescribeBefore(c_, before), EntryName(c_, p), ShortNumber(last.out.severity),
        ShortNumber(last.in.severity));
    f.why += q == p ? "; no earlier call makes a larger jump"
                    : fmt::format("; the largest jump is here: from {} to {} roundings",
                                  ShortNumber(call.in.severity), ShortNumber(call.out.severity));
    f.advice =
        "gradual growth has no single cause: compare in tensor mode, or against a float64 run";
    return f;
  }

  Comparison& c_;
};

}  // namespace

void FindFirstDivergence(Comparison* comparison) { Finder(comparison).Run(); }

}  // namespace msprobe
