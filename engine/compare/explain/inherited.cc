// ExplainInherited: where a wrong input comes from that no recorded call before it explains.
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "engine/base/messages/message.h"
#include "engine/compare/explain/classify.h"
#include "engine/compare/explain/dataflow.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/explain.h"
#include "engine/compare/explain/explanation.h"
#include "engine/compare/explain/optimizer_steps.h"
#include "engine/compare/explain/source_places.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/compiled_code.h"
#include "engine/compare/model/other_weights.h"
#include "engine/compare/model/record_keys.h"
#include "engine/dump/read/step_in_path.h"
#include "engine/model/names.h"

namespace msprobe::compare {
namespace {

constexpr double kBeforeTheRunConfidence = 0.95;  // the error existed before the first call
constexpr double kUnrecordedConfidence = 0.7;  // the place is known, its operation was not recorded

// An input of a call that is wrong in the target, and its partner in the golden.
struct WrongInput {
  int32_t pair, row;
  const Leaf &target, &golden;
};

// Where a wrong input comes from. Each function below returns one possible origin, or nullopt.
struct Origin {
  double confidence;
  Message why, advice;
  const CompiledCode* code =
      nullptr;  // in which the value was made, away from the call; null: none
};

// The innermost call of a module around `pair` that introduces the error: its inputs agree, so the
// error begins inside it; -1: there is none.
int32_t EnclosingIntroducer(const Comparison& c, int32_t p) {
  const int32_t size = static_cast<int32_t>(c.pairs.size());
  std::string_view at = RecordOf(c, p).parent;
  for (int32_t q = p + 1, depth = 0; q < size && depth < 64 && !at.empty(); ++q) {
    if (RecordOf(c, q).name != at) continue;
    if (c.classes[q] == CallClass::kIntroduced) return q;
    at = RecordOf(c, q).parent;
    ++depth;
  }
  return -1;
}

// The call of the module in which the call `pair` runs, if both sides recorded it; -1.
int32_t CallAround(const Comparison& c, int32_t p) {
  const Record& inside = RecordOf(c, p);
  const int32_t size = static_cast<int32_t>(c.pairs.size());
  for (int32_t q = p + 1; q < size && !inside.parent.empty(); ++q) {
    const Record& around = RecordOf(c, q);
    if (around.name == inside.parent)
      return c.pairs[q].matched() && around.direction == inside.direction ? q : -1;
  }
  return -1;
}

// The first row that differs among the tensors that go into the call; -1: there is none.
int32_t FirstWrongInput(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& r = c.rows[i];
    if (r.target < 0 || r.golden < 0) continue;
    const Leaf& leaf = c.target.leaves[r.target];
    const bool goes_in =
        leaf.slot == Slot::kInput || leaf.slot == Slot::kKwarg || leaf.slot == Slot::kParameter;
    const int32_t at = static_cast<int32_t>(i);
    if (goes_in && !IsPlain(c, at) && c.measures[i].verdict == RowVerdict::kDiffers) return at;
  }
  return -1;
}

// "parameters.weight of Module.fc.Linear.forward.0", when the module around the call `p` recorded
// `value` as one of its parameters; otherwise "".
Message ParameterName(const Comparison& c, int32_t p, const Leaf& value) {
  const std::string_view parent = RecordOf(c, p).parent;
  const int32_t size = static_cast<int32_t>(c.pairs.size());
  for (int32_t q = p + 1; q < size && !parent.empty(); ++q) {
    if (RecordOf(c, q).name != parent || c.pairs[q].target < 0) continue;
    const RecordPair& pair = c.pairs[q];
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const int32_t leaf = c.rows[i].target;
      if (leaf >= 0 && c.target.leaves[leaf].slot == Slot::kParameter &&
          SameNumbers(c.target.leaves[leaf], value)) {
        return "{} of {}"_t(LeafLabel(c, static_cast<int32_t>(i)), parent);
      }
    }
    return {};
  }
  return {};
}

