#include "engine/compare/explain/explain.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/compare/explain/classify.h"
#include "engine/compare/explain/dataflow.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/optimizer_steps.h"
#include "engine/compare/explain/suspects.h"
#include "engine/compare/explain/unmatched_calls.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/module_modes.h"
#include "engine/compare/model/other_weights.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"
#include "engine/model/names.h"

namespace msprobe::compare {
namespace {

// The call that made a wrong value was found by equal numbers (dataflow.h).
constexpr double kFlowConfidence = 0.9;
constexpr double kDriftConfidence = 0.4;
constexpr double kNeighbourConfidence = 0.5;  // a call without a partner near the first wrong input
constexpr double kContainerConfidence = 0.8;  // a module whose recorded children show no error

bool IsFloat32(const Comparison& c, int32_t row) {
  const Row& r = c.rows[row];
  return r.golden >= 0 && c.golden.leaves[r.golden].dtype.dtype() == DType::kFloat32;
}

std::string DescribeInputs(const Comparison& c, int32_t p, const CallSummary& call) {
  std::string inputs;
  if (!call.in.any() && !call.arguments.any()) {
    inputs = "its inputs were not recorded";
  } else if (call.in.unknown) {
    inputs = "not all of its inputs could be judged";
  } else if (call.in.noise) {
    inputs = fmt::format("its inputs agree within rounding (worst {} roundings)",
                         ShortNumber(call.in.severity));
  } else {
    inputs = fmt::format("its inputs are {}", EqualWord(c));
  }
  constexpr size_t kNamed = 3;
  const std::vector<int32_t> arguments = DifferingArguments(c, p);
  for (size_t i = 0; i < std::min(arguments.size(), kNamed); ++i) {
    inputs += i == 0 ? ", but the call itself was made differently: " : "; ";
    inputs += DescribeRow(c, arguments[i]);
  }
  if (arguments.size() > kNamed) {
    const size_t others = arguments.size() - kNamed;
    inputs += fmt::format("; {} other argument{}", others, others == 1 ? " differs" : "s differ");
  }
  if (const std::string mode = DescribeMode(c, p); !mode.empty())
    inputs += (arguments.empty() ? ", but " : "; ") + mode;
  return inputs;
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
  if (DrawsRandomNumbers(r.api)) {
    return "this operation draws random numbers: fix the seed on both sides before "
           "looking further";
  }
  if (worst != nullptr && worst->reason == Reason::kShapeDiffers)
    return "the two runs do not compute on the same shapes";
  if (call.in.noise && AmplifiesRounding(r.api)) {
    return "this kind of operation enlarges the rounding of its inputs: check whether the "
           "difference matters downstream";
  }
  if (worst != nullptr && std::isfinite(worst->severity) && IsContraction(r.api) &&
      worst->severity > 256 && worst->severity < 0x1p15 && IsFloat32(c, call.out.worst_row)) {
    return PrecisionAdvice(c);
  }
  if (UnmatchedArgument(c, p) >= 0)
    return "compare the two call sites: the other side takes the default";
  return "";
}

// An explanation with place and source line; the caller adds confidence and words.
FirstDivergence StartExplanation(const Comparison& c, int32_t p, int32_t row) {
  FirstDivergence f;
  f.pair = p;
  f.row = row;
  f.call_class = c.classes[p];
  f.module = ModuleAround(c, p);
  dump::SourcePlace place = SourcePlaceOf(c, p);
  f.source_line = std::move(place.line);
  f.caller_line = std::move(place.caller);
  return f;
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
    if (RecordOf(c, q).parent != name) continue;
    ++children.count;
    const CallSummary call = SummarizeCall(c, q);
    const bool wrong = c.classes[q] == CallClass::kIntroduced ||
                       c.classes[q] == CallClass::kInherited || call.in.differs ||
                       call.out.differs || call.arguments.differs;
    if (wrong) children.first_wrong = q;
  }
  return children;
}

// A parameter or buffer of the module in which the call `p` runs, or of a module in it, with which
// the runs did not begin alike: "layers.0.inv_freq"; "" when there is none.
std::string OtherWeightInModule(const Comparison& c, int32_t p) {
  const Record& record = RecordOf(c, p);
  // Module.layers.0.Block.forward.0 is the module layers.0.
  std::string_view path = record.is_module ? record.api.view() : WithoutCall(record.parent);
  if (!path.starts_with("Module.")) return "";
  path.remove_prefix(7);
  const size_t dot = path.rfind('.');
  std::string room;
  const std::string module(dot == path.npos ? "" : WithoutWrappers(path.substr(0, dot), &room));
  for (const OtherWeight& weight : OtherWeights(c)) {
    if (module.empty() || weight.name.starts_with(module + ".")) return weight.name;
  }
  return "";
}

constexpr std::string_view kCompareCheckpoints =
    "compare the checkpoints, the initialisation and its seed";

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
  f.advice = Advice(c, p, call);
  if (!RecordOf(c, p).is_module) return f;
  if (const std::string weight = OtherWeightInModule(c, p); !weight.empty()) {
    f.why += fmt::format("; {} differs already in the weights file", weight);
    f.advice = kCompareCheckpoints;
    return f;
  }
  const Children children = ChildrenOf(c, p);
  if (children.first_wrong >= 0) {
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
    f.advice =
        "only modules were recorded; collect this one at level mix to see the operation inside";
  }
  return f;
}

