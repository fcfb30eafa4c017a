// CauseOfOtherDraw: why the two runs drew other random numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "engine/base/messages/message.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/explain.h"
#include "engine/compare/explain/source_places.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/record_keys.h"
#include "engine/dump/read/source_line.h"
#include "engine/model/names.h"
#include "engine/model/parameter_names.h"

namespace msprobe::compare {
namespace {

// The name of an argument: "p", "training"; "" when it is not known.
std::string ArgumentName(const Dump& dump, const Record& record, const Leaf& leaf) {
  const std::string_view place = LeafPlace(leaf, record);
  if (leaf.slot == Slot::kKwarg) return std::string(place);
  const int64_t index = NumberAfter(place, "");
  return index < 0 ? "" : ParameterName(dump, record, static_cast<size_t>(index));
}

// Whether a call draws, as far as its name and arguments say.
bool Draws(const Dump& dump, const Record& record) {
  if (!MayDrawRandomNumbers(BaseApi(record.api))) return false;
  bool draws = msprobe::DrawsRandomNumbers(BaseApi(record.api));
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.kind != LeafKind::kScalar || leaf.slot == Slot::kOutput) continue;
    const std::string name = ArgumentName(dump, record, leaf);
    if (name == "training" && leaf.value == "False") return false;
    if (name != "p" && name != "dropout_p" && name != "dropout") continue;
    if (std::strtod(std::string(leaf.value.view()).c_str(), nullptr) == 0) return false;
    draws = true;
  }
  return draws && record.training != Record::Mode::kEval;
}

std::string_view Provenance(const Dump& dump, std::string_view wanted) {
  for (const auto& [key, value] : dump.provenance) {
    if (key == wanted) return value;
  }
  return "";
}

const std::vector<std::string_view>* OwnFramesOf(const Dump& dump, const Record& record) {
  const bool known = record.stack >= 0 && static_cast<size_t>(record.stack) < dump.stacks.size();
  return known ? &dump.stacks[record.stack] : nullptr;
}

// Whether a forward call was made during the backward pass: activation checkpointing computes once
// more what it has not kept.
bool IsRecomputed(const Dump& dump, const Record& record) {
  const auto* frames = OwnFramesOf(dump, record);
  if (frames == nullptr) return false;
  return std::any_of(frames->begin(), frames->end(), [](std::string_view text) {
    const std::string_view function = dump::ParseStackFrame(text).function;
    return function == "backward" || function == "recompute_fn" || function == "unpack_hook" ||
           function == "_engine_run_backward";
  });
}

// What the first tensor that goes into a call is recognised by; 0: there is none.
uint64_t FirstTensor(const Dump& dump, const Record& record) {
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.kind == LeafKind::kTensor && leaf.slot != Slot::kOutput) return ContentKey(leaf);
  }
  return 0;
}

// The call of the first computation that a recomputed call repeats: the last earlier one of the
// same operation on the same tensor, in the same module. -1: it was not recorded.
int32_t RepeatedBy(const Dump& dump, int32_t recomputed) {
  const Record& again = dump.records[recomputed];
  const uint64_t taken = FirstTensor(dump, again);
  for (int32_t r = recomputed - 1; r >= 0 && taken != 0; --r) {
    const Record& record = dump.records[r];
    if (record.api == again.api && record.direction == Direction::kForward &&
        WithoutCall(record.parent) == WithoutCall(again.parent) &&
        FirstTensor(dump, record) == taken && !IsRecomputed(dump, record))
      return r;
  }
  return -1;
}

// What the target's record `target` and the golden's `golden` say of a recomputation.
RandomCause OfRecomputation(const Comparison& c, int32_t target, int32_t golden) {
  for (const bool of_target : {true, false}) {
    const Dump& dump = of_target ? c.target : c.golden;
    const int32_t record = of_target ? target : golden;
    if (!IsRecomputed(dump, dump.records[record])) continue;
    const int32_t first = RepeatedBy(dump, record);
    if (first < 0 || dump.RandomStateOf(first).empty() ||
        dump.RandomStateOf(first) == dump.RandomStateOf(record))
      continue;
    return {
        "in the {} it runs inside a recomputation (activation checkpointing) that did "
        "not restore the state of the random generator: {}, which it repeats, drew "
        "from another state"_t(of_target ? "target"_t : "golden"_t,
                               dump.records[first].name.view()),
        "let the checkpoint keep the state of the random generator (preserve_rng_state=True)"_t};
  }
  return {};
}

Message Named(const Comparison& c, int32_t pair) {
  const std::string line = SourceLineOf(c, pair);
  return line.empty() ? Message(EntryName(c, pair)) : "{} ({})"_t(EntryName(c, pair), line);
}

// Whether both runs record the state of a call.
bool HasStates(const Comparison& c, int32_t p) {
  return c.pairs[p].matched() && !c.target.RandomStateOf(c.pairs[p].target).empty() &&
         !c.golden.RandomStateOf(c.pairs[p].golden).empty();
}
bool SameState(const Comparison& c, int32_t p) {
  return c.target.RandomStateOf(c.pairs[p].target) == c.golden.RandomStateOf(c.pairs[p].golden);
}