// A parameter or buffer that the weights files of both runs show to differ: the input itself, or
// one of the module around the call, from which the input may have been made.
std::optional<Origin> AnOtherWeight(const Comparison& c, const WrongInput& in, bool is_made) {
  for (const OtherWeight& weight : OtherWeights(c)) {
    if (weight.target != in.target.fingerprint || weight.golden != in.golden.fingerprint) continue;
    const bool parameter = in.target.slot == Slot::kParameter || in.target.requires_grad == "True";
    return Origin{kBeforeTheRunConfidence,
                  (parameter ? "parameter {} differs already in the weights file, so the error "
                               "begins before the first recorded operation"_t
                             : "buffer {} differs already in the weights file, so the error "
                               "begins before the first recorded operation"_t)(weight.name),
                  AdviceOnWeights(c)};
  }
  const std::string near = is_made ? "" : OtherWeightInModule(c, in.pair);
  if (near.empty()) return std::nullopt;
  return Origin{kUnrecordedConfidence,
                "{} differs already in the weights file, and no recorded operation made "
                "this value"_t(near),
                AdviceOnWeights(c)};
}

std::optional<Origin> AParameter(const Comparison& c, const WrongInput& in) {
  const bool recorded_as_one = in.target.slot == Slot::kParameter;
  const Message name = recorded_as_one ? Message() : ParameterName(c, in.pair, in.target);
  if (!recorded_as_one && name.empty()) return std::nullopt;
  const int32_t step = dump::StepInPath(c.target.path);
  return Origin{
      kBeforeTheRunConfidence,
      Message::Joined(
          {recorded_as_one ? "a parameter differs before its first use"_t
                           : "it is {}, which differs before its first use"_t(name),
           step > 0 ? "so the error begins before the first recorded operation of step {}"_t(step)
                    : "so the error begins before the first recorded operation"_t},
          ", "),
      step > 0
          ? "compare the steps before, with the inputs and outputs of their optimizer; then the "
            "checkpoints"_t
          : AdviceOnWeights(c)};
}

// The output of a call that made the value, in the target and in the golden; null: not recorded.
struct Makers {
  const Leaf *target, *golden;
};

// The module in which the other run made a value, in a call that stands for compiled code of this
// run.
std::string_view WhereCompiled(const Comparison& c, const Leaf* of_other, bool target) {
  for (int32_t p = 0; of_other != nullptr && p < static_cast<int32_t>(c.pairs.size()); ++p) {
    const int32_t maker = target ? c.pairs[p].golden : c.pairs[p].target;
    if (!c.IsCompiled(p) || maker != static_cast<int32_t>(of_other->record)) continue;
    const auto room = [](const Record& r) {
      return r.parent.empty() ? r.module.view() : WithoutCall(r.parent);
    };
    const std::string_view own = room(RecordOf(c, p));
    return own.empty() && c.forward_of[p] >= 0 ? room(RecordOf(c, c.forward_of[p])) : own;
  }
  return "";
}

// "compiled code (torch.compile) of the target in mlp (Mlp), entered at train.py:3"
Message DescribeCode(const CompiledCode& code, bool target) {
  const std::string module = ModuleForPeople(code.module);
  return Message::Joined({module.empty() ? "compiled code (torch.compile) of the {}"_t(
                                               target ? "target"_t : "golden"_t)
                                         : "compiled code (torch.compile) of the {} in {}"_t(
                                               target ? "target"_t : "golden"_t, module),
                          code.line.empty() ? Message() : "entered at {}"_t(code.line)},
                         ", ");
}