FirstDivergence ExplainUnmatched(const Comparison& c, int32_t u, int32_t p, int32_t row, Tie tie) {
  FirstDivergence f = StartExplanation(c, u, -1);
  const bool inserted = c.pairs[u].target >= 0;
  const EarlierCalls before = CountEarlierCalls(c, u);
  f.call_class = CallClass::kIntroduced;
  f.confidence =
      (tie == Tie::kOutput ? kFlowConfidence : kNeighbourConfidence) * before.JudgedFactor();
  f.why = fmt::format("{}; this call exists only in the {}; ", DescribeEarlierCalls(c, before),
                      inserted ? "target" : "golden");
  f.why +=
      tie == Tie::kOutput
          ? fmt::format("its output is an input of {}, where {}", EntryName(c, p),
                        DescribeRow(c, row))
          : fmt::format("right after it {} is the first call with a wrong number", EntryName(c, p));
  f.advice = inserted ? "the target runs an operation that the golden does not have"
                      : "the target skips an operation that the golden runs";
  return f;
}

FirstDivergence ExplainDrift(const Comparison& c, int32_t q, int32_t p) {
  const CallSummary call = SummarizeCall(c, q), last = SummarizeCall(c, p);
  // The place is the first call that is wrong: before it, everything is within rounding.
  const EarlierCalls before = CountEarlierCalls(c, p);
  FirstDivergence f = StartExplanation(c, p, last.out.worst_row);
  f.confidence = std::min(kDriftConfidence, std::max(0.1, ConfidenceOf(c, p, last, before)));
  f.why = fmt::format(
      "{}; rounding errors grow from call to call and become larger than noise here ({} roundings, "
      "from {} in its inputs)",
      DescribeEarlierCalls(c, before), ShortNumber(last.out.severity),
      ShortNumber(last.in.severity));
  if (q == p) {
    f.why += "; no earlier call makes a larger jump";
  } else {
    const std::string line = SourceLineOf(c, q);
    f.why += fmt::format("; the largest jump is at {}: from {} to {} roundings{}", EntryName(c, q),
                         ShortNumber(call.in.severity), ShortNumber(call.out.severity),
                         line.empty() ? "" : fmt::format(" ({})", line));
  }
  f.advice = c.mode == Mode::kTensor
                 ? "gradual growth has no single cause: compare against a float64 run"
                 : "gradual growth has no single cause: record task tensor and compare again, or "
                   "compare against a float64 run";
  return f;
}

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
  std::string why, advice;
};

// The first row that differs among the tensors that go into the call; -1: there is none.
int32_t FirstWrongInput(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& r = c.rows[i];
    if (r.target < 0 || r.golden < 0) continue;
    const Leaf& leaf = c.target.leaves[r.target];
    const bool goes_in =
        leaf.slot == Slot::kInput || leaf.slot == Slot::kKwarg || leaf.slot == Slot::kParameter;
    if (goes_in && leaf.kind != LeafKind::kScalar &&
        c.measures[i].verdict == RowVerdict::kDiffers) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

// "parameters.weight of Module.fc.Linear.forward.0", when the module around the call `p` recorded
// `value` as one of its parameters; otherwise "".
std::string ParameterName(const Comparison& c, int32_t p, const Leaf& value) {
  const std::string_view parent = RecordOf(c, p).parent;
  const int32_t size = static_cast<int32_t>(c.pairs.size());
  for (int32_t q = p + 1; q < size && !parent.empty(); ++q) {
    if (RecordOf(c, q).name != parent || c.pairs[q].target < 0) continue;
    const RecordPair& pair = c.pairs[q];
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const int32_t leaf = c.rows[i].target;
      if (leaf >= 0 && c.target.leaves[leaf].slot == Slot::kParameter &&
          SameNumbers(c.target.leaves[leaf], value)) {
        return fmt::format("{} of {}", LeafLabel(c, static_cast<int32_t>(i)), parent);
      }
    }
    return "";
  }
  return "";
}