// Whether only one run makes the call, and it draws.
bool DrawsAlone(const Comparison& c, int32_t p) {
  if (c.pairs[p].matched()) return false;
  const Dump& dump = c.pairs[p].target >= 0 ? c.target : c.golden;
  const Record& record = RecordOf(c, p);
  return record.direction == Direction::kForward && Draws(dump, record);
}

// Whether a call takes or makes tensors of other shapes: then it draws another number of numbers.
bool HasOtherShapes(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    if (c.measures[i].reason == Reason::kShapeDiffers) return true;
  }
  return false;
}

// The runs are not known to begin the step with one state; `differs`: they begin it with two.
RandomCause OfEarlierSteps(const Comparison& c, bool differs) {
  const std::string_view target = Provenance(c.target, "seed"),
                         golden = Provenance(c.golden, "seed");
  if (target.empty() || golden.empty()) {
    return {{},
            "this operation draws random numbers: compare the seeds of both runs, and what they "
            "draw before it"_t};
  }
  if (target != golden) {
    return {"it draws random numbers, and the seed is {} in the target, {} in the golden"_t(target,
                                                                                            golden),
            "fix the seed on both sides before looking further"_t};
  }
  if (!differs) {
    return {"it draws random numbers, and both runs have the seed {}"_t(target),
            "compare what draws random numbers before this call: the initialisation, the order of "
            "the data, an earlier step"_t};
  }
  return {
      "it draws random numbers: both runs have the seed {}, and the state of the "
      "generator was another one already when this step began"_t(target),
      "compare what draws random numbers before this step: the initialisation, the order of the "
      "data, an earlier step"_t};
}

// "npu" of a dump whose provenance names the device "npu: Ascend910B".
std::string_view DeviceType(const Dump& dump) {
  const std::string_view device = Provenance(dump, "device");
  return device.substr(0, device.find(':'));
}

// Generators of two types of devices draw different numbers from one seed.
RandomCause OfOtherDevices(const Comparison& c) {
  const std::string_view target = DeviceType(c.target), golden = DeviceType(c.golden);
  if (target.empty() || golden.empty() || target == golden) return {};
  return {
      "it draws random numbers, and the generators of {} (target) and {} (golden) "
      "draw different ones "
      "from one seed"_t(target, golden),
      "no seed helps: for this comparison switch dropout off "
      "(msprobe.pytorch.seed_all(rm_dropout=True), or p=0), or "
      "draw on the CPU in both runs"_t};
}

// The states agree at the paired call `last` (-1: at the beginning of the step) and differ at the
// next one that both runs record, `next`.
RandomCause OfCallsBetween(const Comparison& c, int32_t last, int32_t next) {
  for (int32_t p = last + 1; p < next; ++p) {
    if (!DrawsAlone(c, p)) continue;
    return {"it draws random numbers, and before it only the {} calls {}, which draws, too"_t(
                c.pairs[p].target >= 0 ? "target"_t : "golden"_t, Named(c, p)),
            "the seeds are not the reason: let both runs draw the same numbers before this call"_t};
  }
  if (last >= 0 && HasOtherShapes(c, last)) {
    return {"it draws random numbers, and {} drew another number of them before"_t(Named(c, last)),
            "the seeds are not the reason: compare the shapes of that call"_t};
  }
  return {
      "it draws random numbers: between {} and {} one run drew other ones in code that is not "
      "recorded"_t(last >= 0 ? Message(EntryName(c, last)) : "the beginning of the step"_t,
                   EntryName(c, next)),
      "the seeds are not the reason: look for code between the two that draws random numbers"_t};
}

}  // namespace

RandomCause CauseOfOtherDraw(const Comparison& c, int32_t p) {
  const RecordPair& pair = c.pairs[p];
  if (!pair.matched() || RecordOf(c, p).direction != Direction::kForward) return {};
  if (!Draws(c.target, c.target.records[pair.target]) &&
      !Draws(c.golden, c.golden.records[pair.golden]))
    return {};
  if (HasStates(c, p)) {
    if (SameState(c, p)) return {};
    if (RandomCause cause = OfRecomputation(c, pair.target, pair.golden); !cause.advice.empty())
      return cause;
  }
  if (RandomCause cause = OfOtherDevices(c); !cause.advice.empty()) return cause;
  int32_t last = p - 1, next = p;
  for (; last >= 0; --last) {
    if (!HasStates(c, last)) continue;
    if (SameState(c, last)) break;
    next = last;
  }
  const std::string_view begun[] = {Provenance(c.target, "random_state"),
                                    Provenance(c.golden, "random_state")};
  if (last < 0 && (begun[0].empty() || begun[0] != begun[1]))
    return OfEarlierSteps(c, !begun[0].empty() && !begun[1].empty());
  return OfCallsBetween(c, last, next);
}

}  // namespace msprobe::compare
