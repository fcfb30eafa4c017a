#include "engine/compare/explain/explanation.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/source_places.h"
#include "engine/compare/explain/unmatched_calls.h"
#include "engine/compare/model/compiled_code.h"
#include "engine/compare/model/module_modes.h"
#include "engine/compare/model/other_weights.h"
#include "engine/compare/model/record_keys.h"
#include "engine/model/names.h"

namespace msprobe::compare {

Message AdviceToRunEagerly() {
  return "run this code without torch.compile, or with backend=\"aot_eager\": if the difference "
         "stays, the compiler does not make it"_t;
}

FirstDivergence StartExplanation(const Comparison& c, int32_t p, int32_t row) {
  FirstDivergence f;
  f.pair = p;
  f.row = row;
  f.call_class = c.classes[p];
  f.module = ModuleAround(c, p);
  CodePlace place = CodePlaceOf(c, p);
  f.source_line = std::move(place.line);
  f.caller_line = std::move(place.caller);
  f.golden_line = std::move(place.golden);
  return f;
}

namespace {

// "input.0 of the forward call requires a gradient in the target only (detach, no_grad or
// requires_grad differ)"; "" where both runs agree, for forward calls, and where a dump does not
// say.
Message DescribeGradientFlags(const Comparison& c, int32_t p) {
  const int32_t forward = static_cast<size_t>(p) < c.forward_of.size() ? c.forward_of[p] : -1;
  if (forward < 0 || !c.pairs[forward].matched()) return {};
  const RecordPair& pair = c.pairs[forward];
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    if (row.target < 0 || row.golden < 0) continue;
    const Leaf &t = c.target.leaves[row.target], &g = c.golden.leaves[row.golden];
    const bool told = !t.requires_grad.empty() && !g.requires_grad.empty();
    if (t.slot == Slot::kOutput || !told || t.requires_grad == g.requires_grad.view()) continue;
    return "{} of the forward call requires a gradient in the {} only "
           "(detach, no_grad or requires_grad differ)"_t(
               LeafLabel(c, static_cast<int32_t>(i)),
               t.requires_grad == "True" ? "target"_t : "golden"_t);
  }
  return {};
}

// Why nothing that goes into the call was judged.
Message WhyInputsAreUnknown(const Comparison& c, int32_t p) {
  if (RecordOf(c, p).direction == Direction::kParameterGrad)
    return "gradients of parameters are recorded without inputs"_t;
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
  return recorded ? "none of its inputs has a counterpart to compare"_t
                  : "its inputs were not recorded"_t;
}

}  // namespace

Message DescribeInputs(const Comparison& c, int32_t p, const CallSummary& call) {
  Message inputs;
  if (!call.in.any() && !call.arguments.any()) {
    inputs = WhyInputsAreUnknown(c, p);
  } else if (call.in.differs && call.in.worst_row >= 0) {
    inputs = "what goes in differs, too: {}"_t(DescribeRow(c, call.in.worst_row));
  } else if (call.in.unknown) {
    inputs = "not all of its inputs could be judged"_t;
  } else if (call.in.noise) {
    inputs =
        "its inputs agree within rounding (worst {} roundings)"_t(ShortNumber(call.in.severity));
  } else {
    inputs = "its inputs are {}"_t(EqualWord(c));
  }
  constexpr size_t kNamed = 3;
  const std::vector<int32_t> arguments = DifferingArguments(c, p);
  std::vector<Message> other;
  for (size_t i = 0; i < std::min(arguments.size(), kNamed); ++i)
    other.push_back(DescribeRow(c, arguments[i]));
  if (arguments.size() > kNamed) {
    const size_t more = arguments.size() - kNamed;
    other.push_back(more == 1 ? "1 other argument differs"_t : "{} other arguments differ"_t(more));
  }
  other.push_back(DescribeMode(c, p));
  other.push_back(DescribeGradientFlags(c, p));
  const Message otherwise = Message::Joined(std::move(other), "; ");
  if (otherwise.empty()) return inputs;
  return arguments.empty()
             ? "{}, but {}"_t(std::move(inputs), otherwise)
             : "{}, but the call itself was made differently: {}"_t(std::move(inputs), otherwise);
}

Message AdviceOnWeights(const Comparison& c) {
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
  if (same == 0) return "compare the checkpoints, the initialisation and its seed"_t;
  const std::string_view target_seed = seed(c.target), golden_seed = seed(c.golden);
  const bool one_seed = !target_seed.empty() && target_seed == golden_seed;
  const Message what =
      one_seed ? "another checkpoint, a cast, adapters that were merged into it"_t
               : "an initialisation with another seed, another checkpoint, a cast, adapters that "
                 "were merged into it"_t;
  return same == 1 ? "compare the checkpoints: 1 other weight is the same in both runs, so look at "
                     "what made this one differ before the step ({})"_t(what)
                   : "compare the checkpoints: {} other weights are the same in both runs, so look "
                     "at what made this one differ before the step ({})"_t(same, what);
}

Message DescribeCompiledModule(const Comparison& c, int32_t p) {
  const Record& record = RecordOf(c, p);
  if (!record.is_module) return {};
  const bool target = CompiledCodeIn(c.target, record.api) != nullptr,
             golden = CompiledCodeIn(c.golden, record.api) != nullptr;
  if (!target && !golden) return {};
  return "it runs compiled code in {} (torch.compile), in which no operation is recorded"_t(
      target && golden ? "both runs"_t
      : target         ? "the target"_t
                       : "the golden"_t);
}

namespace {

bool IsCompiledCell(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  return (pair.target >= 0 && IsOfCompiledGraph(c.target, c.target.records[pair.target])) ||
         (pair.golden >= 0 && IsOfCompiledGraph(c.golden, c.golden.records[pair.golden]));
}

}  // namespace

Message DescribeCompiledCell(const Comparison& c, int32_t p) {
  if (!IsCompiledCell(c, p)) return {};
  const Record& record = RecordOf(c, p);
  if (record.parent.empty()) return "the error is in it, or in the model's code that leads to it"_t;
  return "the error is in it, or in the code of {} that leads to it"_t(
      ModuleForPeople(WithoutCall(record.parent)));
}

Message AdviceToLookInside(const Comparison& c, int32_t p) {
  return IsCompiledCell(c, p)
             ? "run both programs in PyNative mode, without mindspore.jit, at level mix to see the "
               "operation, since compiled code shows results of Cells alone"_t
             : "only modules were recorded; collect this one at level mix to see the operation "
               "inside"_t;
}

Message AdviceToLookBefore(const Comparison& c, int32_t p) {
  return IsCompiledCell(c, p) ? AdviceToLookInside(c, p)
                              : "only modules were recorded; record at level mix to see the "
                                "operation before it, and compare the data that enter here"_t;
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
