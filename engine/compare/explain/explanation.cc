#include "engine/compare/explain/explanation.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/unmatched_calls.h"
#include "engine/compare/model/compiled_code.h"
#include "engine/compare/model/module_modes.h"
#include "engine/compare/model/other_weights.h"
#include "engine/compare/model/record_keys.h"
#include "engine/dump/read/source_line.h"
#include "engine/model/names.h"

namespace msprobe::compare {

FirstDivergence StartExplanation(const Comparison& c, int32_t p, int32_t row) {
  FirstDivergence f;
  f.pair = p;
  f.row = row;
  f.call_class = c.classes[p];
  f.module = ModuleAround(c, p);
  dump::SourcePlace place = SourcePlaceOf(c, p);
  f.source_line = std::move(place.line);
  f.caller_line = std::move(place.caller);
  f.golden_line = GoldenLineOf(c, p);
  return f;
}

namespace {

// "input.0 of the forward call requires a gradient in the target only (detach, no_grad or
// requires_grad differ)"; "" where both runs agree, for forward calls, and where a dump does not say.
std::string DescribeGradientFlags(const Comparison& c, int32_t p) {
  const int32_t forward = static_cast<size_t>(p) < c.forward_of.size() ? c.forward_of[p] : -1;
  if (forward < 0 || !c.pairs[forward].matched()) return "";
  const RecordPair& pair = c.pairs[forward];
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    if (row.target < 0 || row.golden < 0) continue;
    const Leaf &t = c.target.leaves[row.target], &g = c.golden.leaves[row.golden];
    const bool told = !t.requires_grad.empty() && !g.requires_grad.empty();
    if (t.slot == Slot::kOutput || !told || t.requires_grad == g.requires_grad.view()) continue;
    return fmt::format(
        "{} of the forward call requires a gradient in the {} only "
        "(detach, no_grad or requires_grad differ)",
        LeafLabel(c, static_cast<int32_t>(i)), t.requires_grad == "True" ? "target" : "golden");
  }
  return "";
}

// Why nothing that goes into the call was judged.
std::string_view WhyInputsAreUnknown(const Comparison& c, int32_t p) {
  if (RecordOf(c, p).direction == Direction::kParameterGrad)
    return "gradients of parameters are recorded without inputs";
  const RecordPair& pair = c.pairs[p];
  bool recorded = false;
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    const Leaf& leaf = row.target >= 0 ? c.target.leaves[row.target] : c.golden.leaves[row.golden];
    const bool goes_in =
        leaf.slot == Slot::kInput || leaf.slot == Slot::kKwarg || leaf.slot == Slot::kParameter;
    if (!goes_in || c.measures[i].reason == Reason::kNothingRecorded) continue;
    recorded = true;
  }
  return recorded ? "none of its inputs has a counterpart to compare"
                  : "its inputs were not recorded";
}

}  // namespace

std::string DescribeInputs(const Comparison& c, int32_t p, const CallSummary& call) {
  std::string inputs;
  if (!call.in.any() && !call.arguments.any()) {
    inputs = WhyInputsAreUnknown(c, p);
  } else if (call.in.differs && call.in.worst_row >= 0) {
    inputs = fmt::format("what goes in differs, too: {}", DescribeRow(c, call.in.worst_row));
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
  for (const std::string& other : {DescribeMode(c, p), DescribeGradientFlags(c, p)}) {
    if (!other.empty()) inputs += (inputs.find(", but ") == inputs.npos ? ", but " : "; ") + other;
  }
  return inputs;
}

std::string AdviceOnWeights(const Comparison& c) {
  const auto seed = [](const Dump& dump) -> std::string_view {
    for (const auto& [key, value] : dump.provenance) {
      if (key == "seed") return value;
    }
    return "";
  };
  std::unordered_set<std::string_view> golden;
  for (const Weight& weight : c.golden.weights) golden.insert(weight.fingerprint);
  const auto same =
      std::count_if(c.target.weights.begin(), c.target.weights.end(), [&](const Weight& weight) {
        return !weight.fingerprint.empty() && golden.contains(weight.fingerprint);
      });
  if (same == 0) return "compare the checkpoints, the initialisation and its seed";
  const std::string_view target_seed = seed(c.target), golden_seed = seed(c.golden);
  const bool one_seed = !target_seed.empty() && target_seed == golden_seed;
  return fmt::format(
      "compare the checkpoints: {} other weight{} the same in both runs, so look at what made this "
      "one "
      "differ before the step ({}another checkpoint, a cast, adapters that were merged into it)",
      same, same == 1 ? " is" : "s are", one_seed ? "" : "an initialisation with another seed, ");
}

std::string DescribeCompiledModule(const Comparison& c, int32_t p) {
  const Record& record = RecordOf(c, p);
  if (!record.is_module) return "";
  const bool target = CompiledCodeIn(c.target, record.api) != nullptr,
             golden = CompiledCodeIn(c.golden, record.api) != nullptr;
  if (!target && !golden) return "";
  return fmt::format(
      "it runs compiled code in {} (torch.compile), in which no operation is recorded",
      target && golden ? "both runs"
      : target         ? "the target"
                       : "the golden");
}

namespace {

bool IsCompiledCell(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  return (pair.target >= 0 && IsOfCompiledGraph(c.target, c.target.records[pair.target])) ||
         (pair.golden >= 0 && IsOfCompiledGraph(c.golden, c.golden.records[pair.golden]));
}

}  // namespace

std::string DescribeCompiledCell(const Comparison& c, int32_t p) {
  if (!IsCompiledCell(c, p)) return "";
  const Record& record = RecordOf(c, p);
  if (record.parent.empty()) return "the error is in it, or in the model's code that leads to it";
  return fmt::format("the error is in it, or in the code of {} that leads to it",
                     ModuleForPeople(WithoutCall(record.parent)));
}

std::string AdviceToLookInside(const Comparison& c, int32_t p) {
  return IsCompiledCell(c, p)
             ? "run both programs in PyNative mode, without mindspore.jit, at level mix to see the "
               "operation, since compiled code shows results of Cells alone"
             : "only modules were recorded; collect this one at level mix to see the operation "
               "inside";
}

std::string AdviceToLookBefore(const Comparison& c, int32_t p) {
  return IsCompiledCell(c, p) ? AdviceToLookInside(c, p)
                              : "only modules were recorded; record at level mix to see the "
                                "operation before it, and compare the data that enter here";
}

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

}  // namespace msprobe::compare