bool ArePartners(const Comparison& c, int32_t target, int32_t golden) {
  return std::any_of(c.pairs.begin(), c.pairs.end(),
                     [&](const RecordPair& p) { return p.target == target && p.golden == golden; });
}

// The number of the step in a path: 3 for ".../step3/rank0/dump.json"; 0 when there is none.
int StepOf(std::string_view path) {
  const size_t at = path.rfind("/step");
  if (at == path.npos) return 0;
  const std::string_view digits = path.substr(at + 5, path.find('/', at + 5) - at - 5);
  int step = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return end.ec == std::errc() && end.ptr == digits.data() + digits.size() ? step : 0;
}

// A parameter or buffer that the weights files of both runs show to differ: the input itself, or one
// of the module around the call, from which the input may have been made.
std::optional<Origin> AnOtherWeight(const Comparison& c, const WrongInput& in, bool is_made) {
  for (const OtherWeight& weight : OtherWeights(c)) {
    if (weight.target != in.target.fingerprint || weight.golden != in.golden.fingerprint) continue;
    const bool parameter = in.target.slot == Slot::kParameter || in.target.requires_grad == "True";
    return Origin{kBeforeTheRunConfidence,
                  fmt::format("{} {} differs already in the weights file, so the error begins "
                              "before the first recorded operation",
                              parameter ? "parameter" : "buffer", weight.name),
                  std::string(kCompareCheckpoints)};
  }
  const std::string near = is_made ? "" : OtherWeightInModule(c, in.pair);
  if (near.empty()) return std::nullopt;
  return Origin{
      kUnrecordedConfidence,
      fmt::format("{} differs already in the weights file, and no recorded operation made "
                  "this value",
                  near),
      std::string(kCompareCheckpoints)};
}

std::optional<Origin> AParameter(const Comparison& c, const WrongInput& in) {
  const bool recorded_as_one = in.target.slot == Slot::kParameter;
  const std::string name = recorded_as_one ? "" : ParameterName(c, in.pair, in.target);
  if (!recorded_as_one && name.empty()) return std::nullopt;
  const int step = StepOf(c.target.path);
  return Origin{
      kBeforeTheRunConfidence,
      fmt::format("{} differs before its first use, so the error begins before the first recorded "
                  "operation{}",
                  recorded_as_one ? "a parameter" : fmt::format("it is {}, which", name),
                  step > 0 ? fmt::format(" of step {}", step) : ""),
      step > 0
          ? "compare the steps before, with the inputs and outputs of their optimizer; then the "
            "checkpoints"
          : std::string(kCompareCheckpoints)};
}

// The output of a call that made the value, in the target and in the golden; null: not recorded.
struct Makers {
  const Leaf *target, *golden;
};

std::optional<Origin> AnotherOutput(const Comparison& c, const Makers& made) {
  if (made.target == nullptr || made.golden == nullptr) return std::nullopt;
  const Record &target = c.target.records[made.target->record],
               &golden = c.golden.records[made.golden->record];
  std::string flow;
  if (!ArePartners(c, made.target->record, made.golden->record)) {
    flow = fmt::format("the target passes the output of {}, the golden that of {}", target.name,
                       golden.name);
  } else if (LeafSuffix(*made.target, target) != LeafSuffix(*made.golden, golden)) {
    flow = fmt::format("the target passes {}, the golden {}", made.target->name.view(),
                       made.golden->name.view());
  } else {
    return std::nullopt;
  }
  return Origin{kFlowConfidence, std::move(flow),
                "the two programs are wired differently here: compare the source lines"};
}

std::optional<Origin> InsideAModule(const Comparison& c, int32_t p) {
  const int32_t module = EnclosingIntroducer(c, p);
  if (module < 0) return std::nullopt;
  return Origin{kUnrecordedConfidence,
                fmt::format("it was still right when {} began, so the error enters inside it "
                            "before this call, in an operation that was not recorded",
                            RecordOf(c, module).name),
                "look at the code between this call and the one before it"};
}

// The call of the module in which the call `p` runs; -1: none is recorded on both sides.
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

// The outermost call that had a wrong input before `p` began: a module is recorded behind the calls
// inside it, but its inputs were there before them.
int32_t OutermostWithWrongInput(const Comparison& c, int32_t p) {
  for (int32_t around = CallAround(c, p); around >= 0; around = CallAround(c, around)) {
    if (FirstWrongInput(c, around) < 0) return p;
    p = around;
  }
  return p;
}

