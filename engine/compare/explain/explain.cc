#include "engine/compare/explain/explain.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/compare/explain/classify.h"
#include "engine/compare/explain/dataflow.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/explanation.h"
#include "engine/compare/explain/fix_hint.h"
#include "engine/compare/explain/optimizer_steps.h"
#include "engine/compare/explain/unmatched_calls.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/module_modes.h"
#include "engine/compare/model/precision_policies.h"
#include "engine/compare/model/rounding.h"

namespace msprobe::compare {
namespace {

constexpr double kNeighbourConfidence = 0.5;  // a call without a partner near the first wrong input
constexpr double kContainerConfidence = 0.8;  // a module whose recorded children show no error

bool IsFloat32(const Comparison& c, int32_t row) {
  const Row& r = c.rows[row];
  return r.golden >= 0 && c.golden.leaves[r.golden].dtype.dtype() == DType::kFloat32;
}

// "it reads memory that nobody wrote: input.0, allocated by torch.empty: train.py:12 in f: ..."
std::string DescribeUnwritten(const Comparison& c, int32_t row) {
  std::string text = fmt::format("it reads memory that nobody wrote: {}", LeafLabel(c, row));
  const std::string_view allocation = c.target.AllocationOf(c.rows[row].target);
  if (allocation.empty()) return text + ", a copy of such memory";
  return fmt::format("{}, allocated by {}", text, allocation);
}

// What lowers the precision of a matmul of float32 depends on the device.
std::string PrecisionAdvice(const Comparison& c) {
  const auto device = [](const Dump& dump) -> std::string_view {
    for (const auto& [key, value] : dump.provenance) {
      if (key == "device") return value;
    }
    return "";
  };
  const std::string_view devices[] = {device(c.target), device(c.golden)};
  const auto any = [&](std::string_view begin) {
    return devices[0].starts_with(begin) || devices[1].starts_with(begin);
  };
  const bool cpus = devices[0] == "cpu" && devices[1] == "cpu";
  const std::string_view fast = any("npu")   ? "HF32 or a 16-bit accumulation"
                                : any("xpu") ? "TF32 or a 16-bit accumulation"
                                : cpus       ? "an accumulation in bfloat16 (oneDNN)"
                                             : "TF32 or a 16-bit accumulation";
  return fmt::format(
      "{} causes errors of this size in float32: check the matmul precision setting{}", fast,
      cpus ? ", torch.get_float32_matmul_precision()" : "");
}

std::string Advice(const Comparison& c, int32_t p, const CallSummary& call) {
  const Record& r = RecordOf(c, p);
  const Measure* worst = call.out.worst_row >= 0 ? &c.measures[call.out.worst_row] : nullptr;
  if (!DescribeMode(c, p).empty())
    return "call model.train() or model.eval() at the same place in both programs";
  if (call.arguments.differs) {
    return IsOptimizerCall(r.api)
               ? "compare how the two runs construct their optimizers and schedules"
               : "compare the two call sites and the configuration they read";
  }
  if (RandomCause cause = CauseOfOtherDraw(c, p); !cause.advice.empty()) return cause.advice;
  if (worst != nullptr && worst->reason == Reason::kShapeDiffers)
    return "the two runs do not compute on the same shapes";
  if (call.in.noise && AmplifiesRounding(OperationsOf(c), r.api)) {
    return "this kind of operation enlarges the rounding of its inputs: check whether the "
           "difference matters downstream";
  }
  if (worst != nullptr && std::isfinite(worst->severity) && IsContraction(OperationsOf(c), r.api) &&
      worst->severity > 256 && worst->severity < 0x1p15 && IsFloat32(c, call.out.worst_row)) {
    return PrecisionAdvice(c);
  }
  if (const std::string other = DescribeFirstDTypes(c, p); !other.empty())
    return other + ": compute in the same dtype";
  if (UnmatchedArgument(c, p) >= 0)
    return "compare the two call sites: the other side takes the default";
  return "";
}

// The recorded calls directly inside the call of a module.
struct Children {
  int count = 0;
  int32_t first_wrong = -1;  // the first one that shows an error; -1: none does
};
Children ChildrenOf(const Comparison& c, int32_t module) {
  const std::string_view name = RecordOf(c, module).name;
  Children children;
  for (int32_t q = module - 1; q >= 0 && q > module - 4096; --q) {
    if (RecordOf(c, q).parent != name || c.IsCompiled(q)) continue;
    ++children.count;
    const CallSummary call = SummarizeCall(c, q);
    const bool wrong = c.classes[q] == CallClass::kIntroduced ||
                       c.classes[q] == CallClass::kInherited || call.in.differs ||
                       call.out.differs || call.arguments.differs;
    if (wrong) children.first_wrong = q;
  }
  return children;
}

// The call as a whole introduces the error; `before`: the calls before it.
FirstDivergence StartIntroduced(const Comparison& c, int32_t p, double confidence,
                                const EarlierCalls& before) {
  FirstDivergence f = StartExplanation(c, p, -1);
  f.call_class = CallClass::kIntroduced;
  f.confidence = confidence * before.JudgedFactor();
  return f;
}

}  // namespace

FirstDivergence ExplainIntroduced(const Comparison& c, int32_t p) {
  const CallSummary call = RecordOf(c, p).direction == Direction::kParameterGrad
                               ? SummarizeGradients(c, p)
                               : SummarizeCall(c, p);
  const EarlierCalls before = CountEarlierCalls(c, p);
  // An argument that differs while its result is within rounding is the finding itself.
  const bool argument_only = call.arguments.differs && !call.out.differs;
  FirstDivergence f =
      StartExplanation(c, p, argument_only ? call.arguments.worst_row : call.out.worst_row);
  f.confidence = ConfidenceOf(c, p, call, before);
  std::string made_otherwise = DescribeHyperParameters(c, p);
  if (!made_otherwise.empty()) made_otherwise += "; ";
  if (argument_only) {
    f.why = fmt::format("{}{}; {}; its result {}", made_otherwise, DescribeEarlierCalls(c, before),
                        DescribeInputs(c, p, call),
                        call.out.unknown ? "could not be judged"
                        : call.out.noise ? "is still within rounding"
                                         : "is equal");
    f.advice = Advice(c, p, call);
    return f;
  }
  if (const int32_t unwritten = UnwrittenInput(c, p); unwritten >= 0) {
    f.why = fmt::format("{}; {}; {}", DescribeEarlierCalls(c, before),
                        DescribeUnwritten(c, unwritten), DescribeRow(c, f.row));
    f.advice = "write the whole buffer before it is read, or begin with zeros in place of empty";
    return f;
  }
  f.why = fmt::format("{}{}; {}; {}", made_otherwise, DescribeEarlierCalls(c, before),
                      DescribeInputs(c, p, call), DescribeRow(c, f.row));
  if (const std::string updates = DescribeUpdates(c, p); !updates.empty()) f.why += "; " + updates;
  if (const RandomCause cause = CauseOfOtherDraw(c, p); !cause.why.empty())
    f.why += "; " + cause.why;
  if (const std::string policies = DescribePolicies(c, p); !policies.empty())
    f.why += "; " + policies;
  f.advice = Advice(c, p, call);
  if (!RecordOf(c, p).is_module) return f;
  if (const std::string weight = OtherWeightInModule(c, p); !weight.empty()) {
    f.why += fmt::format("; {} differs already in the weights file", weight);
    f.advice = AdviceOnWeights(c);
    return f;
  }
  const std::string compiled = DescribeCompiledModule(c, p);
  if (!compiled.empty()) f.why += "; " + compiled;
  const Children children = ChildrenOf(c, p);
  if (children.first_wrong < 0 && !compiled.empty()) {
    f.advice = kRunEagerly;
  } else if (children.first_wrong >= 0) {
    f.confidence *= kContainerConfidence;
    f.advice = fmt::format("look inside this module: {} is the first call in it that is wrong",
                           EntryName(c, children.first_wrong));
  } else if (children.count > 0) {
    f.confidence *= kContainerConfidence;
    f.advice = fmt::format(
        "none of the {} recorded calls directly inside this module shows the error: it enters in "
        "an operation that was not recorded, or in its own code",
        children.count);
  } else if (f.advice.empty() && c.target.level == Level::kL0) {
    if (const std::string place = DescribeCompiledCell(c, p); !place.empty()) f.why += "; " + place;
    f.advice = AdviceToLookInside(c, p);
  }
  return f;
}

namespace {

// Whether the run without the call `u` takes in the row `row` what the call takes in the other run: it
// has left the call out. Otherwise it may compute the same in code that is not recorded.
bool IsLeftOut(const Comparison& c, int32_t u, int32_t row) {
  if (row < 0) return false;
  const bool inserted = c.pairs[u].target >= 0;
  const int32_t index = inserted ? c.rows[row].golden : c.rows[row].target;
  if (index < 0) return false;
  const Leaf& passed = (inserted ? c.golden : c.target).leaves[index];
  const auto leaves = (inserted ? c.target : c.golden).LeavesOf(RecordOf(c, u));
  return TellsTensorsApart(passed) &&
         std::any_of(leaves.begin(), leaves.end(), [&](const Leaf& leaf) {
           return leaf.slot != Slot::kOutput && SameNumbers(leaf, passed);
         });
}

// A call of the same operation that only the other run makes; -1: there is none.
int32_t MadeElsewhere(const Comparison& c, int32_t u) {
  const bool inserted = c.pairs[u].target >= 0;
  const Record& record = RecordOf(c, u);
  for (int32_t p = 0; p < static_cast<int32_t>(c.pairs.size()); ++p) {
    if (c.pairs[p].matched() || (c.pairs[p].target >= 0) == inserted) continue;
    const Record& other = RecordOf(c, p);
    if (other.api == record.api && other.direction == record.direction) return p;
  }
  return -1;
}

std::string AdviceOnUnmatched(const Comparison& c, int32_t u, int32_t row) {
  const bool inserted = c.pairs[u].target >= 0;
  const std::string_view with = inserted ? "target" : "golden",
                         without = inserted ? "golden" : "target";
  const int32_t forward = u < static_cast<int32_t>(c.forward_of.size()) ? c.forward_of[u] : -1;
  if (forward >= 0 && c.pairs[forward].matched()) {
    return fmt::format(
        "both runs call {}, and no gradient comes back to it in the {}: there its result is not "
        "used, or it is detached",
        EntryName(c, forward), without);
  }
  if (!IsLeftOut(c, u, row)) {
    return fmt::format(
        "the {} records no call in its place: it does not have the operation of the {}, or "
        "computes "
        "it in code that is not recorded",
        without, with);
  }
  if (const int32_t elsewhere = MadeElsewhere(c, u); elsewhere >= 0)
    return fmt::format("the {} makes this call at another place of the step: {}", without,
                       EntryName(c, elsewhere));
  return inserted ? "the target runs an operation that the golden does not have"
                  : "the target skips an operation that the golden runs";
}

}  // namespace

FirstDivergence ExplainUnmatched(const Comparison& c, int32_t u, int32_t p, int32_t row, Tie tie) {
  const bool inserted = c.pairs[u].target >= 0;
  const EarlierCalls before = CountEarlierCalls(c, u);
  FirstDivergence f =
      StartIntroduced(c, u, tie == Tie::kPlace ? kNeighbourConfidence : kFlowConfidence, before);
  f.leads_to_it = tie != Tie::kPlace;
  f.why = fmt::format("{}; this call exists only in the {}; ", DescribeEarlierCalls(c, before),
                      inserted ? "target" : "golden");
  switch (tie) {
    case Tie::kOutput:
      f.why += fmt::format("its output is an input of {}, where {}", EntryName(c, p),
                           DescribeRow(c, row));
      break;
    case Tie::kLeads:
      f.why += fmt::format("what is made of its output is an input of {}, where {}",
                           EntryName(c, p), DescribeRow(c, row));
      break;
    case Tie::kGradient:
      f.why +=
          fmt::format("through it a gradient comes that is a part of the input of {}, where {}",
                      EntryName(c, p), DescribeRow(c, row));
      break;
    case Tie::kPlace:
      f.why +=
          fmt::format("right after it {} is the first call with a wrong number", EntryName(c, p));
      break;
  }
  f.advice = AdviceOnUnmatched(c, u, row);
  return f;
}

}  // namespace msprobe::compare
