#include "engine/compare/compare.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>

#include "engine/base/threads.h"
#include "engine/compare/align/align.h"
#include "engine/compare/align/mindspore_apis.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/first_bits.h"
#include "engine/compare/explain/summary.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/layouts/wrong_ranks.h"
#include "engine/compare/measure/common_data.h"
#include "engine/compare/measure/dtype_arguments.h"
#include "engine/compare/measure/exact_bits.h"
#include "engine/compare/measure/measure.h"
#include "engine/compare/measure/run_start.h"
#include "engine/compare/measure/uncounted_values.h"
#include "engine/compare/measure/unwritten.h"
#include "engine/compare/model/compiled_code.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/proofs/check.h"
#include "engine/compare/relations/decide.h"
#include "engine/compare/relations/left_gradients.h"
#include "engine/compare/repeat_spread.h"

namespace msprobe::compare {
namespace {

Status CheckMapping(const Dump& target, const NameMapping& mapping) {
  if (mapping.apis.empty() && mapping.leaves.empty()) return Status::Ok();
  for (const Record& r : target.records) {
    if (!mapping.apis.empty() && mapping.apis.count(std::string(r.api)) > 0) return Status::Ok();
  }
  if (!mapping.leaves.empty()) {
    for (const Leaf& leaf : target.leaves) {
      if (mapping.leaves.count(std::string(leaf.name)) > 0) return Status::Ok();
    }
  }
  const std::string& first =
      mapping.apis.empty() ? mapping.leaves.begin()->first : mapping.apis.begin()->first;
  return InvalidArgument()
      .At(target.path)
      .Expected("at least one name of the mapping in the target"_t)
      .Found("none of {}, the first being {}"_t(mapping.apis.size() + mapping.leaves.size(),
                                                Excerpt(first)))
      .Hint(
          "the mapping's left names are the target's; swap the two sides if they are the "
          "golden's"_t);
}

// Alike on both sides are exceptions by which a program works: torch.utils.checkpoint ends a
// recomputation with one.
void NoteExceptions(const Comparison& c, std::vector<Message>* out) {
  const auto thrown = [](const Dump& dump) {
    return std::count_if(dump.records.begin(), dump.records.end(),
                         [](const Record& r) { return !r.exception.empty(); });
  };
  if (thrown(c.target) == thrown(c.golden)) return;
  for (const Dump* dump : {&c.target, &c.golden}) {
    const Message side = dump == &c.target ? "target"_t : "golden"_t;
    if (const auto count = thrown(*dump); count > 0) {
      out->push_back(count == 1 ? "1 call of the {} ended with an exception"_t(side)
                                : "{} calls of the {} ended with an exception"_t(count, side));
    }
  }
}

// Of which calls and values nothing is known, in numbers.
void NoteCounts(const Comparison& c, std::vector<Message>* out) {
  const auto add = [&](int64_t count, Message one, Message many) {
    if (count > 0) out->push_back(count == 1 ? std::move(one) : std::move(many));
  };
  const Summary s = Summarize(c);
  add(s.target_only_calls, "1 call of the target has no partner in the golden"_t,
      "{} calls of the target have no partner in the golden"_t(s.target_only_calls));
  add(s.golden_only_calls, "1 call of the golden has no partner in the target"_t,
      "{} calls of the golden have no partner in the target"_t(s.golden_only_calls));
  add(s.unreadable_rows, "1 tensor file pair could not be read"_t,
      "{} tensor file pairs could not be read"_t(s.unreadable_rows));
  add(s.too_wide, "1 row differs by what rounding explains, which may be nearly anything there"_t,
      "{} rows differ by what rounding explains, which may be nearly anything there"_t(s.too_wide));
  const auto count_reason = [&](Reason reason) {
    return std::count_if(c.measures.begin(), c.measures.end(),
                         [&](const Measure& m) { return m.reason == reason; });
  };
  const int64_t nan = count_reason(Reason::kBothNaN), moved = count_reason(Reason::kGradientOrder),
                apart = count_reason(Reason::kNoCommonNumber);
  add(nan, "1 row is NaN on both sides, which says nothing about the elements"_t,
      "{} rows are NaN on both sides, which says nothing about the elements"_t(nan));
  add(moved, "1 gradient has another place in the other tool's order of inputs"_t,
      "{} gradients have another place in the other tool's order of inputs"_t(moved));
  add(apart, "1 row has no number that both sides recorded"_t,
      "{} rows have no number that both sides recorded"_t(apart));
}

void NoteWhatWasNotObserved(Comparison* c) {
  std::vector<Message>& out = c->not_observed;
  const bool other_steps =
      c->mode == Mode::kTensor && c->target.sample_step != c->golden.sample_step;
  if (other_steps) {
    out.push_back(
        "the target was sampled with dump_step {}, the golden with dump_step {}: of tensors of "
        "more "
        "than 512 elements, those that both sides have are compared"_t(c->target.sample_step,
                                                                       c->golden.sample_step));
  }
  for (const bool is_target : {true, false}) {
    const Dump& dump = is_target ? c->target : c->golden;
    const Message side = is_target ? "target"_t : "golden"_t;
    if (!dump.complete) {
      out.push_back(Message::Joined(
          {"the {} run ended before its dump was closed"_t(side), dump.note}, ": "));
    } else if (!dump.note.empty()) {
      out.push_back(Message::Joined({side, dump.note}, ": "));
    }
    if (dump.records.empty()) out.push_back("the {} holds no record"_t(side));
    if (dump.sampled && c->mode == Mode::kTensor && !other_steps) {
      out.push_back("the {} holds samples of its tensors: the other elements"_t(side));
    }
    if (dump.stacks.empty() && !dump.records.empty() && !FactsOf(dump.dialect).has_no_calls) {
      out.push_back(
          "the {} has no call stacks (stack.json): calls are aligned without source lines"_t(side));
    }
  }
  NoteExceptions(*c, &out);
  const auto has_backward = [](const Dump& dump) {
    return std::any_of(dump.records.begin(), dump.records.end(),
                       [](const Record& r) { return r.direction == Direction::kBackward; });
  };
  const bool tb = has_backward(c->target), gb = has_backward(c->golden);
  const bool files =
      FactsOf(c->target.dialect).has_no_calls && FactsOf(c->golden.dialect).has_no_calls;
  if (files) {
    // A tensor file does not tell whether a backward pass made it.
  } else if (!tb && !gb && !c->target.records.empty()) {
    out.push_back("no backward pass was recorded on either side"_t);
  } else if (tb != gb) {
    out.push_back("the {} recorded no backward pass"_t(tb ? "golden"_t : "target"_t));
  }
  for (Message& compiled : DescribeCompiledCalls(*c)) out.push_back(std::move(compiled));
  NoteCounts(*c, &out);
}

// How the values of ranks were joined (layouts/), beside the rows that they are in.
void NoteJoined(Comparison* c) {
  if (c->target.joined.empty() && c->golden.joined.empty()) return;
  c->notes.resize(c->rows.size());
  for (size_t i = 0; i < c->rows.size(); ++i) {
    const Row& row = c->rows[i];
    const JoinedLeaf* joined = row.target >= 0 ? c->target.JoinedOf(row.target) : nullptr;
    const JoinedLeaf* golden = row.golden >= 0 ? c->golden.JoinedOf(row.golden) : nullptr;
    const Message ours = joined == nullptr ? Message() : *joined->how;
    Message theirs = golden == nullptr ? Message() : *golden->how;
    if (theirs == ours) theirs = {};
    if (!ours.empty() && !theirs.empty()) theirs = "golden: {}"_t(std::move(theirs));
    c->notes[i] = Message::Joined({std::move(c->notes[i]), ours, std::move(theirs)}, "; ");
  }
}

// Makes gradients of an API call's inputs that differ unknown, when the two tools list these
// gradients in different orders: their partners are then uncertain. A gradient that is wrong still
// shows as a wrong input of the next backward call.
void ForgiveGradientOrder(Comparison* c) {
  // The gradients of two frameworks were paired by what they belong to (framework_leaves.h).
  if (OfTwoFrameworks(c->target, c->golden)) return;
  if (FactsOf(c->target.dialect).orders_gradients_by_argument ==
      FactsOf(c->golden.dialect).orders_gradients_by_argument) {
    return;
  }
  for (const RecordPair& pair : c->pairs) {
    if (pair.target < 0 || pair.golden < 0) continue;
    const Record& record = c->target.records[pair.target];
    if (record.is_module || record.direction != Direction::kBackward) continue;
    for (uint32_t row = pair.first_row; row < pair.first_row + pair.row_count; ++row) {
      const int32_t leaf = c->rows[row].target;
      Measure& m = c->measures[row];
      if (leaf < 0 || c->target.leaves[leaf].slot != Slot::kOutput) continue;
      if (m.verdict != RowVerdict::kDiffers) continue;
      m.verdict = RowVerdict::kUnknown;
      m.reason = Reason::kGradientOrder;
      m.severity = kernels::Diff::kNaN;
    }
  }
}

// Rows that say nothing of the two programs are taken out; the relations of the values decide.
void DecideByRelations(const CompareOptions& options, const LeftGradients& left,
                       const RepeatSpread& spread, Comparison* c) {
  c->tolerant = options.exactness == Exactness::kTolerant;
  // Measured noise goes before bits: the repeats have the environment of the golden, too.
  if (spread.empty() || options.exactness == Exactness::kExact)
    c->exact = WhyBitsDecide(options, *c);
  // The step before left values that are near: what is made of them has other bits.
  const bool arrives_near = options.carried != nullptr && !options.carried->left.empty();
  if (options.exactness != Exactness::kExact && arrives_near) c->exact = {};
  if (!c->exact.empty()) JudgeByBits(c);
  if (c->exact.empty()) spread.Judge(c);
  JudgeDTypeArguments(c);
  ForgiveOverwritten(c);
  ForgiveOtherForms(c);
  ForgiveOtherFramework(c);
  ForgiveGradientOrder(c);
  ForgiveUnwritten(c);
  FindCompiledCalls(c);
  relations::Carried first_step;
  relations::Carried* const carried =
      options.carried != nullptr ? options.carried.get() : &first_step;
  relations::ProofLook look;
  if (options.keep_proofs) {
    look = [c, before = *carried](const relations::Graph& target, const relations::Graph& golden,
                                  relations::Proofs* proofs) {
      CheckProofs(*c, target, golden, before, proofs);
    };
  }
  relations::Decide(left, carried, look, c);
  c->first.ranks = layouts::WrongRanks(*c);
  c->first.why = Message::Joined(
      {c->first.why, layouts::SayRanks(*c), spread.Sentence(*c, c->first.row)}, "; ");
  FindFirstBits(c);
  CompareRunStarts(c);
  NoteWhatWasNotObserved(c);
}

}  // namespace

Result<Comparison> Compare(Dump target, Dump golden, const CompareOptions& options) {
  return CompareWithRepeats(std::move(target), std::move(golden), options, {});
}

Result<Comparison> CompareWithRepeats(Dump target, Dump golden, const CompareOptions& options,
                                      std::deque<Dump> repeats) {
  if (!(options.tolerance >= 0)) {
    return InvalidArgument()
        .Expected("a tolerance of 0 or more"_t)
        .Found(fmt::format("{}", options.tolerance));
  }
  MSPROBE_ASSIGN_OR_RETURN(const Mode mode, ChooseMode(target, golden, options.mode));
  MSPROBE_RETURN_IF_ERROR(CheckMapping(target, options.mapping));
  ThreadPool& pool = options.pool != nullptr ? *options.pool : ThreadPool::Default();
  // Another layout makes other backward passes: one for each micro-batch, say.
  if (!target.ranks.empty() || !golden.ranks.empty())
    DropGradientsBefore(&target), DropGradientsBefore(&golden);
  const LeftGradients left(&target, &golden);
  for (Dump& repeat : repeats) DropGradientsBefore(&repeat);
  NameWeightsAlike(&target, &golden);
  Message reduced;
  if (mode == Mode::kStatistics) reduced = ReduceToStatistics(options, pool, &target, &golden);
  Comparison c;
  if (!reduced.empty()) c.not_observed.push_back(std::move(reduced));
  c.not_observed.insert(c.not_observed.end(), options.mapping.notes.begin(),
                        options.mapping.notes.end());
  c.target = std::move(target);
  c.golden = std::move(golden);
  c.mode = mode;
  c.tolerance = options.tolerance;
  c.thresholds = options.thresholds;
  c.operations = options.operations;
  AlignedDumps aligned = AlignDumps(c.target, c.golden, options);
  c.pairs = std::move(aligned.pairs);
  c.rows = std::move(aligned.rows);
  c.forward_of = std::move(aligned.forward_of);
  MeasureRows(options, &c);
  NoteJoined(&c);
  ForgiveUnrecordedChanges(&c);
  ForgiveImplementations(&c);
  ForgiveEqualArguments(&c);
  const RepeatSpread spread = RepeatSpread::Measure(options, std::move(repeats), &c);
  DecideByRelations(options, left, spread, &c);
  return c;
}

}  // namespace msprobe::compare
