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
Message DescribeUnwritten(const Comparison& c, int32_t row) {
  const Message label = LeafLabel(c, row);
  const std::string_view allocation = c.target.AllocationOf(c.rows[row].target);
  if (allocation.empty())
    return "it reads memory that nobody wrote: {}, a copy of such memory"_t(label);
  return "it reads memory that nobody wrote: {}, allocated by {}"_t(label, allocation);
}

// What lowers the precision of a matmul of float32 depends on the device.
Message PrecisionAdvice(const Comparison& c) {
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
  if (cpus) {
    return "an accumulation in bfloat16 (oneDNN) causes errors of this size in float32: check the "
           "matmul precision setting, torch.get_float32_matmul_precision()"_t;
  }
  return "{} causes errors of this size in float32: check the matmul precision setting"_t(
      any("npu") ? "HF32 or a 16-bit accumulation"_t : "TF32 or a 16-bit accumulation"_t);
}

Message Advice(const Comparison& c, int32_t p, const CallSummary& call) {
  const Record& r = RecordOf(c, p);
  const Measure* worst = call.out.worst_row >= 0 ? &c.measures[call.out.worst_row] : nullptr;
  if (!DescribeMode(c, p).empty())
    return "call model.train() or model.eval() at the same place in both programs"_t;
  if (call.arguments.differs) {
    return IsOptimizerCall(r.api)
               ? "compare how the two runs construct their optimizers and schedules"_t
               : "compare the two call sites and the configuration they read"_t;
  }
  if (RandomCause cause = CauseOfOtherDraw(c, p); !cause.advice.empty()) return cause.advice;
  if (worst != nullptr && worst->reason == Reason::kShapeDiffers)
    return "the two runs do not compute on the same shapes"_t;
  if (call.in.noise && AmplifiesRounding(OperationsOf(c), r.api)) {
    return "this kind of operation enlarges the rounding of its inputs: check whether the "
           "difference matters downstream"_t;
  }
  if (worst != nullptr && std::isfinite(worst->severity) && IsContraction(OperationsOf(c), r.api) &&
      worst->severity > 256 && worst->severity < 0x1p15 && IsFloat32(c, call.out.worst_row)) {
    return PrecisionAdvice(c);
  }
  if (Message other = DescribeFirstDTypes(c, p); !other.empty())
    return "{}: compute in the same dtype"_t(std::move(other));
  if (UnmatchedArgument(c, p) >= 0)
    return "compare the two call sites: the other side takes the default"_t;
  return {};
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

// What is to be said of the call of a module besides: whether the error is in a call inside it.
void ExplainModule(const Comparison& c, int32_t p, std::vector<Message>* why, FirstDivergence* f) {
  if (const std::string weight = OtherWeightInModule(c, p); !weight.empty()) {
    why->push_back("{} differs already in the weights file"_t(weight));
    f->advice = AdviceOnWeights(c);
    return;
  }
  const Message compiled = DescribeCompiledModule(c, p);
  why->push_back(compiled);
  const Children children = ChildrenOf(c, p);
  if (children.first_wrong < 0 && !compiled.empty()) {
    f->advice = AdviceToRunEagerly();
  } else if (children.first_wrong >= 0) {
    f->confidence *= kContainerConfidence;
    f->advice = "look inside this module: {} is the first call in it that is wrong"_t(
        EntryName(c, children.first_wrong));
  } else if (children.count > 0) {
    f->confidence *= kContainerConfidence;
    f->advice =
        "none of the {} recorded calls directly inside this module shows the error: it enters in "
        "an operation that was not recorded, or in its own code"_t(children.count);
  } else if (f->advice.empty() && c.target.level == Level::kL0) {
    why->push_back(DescribeCompiledCell(c, p));
    f->advice = AdviceToLookInside(c, p);
  }
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
  const Message made_otherwise = DescribeHyperParameters(c, p);
  Message earlier = DescribeEarlierCalls(c, before);
  if (argument_only) {
    f.why = Message::Joined({made_otherwise, std::move(earlier), DescribeInputs(c, p, call),
                             call.out.unknown ? "its result could not be judged"_t
                             : call.out.noise ? "its result is still within rounding"_t
                                              : "its result is equal"_t},
                            "; ");
    f.advice = Advice(c, p, call);
    return f;
  }
  if (const int32_t unwritten = UnwrittenInput(c, p); unwritten >= 0) {
    f.why = Message::Joined(
        {std::move(earlier), DescribeUnwritten(c, unwritten), DescribeRow(c, f.row)}, "; ");
    f.advice = "write the whole buffer before it is read, or begin with zeros in place of empty"_t;
    return f;
  }
  std::vector<Message> why = {
      made_otherwise,        std::move(earlier),    DescribeInputs(c, p, call),
      DescribeRow(c, f.row), DescribeUpdates(c, p), CauseOfOtherDraw(c, p).why,
      DescribePolicies(c, p)};
  f.advice = Advice(c, p, call);
  if (RecordOf(c, p).is_module) ExplainModule(c, p, &why, &f);
  f.why = Message::Joined(std::move(why), "; ");
  return f;
}

namespace {

// Whether the run without the call `u` takes in the row `row` what the call takes in the other run:
// it has left the call out. Otherwise it may compute the same in code that is not recorded.
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

Message AdviceOnUnmatched(const Comparison& c, int32_t u, int32_t row) {
  const bool inserted = c.pairs[u].target >= 0;
  const Message with = inserted ? "target"_t : "golden"_t,
                without = inserted ? "golden"_t : "target"_t;
  const int32_t forward = u < static_cast<int32_t>(c.forward_of.size()) ? c.forward_of[u] : -1;
  if (forward >= 0 && c.pairs[forward].matched()) {
    return "both runs call {}, and no gradient comes back to it in the {}: there its result is not "
           "used, or it is detached"_t(EntryName(c, forward), without);
  }
  if (!IsLeftOut(c, u, row)) {
    return "the {} records no call in its place: it does not have the operation of the {}, or "
           "computes "
           "it in code that is not recorded"_t(without, with);
  }
  if (const int32_t elsewhere = MadeElsewhere(c, u); elsewhere >= 0)
    return "the {} makes this call at another place of the step: {}"_t(without,
                                                                       EntryName(c, elsewhere));
  return inserted ? "the target runs an operation that the golden does not have"_t
                  : "the target skips an operation that the golden runs"_t;
}

}  // namespace

FirstDivergence ExplainUnmatched(const Comparison& c, int32_t u, int32_t p, int32_t row, Tie tie) {
  const bool inserted = c.pairs[u].target >= 0;
  const EarlierCalls before = CountEarlierCalls(c, u);
  FirstDivergence f =
      StartIntroduced(c, u, tie == Tie::kPlace ? kNeighbourConfidence : kFlowConfidence, before);
  f.leads_to_it = tie != Tie::kPlace;
  Message effect;
  switch (tie) {
    case Tie::kOutput:
      effect = "its output is an input of {}, where {}"_t(EntryName(c, p), DescribeRow(c, row));
      break;
    case Tie::kLeads:
      effect = "what is made of its output is an input of {}, where {}"_t(EntryName(c, p),
                                                                          DescribeRow(c, row));
      break;
    case Tie::kPlace:
      effect = "right after it {} is the first call with a wrong number"_t(EntryName(c, p));
      break;
  }
  f.why = Message::Joined(
      {DescribeEarlierCalls(c, before),
       inserted ? "this call exists only in the target"_t : "this call exists only in the golden"_t,
       std::move(effect)},
      "; ");
  f.advice = AdviceOnUnmatched(c, u, row);
  return f;
}

}  // namespace msprobe::compare