// Whether compiled code made the value: no call of the run made it, and the module around the call
// enters such code, or the other run made it in a call that stands for such code.
std::optional<Origin> FromCompiledCode(const Comparison& c, const WrongInput& in,
                                       const Makers& made) {
  for (const bool target : {true, false}) {
    const Dump& dump = target ? c.target : c.golden;
    const int32_t index = target ? c.pairs[in.pair].target : c.pairs[in.pair].golden;
    if (dump.compiled.empty() || index < 0 || (target ? made.target : made.golden) != nullptr)
      continue;
    const Record& record = dump.records[index];
    const std::string_view around =
        record.parent.empty() ? record.module.view() : WithoutCall(record.parent);
    const CompiledCode* code = CompiledCodeAround(dump, around);
    const bool here = code != nullptr;
    if (!here)
      if (const auto room = WhereCompiled(c, target ? made.golden : made.target, target);
          !room.empty())
        code = CompiledCodeAround(dump, room);
    if (code == nullptr) continue;
    return Origin{
        kUnrecordedConfidence,
        "it comes out of {}, in which no operation is recorded"_t(DescribeCode(*code, target)),
        AdviceToRunEagerly(), here ? nullptr : code};
  }
  return std::nullopt;
}

std::optional<Origin> InsideAModule(const Comparison& c, int32_t p) {
  const int32_t module = EnclosingIntroducer(c, p);
  if (module < 0) return std::nullopt;
  return Origin{
      kUnrecordedConfidence,
      "it was still right when {} began, so the error enters inside it "
      "before this call, in an operation that was not recorded"_t(RecordOf(c, module).name),
      "look at the code between this call and the one before it"_t};
}

// Only modules were recorded, and a wrong value was made inside `module`, whose inputs agree,
// before the call of `in`: the module's own code is named, and the line of it that makes the call.
FirstDivergence ExplainOwnCode(const Comparison& c, int32_t module, const WrongInput& in) {
  const CallSummary call = SummarizeCall(c, module);
  FirstDivergence f = StartExplanation(c, module, call.out.worst_row);
  f.call_class = CallClass::kIntroduced;
  if (CodePlace inside = CodePlaceOf(c, in.pair); !inside.line.empty()) {
    f.source_line = std::move(inside.line), f.caller_line = std::move(inside.caller);
    f.golden_line = std::move(inside.golden);
  }
  const EarlierCalls before = CountEarlierCalls(c, in.pair);
  f.confidence = kUnrecordedConfidence * before.JudgedFactor() * c.pairs[module].confidence;
  f.why = Message::Joined({DescribeEarlierCalls(c, before), DescribeInputs(c, module, call),
                           "the error enters in its own code before it calls {}, where {}"_t(
                               EntryName(c, in.pair), DescribeRow(c, in.row))},
                          "; ");
  f.advice = AdviceToLookInside(c, module);
  return f;
}

// The optimizer `p` takes a wrong gradient, since one run has a weight of its own where the other
// shares one.
FirstDivergence ExplainOwnWeight(const Comparison& c, const OwnWeight& own, int32_t p,
                                 int32_t row) {
  const bool known = own.user >= 0;
  FirstDivergence f = StartExplanation(c, known ? own.user : p, known ? -1 : row);
  const EarlierCalls before = CountEarlierCalls(c, p);
  f.call_class = known ? CallClass::kIntroduced : CallClass::kInherited;
  f.confidence = kFlowConfidence * before.JudgedFactor() * c.pairs[p].confidence;
  f.why = Message::Joined(
      {DescribeEarlierCalls(c, before),
       (own.in_target
            ? "{} is a weight of its own in the target, and the golden uses {} there: at {}, {}"_t
            : "{} is a weight of its own in the golden, and the target uses {} there: at {}, {}"_t)(
           own.name, own.shared, EntryName(c, p), DescribeRow(c, row))},
      "; ");
  f.advice = "share the weight in both programs, or in neither (tied weights)"_t;
  return f;
}

// What goes into the calls of another step is other data, made with other weights.
bool AreOfOtherSteps(const Comparison& c) {
  const int32_t target = dump::StepInPath(c.target.path), golden = dump::StepInPath(c.golden.path);
  return target >= 0 && golden >= 0 && target != golden;
}