// Only modules were recorded, and a wrong value was made inside `module`, whose inputs agree, before
// the call of `in`: the module's own code is named, and the line of it that makes the call.
FirstDivergence ExplainOwnCode(const Comparison& c, int32_t module, const WrongInput& in) {
  const CallSummary call = SummarizeCall(c, module);
  FirstDivergence f = StartExplanation(c, module, call.out.worst_row);
  f.call_class = CallClass::kIntroduced;
  dump::SourcePlace inside = SourcePlaceOf(c, in.pair);
  if (!inside.line.empty())
    f.source_line = std::move(inside.line), f.caller_line = std::move(inside.caller);
  const EarlierCalls before = CountEarlierCalls(c, in.pair);
  f.confidence = kUnrecordedConfidence * before.JudgedFactor() * c.pairs[module].confidence;
  f.why = fmt::format("{}; {}; the error enters in its own code before it calls {}, where {}",
                      DescribeEarlierCalls(c, before), DescribeInputs(c, module, call),
                      EntryName(c, in.pair), DescribeRow(c, in.row));
  f.advice =
      "only modules were recorded; collect this one at level mix to see the operation inside";
  return f;
}

Origin OutsideTheRecording(const Comparison& c, const WrongInput& in, const Makers& made,
                           const EarlierCalls& before) {
  if (const std::vector<OtherWeight> weights = OtherWeights(c);
      !weights.empty() && made.target == nullptr && made.golden == nullptr) {
    return {kUnrecordedConfidence,
            fmt::format("no recorded operation made the value, and {} differs already in the "
                        "weights file",
                        weights.front().name),
            std::string(kCompareCheckpoints)};
  }
  if (before.total() == 0) {
    return {kBeforeTheRunConfidence, "the error begins before the first recorded operation",
            "compare the input data and their order, the seed, and the weights"};
  }
  const bool weight = in.target.requires_grad == "True" && in.golden.requires_grad == "True" &&
                      made.target == nullptr && made.golden == nullptr;
  return {weight ? 0.85 : kUnrecordedConfidence,
          "no recorded operation made the value: it comes from outside the recording, or an "
          "operation that is not recorded made it, such as indexing",
          weight ? "it requires a gradient and nothing recorded made it: probably a weight; "
                   "compare the checkpoints"
                 : "compare the data that enter here, and the code between this call and the one "
                   "before it"};
}

}  // namespace

FirstDivergence ExplainInherited(const Comparison& c, int32_t p) {
  int32_t row = FirstWrongInput(c, p);
  // No tensor that goes in differs: the call is inherited because its forward call diverged.
  if (row < 0) return ExplainIntroduced(c, p);
  const bool modules_only = !HasOperations(c.target) && !HasOperations(c.golden);
  const auto input = [&] {
    return WrongInput{p, row, c.target.leaves[c.rows[row].target],
                      c.golden.leaves[c.rows[row].golden]};
  };
  const auto made_by_one_side = [&] {
    return UnmatchedMakerOf(c, p, input().target, input().golden);
  };
  int32_t unmatched = made_by_one_side();
  if (unmatched < 0 && modules_only) {
    p = OutermostWithWrongInput(c, p);
    row = FirstWrongInput(c, p);
    unmatched = made_by_one_side();
  }
  if (unmatched >= 0) return ExplainUnmatched(c, unmatched, p, row, Tie::kOutput);

  const WrongInput in = input();
  const EarlierCalls before = CountEarlierCalls(c, p);
  const RecordPair& pair = c.pairs[p];
  const Makers made{FindOutput(c.target, in.target, pair.target),
                    FindOutput(c.golden, in.golden, pair.golden)};
  std::optional<Origin> origin =
      AnOtherWeight(c, in, made.target != nullptr || made.golden != nullptr);
  if (!origin) origin = AParameter(c, in);
  if (!origin) origin = AnotherOutput(c, made);
  if (const int32_t module = CallAround(c, p); !origin && modules_only && module >= 0)
    return ExplainOwnCode(c, module, in);
  if (!origin) origin = InsideAModule(c, p);
  if (!origin) {
    if (const int32_t u = UnmatchedNear(c, p); u >= 0)
      return ExplainUnmatched(c, u, p, row, Tie::kPlace);
    origin = OutsideTheRecording(c, in, made, before);
  }
  FirstDivergence f = StartExplanation(c, p, row);
  f.confidence = origin->confidence * before.JudgedFactor() * pair.confidence;
  f.why =
      fmt::format("{}; {}: {}", DescribeEarlierCalls(c, before), DescribeRow(c, row), origin->why);
  f.advice = std::move(origin->advice);
  return f;
}

}  // namespace msprobe::compare
