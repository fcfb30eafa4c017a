#include "engine/isolation/next_recording.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/text.h"
#include "engine/compare/explain/dataflow.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/unmatched_calls.h"

namespace msprobe::isolation {
namespace {

using compare::Comparison;

// "Tensor.add.0.": a part that the names of all entries of the call have, and those of no other call.
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

// The call, its forward call, and the calls that made the inputs of both.
std::vector<std::string> Region(const Comparison& c, int32_t pair) {
  std::vector<std::string> list;
  std::vector<int32_t> pairs = {pair};
  const int32_t forward =
      pair < static_cast<int32_t>(c.forward_of.size()) ? c.forward_of[pair] : -1;
  if (forward >= 0) pairs.push_back(forward);
  for (const int32_t p : pairs) Add(&list, PartOf(compare::RecordOf(c, p)));
  for (const int32_t p : pairs) {
    const bool of_target = c.pairs[p].target >= 0;
    const Dump& dump = of_target ? c.target : c.golden;
    const int32_t record = of_target ? c.pairs[p].target : c.pairs[p].golden;
    for (const Leaf& leaf : dump.LeavesOf(dump.records[record])) {
      if (leaf.slot == Slot::kOutput || leaf.slot == Slot::kParameterGrad) continue;
      const int32_t maker = compare::FindProducer(dump, leaf, record);
      if (maker >= 0 && !dump.records[maker].is_module) Add(&list, PartOf(dump.records[maker]));
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

std::string ConfigText(std::string_view task, const std::vector<std::string>& list, int step) {
  std::string names;
  for (const std::string& part : list) {
    names += names.empty() ? "" : ", ";
    AppendJsonString(&names, part);
  }
  return fmt::format(
      "{{\n  \"task\": \"{}\",\n  \"level\": \"mix\",\n  \"step\": [{}],\n  \"rank\": [],\n"
      "  \"async_dump\": false,\n  \"{}\": {{\n    \"scope\": [],\n    \"list\": [{}],\n"
      "    \"data_mode\": [\"all\"]\n  }}\n}}\n",
      task, step < 0 ? "" : std::to_string(step), task, names);
}

}  // namespace

NextRecording NextOf(const Comparison& c, int step) {
  NextRecording next;
  if (c.first.pair < 0) {
    next.why = "no first divergence was found: there is nothing to narrow";
    return next;
  }
  const Record& record = compare::RecordOf(c, c.first.pair);
  next.culprit = compare::EntryName(c, c.first.pair);
  if (c.first.call_class == compare::CallClass::kIntroduced &&
      !compare::DifferingArguments(c, c.first.pair).empty()) {
    next.why = fmt::format(
        "the two runs call {} with other arguments: its tensors would say no more", next.culprit);
    return next;
  }
  if (record.is_module) {
    const bool modules_only = c.target.level == Level::kL0 || c.golden.level == Level::kL0;
    if (!modules_only && HasTensors(c, c.first.pair)) {
      next.why = fmt::format(
          "{} is a module, and no recorded call inside it shows the error: an operation that the "
          "tool does not record is the place to look at",
          next.culprit);
      return next;
    }
    next.narrower = true;
    // An error that came with the input was made between two modules: in the one around both.
    const bool inside = !modules_only || c.first.call_class != compare::CallClass::kInherited;
    const std::string around = inside ? PartOf(record) : PartOfEntry(record.parent.view());
    if (!around.empty()) next.list = {around};
    // The statistics of the calls inside come first; if they were there, the module's tensors.
    next.config = ConfigText(modules_only ? "statistics" : "tensor", next.list, step);
    next.why = modules_only
                   ? inside
                         ? fmt::format("{} is a module: level mix records the operations inside it",
                                       next.culprit)
                         : fmt::format(
                               "{} gets a wrong input that no recorded module made: level "
                               "mix records the operations before it",
                               next.culprit)
                   : fmt::format(
                         "no recorded call inside of {} shows the error: the tensors of "
                         "these calls say more than their statistics",
                         next.culprit);
    return next;
  }
  if (HasTensors(c, c.first.pair)) {
    next.why = fmt::format(
        "{} is an operation and its tensors are recorded: msprobe replay executes it again",
        next.culprit);
    next.can_replay = true;
    return next;
  }
  next.narrower = true;
  next.list = Region(c, c.first.pair);
  next.config = ConfigText("tensor", next.list, step);
  const size_t makers = next.list.size() - 1;
  next.why = fmt::format(
      "{} is an operation of which only statistics are recorded: task tensor "
      "keeps its elements{}",
      next.culprit,
      makers == 0
          ? ""
          : fmt::format(", and those of {} call{} before it", makers, makers == 1 ? "" : "s"));
  return next;
}

}  // namespace msprobe::isolation
