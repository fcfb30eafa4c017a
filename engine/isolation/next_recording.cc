#include "engine/isolation/next_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine/base/text.h"
#include "engine/compare/explain/classify.h"
#include "engine/compare/explain/dataflow.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/explanation.h"
#include "engine/compare/explain/unmatched_calls.h"
#include "engine/compare/judge/operations.h"

namespace msprobe::isolation {
namespace {

using compare::Comparison;

// "Tensor.add.0.": a part that the names of all entries of the call have, and those of no other
// call.
std::string PartOf(const Record& record) {
  const std::string api(record.api.view());
  if (record.is_module || record.call < 0) return api + ".";
  return fmt::format("{}.{}.", api, record.call);
}

// "Module.net.Net." of "Module.net.Net.forward.0"; "" of "".
std::string PartOfEntry(std::string_view entry) {
  const size_t direction = entry.rfind(".forward.");
  return direction == entry.npos ? "" : std::string(entry.substr(0, direction + 1));
}

void Add(std::vector<std::string>* list, std::string part) {
  if (std::find(list->begin(), list->end(), part) == list->end()) list->push_back(std::move(part));
}

// The last operation before `record` that made the value; a module only hands it on. -1: none.
int32_t OperationThatMade(const Dump& dump, const Leaf& leaf, int32_t record) {
  int32_t maker = compare::FindProducer(dump, leaf, record);
  while (maker >= 0 && dump.records[maker].is_module)
    maker = compare::FindProducer(dump, leaf, maker);
  return maker;
}

// Names of a call in both runs, which may have another one each.
void AddBoth(const Comparison& c, int32_t pair, std::vector<std::string>* list) {
  const compare::RecordPair& p = c.pairs[pair];
  if (p.target >= 0) Add(list, PartOf(c.target.records[p.target]));
  if (p.golden >= 0) Add(list, PartOf(c.golden.records[p.golden]));
}

// The call, its forward call, and the calls that made the inputs of both.
std::vector<std::string> Region(const Comparison& c, int32_t pair) {
  std::vector<std::string> list;
  std::vector<int32_t> pairs = {pair};
  const int32_t forward =
      pair < static_cast<int32_t>(c.forward_of.size()) ? c.forward_of[pair] : -1;
  if (forward >= 0) pairs.push_back(forward);
  for (const int32_t p : pairs) AddBoth(c, p, &list);
  for (const int32_t p : pairs) {
    for (const auto& [dump, record] :
         {std::pair(&c.target, c.pairs[p].target), std::pair(&c.golden, c.pairs[p].golden)}) {
      if (record < 0) continue;
      for (const Leaf& leaf : dump->LeavesOf(dump->records[record])) {
        if (leaf.slot == Slot::kOutput || leaf.slot == Slot::kParameterGrad) continue;
        const int32_t maker = OperationThatMade(*dump, leaf, record);
        if (maker >= 0) Add(&list, PartOf(dump->records[maker]));
      }
    }
  }
  return list;
}

bool HasTensors(const Comparison& c, int32_t pair) {
  const compare::RecordPair& p = c.pairs[pair];
  for (const auto& [dump, index] :
       {std::pair(&c.target, p.target), std::pair(&c.golden, p.golden)}) {
    if (index < 0) continue;
    for (const Leaf& leaf : dump->LeavesOf(dump->records[index])) {
      if (leaf.kind == LeafKind::kTensor && leaf.data_name.empty()) return false;
    }
  }
  return true;
}

// Whether calls of the step were left out of the recording, by a list or a scope: the numbers of an
// API's calls count them, too.
bool IsPartial(const Dump& dump) {
  std::unordered_map<std::string_view, int64_t> next;  // of each API
  for (const Record& record : dump.records) {
    if (record.is_module || record.direction != Direction::kForward || record.call < 0) continue;
    int64_t& expected = next[record.api.view()];
    if (record.call > expected) return true;
    expected = std::max(expected, record.call + 1);
  }
  return false;
}

// The first value that goes into the call, differs, and is no output of a recorded call; an index
// into Comparison::rows, -1: there is none. What an optimizer gets may look like the gradient of a
// call, but other code has handled it since.
int32_t ValueFromOutside(const Comparison& c, int32_t pair) {
  const compare::RecordPair& p = c.pairs[pair];
  if (!p.matched() || c.classes[pair] != compare::CallClass::kInherited) return -1;
  for (uint32_t i = p.first_row; i < p.first_row + p.row_count; ++i) {
    if (c.rows[i].target < 0 || c.measures[i].verdict != compare::RowVerdict::kDiffers) continue;
    const Leaf& leaf = c.target.leaves[c.rows[i].target];
    if (leaf.slot == Slot::kOutput || leaf.slot == Slot::kParameterGrad) continue;
    const bool optimizer = compare::IsOptimizerCall(c.target.records[p.target].api);
    return optimizer || compare::FindProducer(c.target, leaf, p.target) < 0
               ? static_cast<int32_t>(i)
               : -1;
  }
  return -1;
}

// Nothing more to record: the value was made by the program, outside of what can be recorded.
void NameOutside(const Comparison& c, int32_t row, NextRecording* next) {
  const Leaf& leaf = c.target.leaves[c.rows[row].target];
  const bool weight =
      leaf.slot == Slot::kParameter ||
      std::any_of(c.target.weights.begin(), c.target.weights.end(), [&](const Weight& w) {
        return !w.fingerprint.empty() && leaf.fingerprint == w.fingerprint;
      });
  const bool first = c.first.pair == 0;
  const bool optimizer = compare::IsOptimizerCall(compare::RecordOf(c, c.first.pair).api);
  const auto why =
      weight ? "{} of {} is wrong when the call begins, and no recorded call made it: it is a "
               "weight that the program made, loaded or changed before"_t
      : optimizer
          ? "{} of {} is wrong when the call begins, and no recorded call made it: code between "
            "the backward pass and the optimizer did, such as an exchange between ranks or an "
            "unscaling"_t
      : first
          ? "{} of {} is wrong when the call begins, and no recorded call made it: it is the "
            "first call, so this is what the program gives to the step"_t
          : "{} of {} is wrong when the call begins, and no recorded call made it: code that is "
            "not recorded made or changed it, or it is part of the data"_t;
  next->why = why(compare::LeafLabel(c, row), next->culprit);
  next->advice = c.first.advice;
}

// For a module, or a dump of modules alone.
void NarrowModule(const Comparison& c, NextRecording* next) {
  const bool modules_only = c.target.level == Level::kL0 || c.golden.level == Level::kL0;
  if (!modules_only && HasTensors(c, c.first.pair)) {
    next->why =
        "{} is a module, and no recorded call inside it shows the error: an operation that the "
        "tool does not record is the place to look at"_t(next->culprit);
    return;
  }
  next->narrower = true;
  // An error that came with the input was made between two modules: in the one around both. What a
  // Cell of a compiled graph gets is not known.
  const bool compiled = !compare::DescribeCompiledCell(c, c.first.pair).empty();
  const bool inside =
      !modules_only || (c.first.call_class != compare::CallClass::kInherited && !compiled);
  if (inside) {
    AddBoth(c, c.first.pair, &next->list);
  } else {
    const compare::RecordPair& pair = c.pairs[c.first.pair];
    for (const auto& [dump, index] :
         {std::pair(&c.target, pair.target), std::pair(&c.golden, pair.golden)}) {
      if (index < 0) continue;
      const std::string around = PartOfEntry(dump->records[index].parent.view());
      if (!around.empty()) Add(&next->list, around);
    }
  }
  // The statistics of the calls inside come first; if they were there, the module's tensors.
  if (!modules_only) next->task = Task::kTensor;
  next->why = !modules_only ? "no recorded call inside of {} shows the error: the tensors of "
                              "these calls say more than their statistics"_t(next->culprit)
              : compiled ? "{} is a Cell of compiled code: level mix, in PyNative mode and without "
                           "mindspore.jit, records the operations inside it and before "
                           "it"_t(next->culprit)
              : inside
                  ? "{} is a module: level mix records the operations inside it"_t(next->culprit)
                  : "{} gets a wrong input that no recorded module made: level mix records "
                    "the operations before it"_t(next->culprit);
}

void NarrowOperation(const Comparison& c, NextRecording* next) {
  if (HasTensors(c, c.first.pair)) {
    next->why =
        "{} is an operation and its tensors are recorded: msprobe replay executes it again"_t(
            next->culprit);
    next->can_replay = true;
    return;
  }
  next->narrower = true;
  next->list = Region(c, c.first.pair);
  next->task = Task::kTensor;
  std::vector<std::string> own;
  AddBoth(c, c.first.pair, &own);
  const size_t makers = next->list.size() - own.size();
  if (makers == 0) {
    next->why =
        "{} is an operation of which only statistics are recorded: task tensor keeps its "
        "elements"_t(next->culprit);
  } else if (makers == 1) {
    next->why =
        "{} is an operation of which only statistics are recorded: task tensor keeps its "
        "elements, and those of 1 call before it"_t(next->culprit);
  } else {
    next->why =
        "{} is an operation of which only statistics are recorded: task tensor keeps its "
        "elements, and those of {} calls before it"_t(next->culprit, makers);
  }
}

// Why a call is the answer whatever else is recorded of it; empty: it is not.
Message WhyItIsTheAnswer(const Comparison& c, const Record& record, const Message& culprit) {
  const compare::RecordPair& pair = c.pairs[c.first.pair];
  if (!pair.matched()) {
    return "only the {} makes the call {}: the two programs differ there"_t(
        pair.target >= 0 ? "target"_t : "golden"_t, culprit);
  }
  const bool optimizer = compare::IsOptimizerCall(record.api);
  const bool introduced = c.first.call_class == compare::CallClass::kIntroduced;
  if (introduced && !compare::DifferingArguments(c, c.first.pair).empty()) {
    return "the two runs call {} with other arguments: its tensors would say no more"_t(culprit);
  }
  if (!optimizer || !introduced) return {};
  return "{} gets the same gradients and weights and makes other ones of them: its settings, such "
         "as "
         "the learning rate, or its code are the place to look at"_t(culprit);
}

}  // namespace

NextRecording NextOf(const Comparison& c) {
  NextRecording next;
  if (c.first.pair < 0) {
    next.why = "no first divergence was found: there is nothing to narrow"_t;
    return next;
  }
  const Record& record = compare::RecordOf(c, c.first.pair);
  next.culprit = compare::EntryName(c, c.first.pair);
  next.why = WhyItIsTheAnswer(c, record, next.culprit);
  if (!next.why.empty()) return next;
  const bool modules_only = c.target.level == Level::kL0 || c.golden.level == Level::kL0;
  const int32_t outside = modules_only ? -1 : ValueFromOutside(c, c.first.pair);
  if (outside >= 0 && !IsPartial(c.target)) {
    NameOutside(c, outside, &next);
  } else if (outside >= 0) {
    next.narrower = true;
    next.why =
        "{} of {} is wrong when the call begins, and the calls before it were not recorded: all "
        "calls of the step are"_t(compare::LeafLabel(c, outside), next.culprit);
  } else if (record.is_module || modules_only) {
    NarrowModule(c, &next);
  } else {
    NarrowOperation(c, &next);
  }
  return next;
}

void LookAt(int32_t pair, Comparison* c) {
  const compare::CallSummary call = compare::SummarizeCall(*c, pair);
  compare::FirstDivergence f = compare::StartExplanation(*c, pair, call.out.worst_row);
  f.call_class = c->classes[pair];
  if (!c->pairs[pair].matched()) {
    f.why = c->pairs[pair].target >= 0 ? "this call exists only in the target"_t
                                       : "this call exists only in the golden"_t;
  } else if (!call.out.differs) {
    f.why = "its results agree in both runs"_t;
  } else {
    f.why = Message::Joined({call.in.differs ? compare::DescribeRow(*c, call.in.worst_row)
                                             : compare::DescribeInputs(*c, pair, call),
                             compare::DescribeRow(*c, call.out.worst_row)},
                            "; ");
  }
  c->first = std::move(f);
}

std::string ConfigOf(const NextRecording& next, int step, int rank) {
  const auto number = [](int value) { return value < 0 ? "" : std::to_string(value); };
  const std::string before = next.with_step_before ? fmt::format("{}, ", step - 1) : "";
  const std::string_view task = next.task == Task::kTensor ? "tensor" : "statistics";
  std::string names;
  for (const std::string& part : next.list) {
    names += names.empty() ? "" : ", ";
    AppendJsonString(&names, part);
  }
  return fmt::format(
      "{{\n  \"task\": \"{}\",\n  \"level\": \"mix\",\n  \"step\": [{}{}],\n  \"rank\": [{}],\n"
      "  \"async_dump\": false,\n  \"{}\": {{\n    \"scope\": [],\n    \"list\": [{}],\n"
      "    \"data_mode\": [\"all\"]\n  }}\n}}\n",
      task, before, number(step), number(rank), task, names);
}

NextRecording NextOfUpdate(Message why, bool optimizers_recorded) {
  NextRecording next{.culprit = "the update of the weights"_t};
  if (optimizers_recorded) {
    next.why = std::move(why);
    return next;
  }
  next.narrower = next.with_step_before = true;
  next.list = {"Optimizer."};
  next.why = Message::Joined(
      {std::move(why), "level mix records the optimizers of the step before"_t}, ": ");
  return next;
}

}  // namespace msprobe::isolation