Origin OutsideTheRecording(const Comparison& c, const WrongInput& in, const Makers& made,
                           const EarlierCalls& before) {
  if (const std::vector<OtherWeight> weights = OtherWeights(c);
      !weights.empty() && made.target == nullptr && made.golden == nullptr) {
    return {kUnrecordedConfidence,
            "no recorded operation made the value, and {} differs already in the "
            "weights file"_t(weights.front().name),
            AdviceOnWeights(c)};
  }
  if (before.total() == 0) {
    return {kBeforeTheRunConfidence, "the error begins before the first recorded operation"_t,
            "compare the input data and their order, the seed, and the weights"_t};
  }
  if (IsGradientOfOptimizer(RecordOf(c, in.pair), in.target)) {
    return {kUnrecordedConfidence,
            "no recorded operation made the gradient: something changed it after the backward "
            "pass, or a backward call that is not recorded made it"_t,
            "compare what the two programs do with .grad between the backward pass and this call: "
            "the exchange between ranks (no_sync), clipping, scaling"_t};
  }
  // A module lists its weights as parameters. Those of the files have the same bits.
  const bool weight = in.target.requires_grad == "True" && in.golden.requires_grad == "True" &&
                      made.target == nullptr && made.golden == nullptr &&
                      !RecordOf(c, in.pair).is_module &&
                      (c.target.weights.empty() || c.golden.weights.empty());
  if (!weight && (c.target.level == Level::kL0 || c.golden.level == Level::kL0)) {
    return {kUnrecordedConfidence,
            "no module made the value, but an operation that level L0 does not record, or it comes "
            "from outside"_t,
            AdviceToLookBefore(c, in.pair)};
  }
  return {weight ? 0.85 : kUnrecordedConfidence,
          "no recorded operation made the value: it comes from outside the recording, or an "
          "operation that is not recorded made it, such as indexing"_t,
          weight ? "it requires a gradient and nothing recorded made it: probably a weight; "
                   "compare the checkpoints"_t
                 : "compare the data that enter here, and the code between this call and the one "
                   "before it"_t};
}

}  // namespace

FirstDivergence ExplainInherited(const Comparison& c, int32_t p) {
  int32_t row = FirstWrongInput(c, p);
  // No tensor that goes in differs: the call is inherited because its forward call diverged.
  if (row < 0) return ExplainIntroduced(c, p);
  if (const OwnWeight own = OwnWeightAt(c, p); !own.name.empty())
    return ExplainOwnWeight(c, own, p, row);

  const WrongInput in{p, row, c.target.leaves[c.rows[row].target],
                      c.golden.leaves[c.rows[row].golden]};
  const EarlierCalls before = CountEarlierCalls(c, p);
  const RecordPair& pair = c.pairs[p];
  const Makers made{FindOutput(c.target, in.target, pair.target),
                    FindOutput(c.golden, in.golden, pair.golden)};
  std::optional<Origin> origin =
      AnOtherWeight(c, in, made.target != nullptr || made.golden != nullptr);
  if (!origin) origin = AParameter(c, in);
  if (!origin) origin = FromCompiledCode(c, in, made);
  const bool modules_only = !HasOperations(c.target) && !HasOperations(c.golden);
  if (const int32_t module = CallAround(c, p); !origin && modules_only && module >= 0)
    return ExplainOwnCode(c, module, in);
  if (!origin) origin = InsideAModule(c, p);
  if (!origin) origin = OutsideTheRecording(c, in, made, before);
  FirstDivergence f = StartExplanation(c, p, row);
  f.confidence = origin->confidence * before.JudgedFactor() * pair.confidence;
  f.why = Message::Joined(
      {DescribeEarlierCalls(c, before), Message::Joined({DescribeRow(c, row), origin->why}, ": ")},
      "; ");
  f.advice = AreOfOtherSteps(c) ? "compare the same step of both runs: between two steps the data "
                                  "are others, and an optimizer moves the weights"_t
                                : std::move(origin->advice);
  if (origin->code != nullptr) {
    f.module = ModuleForPeople(origin->code->module);
    f.source_line = origin->code->line;
    f.caller_line.clear(), f.golden_line.clear();
  }
  return f;
}

}  // namespace msprobe::compare
