#include "engine/compare/relations/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/explain.h"
#include "engine/compare/explain/explanation.h"
#include "engine/compare/model/precision_policies.h"
#include "engine/compare/model/value_names.h"
#include "engine/dump/read/source_line.h"

namespace msprobe::compare::relations {
namespace {

// Of a call that the other run makes in compiled code, where it shows in no module.
constexpr double kInCompiledCode = 0.5;

class Answer {
 public:
  Answer(const Comparison& comparison, const Relations& relations, const Candidate& candidate,
         bool without_effect)
      : c_(comparison),
        r_(relations),
        candidate_(candidate),
        pair_(PairOf()),
        row_(RowOf()),
        without_effect_(without_effect) {}

  FirstDivergence Text() const {
    if (candidate_.cause == Cause::kCoarser && !GoldenDType().empty()) return InAnotherDType();
    if (candidate_.cause == Cause::kCoarser && candidate_.golden == kNoId) {
      return Saying(
          "it rounds to {}, and the golden does not"_t(r_.t.values[candidate_.value].dtype.view()),
          "compute this part in the dtype of the golden"_t);
    }
    FirstDivergence f = c_.pairs[pair_].matched() ? OfPair() : OfOneRun();
    if (c_.pairs[pair_].matched()) f.confidence = std::min(f.confidence, Confidence());
    return f;
  }

 private:
  bool OfTarget() const { return candidate_.call != kNoId; }

  int32_t PairOf() const {
    const int32_t record =
        OfTarget() ? r_.t.calls[candidate_.call].record : r_.g.calls[candidate_.golden].record;
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if ((OfTarget() ? c_.pairs[p].target : c_.pairs[p].golden) == record)
        return static_cast<int32_t>(p);
    }
    return -1;
  }

  // The row of the candidate's value in its call.
  int32_t RowOf() const {
    const RecordPair& pair = c_.pairs[pair_];
    int32_t found = -1;
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const int32_t leaf = OfTarget() ? c_.rows[i].target : c_.rows[i].golden;
      if (leaf >= 0 && (OfTarget() ? r_.t : r_.g).ValueOfLeaf(leaf) == candidate_.value)
        found = static_cast<int32_t>(i);
    }
    return found;
  }

  double Confidence() const { return candidate_.sure ? 1.0 : 0.4 + 0.25 * candidate_.Evidence(); }

  FirstDivergence Begin(const EarlierCalls& before) const {
    FirstDivergence f = StartExplanation(c_, pair_, row_);
    f.call_class = TakesWrong() ? CallClass::kInherited : CallClass::kIntroduced;
    f.confidence = before.JudgedFactor() *
                   (c_.pairs[pair_].matched() ? c_.pairs[pair_].confidence : Confidence());
    return f;
  }

  // What goes in is wrong, and no call made it.
  bool TakesWrong() const {
    return candidate_.cause == Cause::kNoCallMadeIt || candidate_.cause == Cause::kAnotherWeight;
  }

  // "Torch.add.3.forward.output.0", by the call that made a value. A constant may have many makers:
  // it is what it holds, "0".
  static std::string Name(const Graph& run, ValueId v) {
    const Value& value = run.values[v];
    if (value.plain && value.moments.known && value.moments.low == value.moments.high)
      return fmt::format("{:g}", value.moments.high);
    return NameOfMaker(run, v);
  }
  static std::string NameOfMaker(const Graph& run, ValueId v) {
    const Value& value = run.values[v];
    if (value.maker == kNoId) return "";
    return std::string(run.dump.leaves[run.made[value.port].leaf].name);
  }

  FirstDivergence OfPair() const {
    const Call& call = OfTarget() ? r_.t.calls[candidate_.call] : r_.g.calls[candidate_.golden];
    const bool alone =
        OfTarget() ? r_.pair[candidate_.call] == kNoId : r_.partner[candidate_.golden] == kNoId;
    if (call.kind == CallKind::kUpdate && alone) {
      return Saying(
          "only the {} updates {} here"_t(OfTarget() ? "target"_t : "golden"_t, call.parameter),
          "compare which parameters the optimizers were given, and which of them get a "
          "gradient"_t);
    }
    switch (candidate_.cause) {
      case Cause::kAnotherInput:
      case Cause::kAnotherWeight:
        return Miswired();
      case Cause::kGradientNotAdded:
        return Saying("the gradient of this use is not added up in the target"_t,
                      "compare what is detached, and what the backward pass begins from"_t);
      case Cause::kWithoutGradient:
        return OfRegion(
            Saying("it takes a value that carries no gradient, where the golden's carries one"_t,
                   "look for detach, no_grad or requires_grad before this line"_t));
      case Cause::kWithGradient:
        return OfRegion(
            Saying("it takes a value that carries a gradient, where the golden's carries none"_t,
                   "look for detach, no_grad or requires_grad of the golden before this line"_t));
      case Cause::kNoCallMadeIt:
        if (FirstDivergence f = ExplainInherited(c_, TakerPair()); f.pair == pair_) return f;
        if (const int32_t row = SummarizeCall(c_, pair_).in.worst_row; row >= 0)
          return Saying(
              "{}: no recorded operation made the value: it comes from outside the "
              "recording, or an operation that is not recorded made it, such as "
              "indexing"_t(DescribeRow(c_, row)),
              "compare the data that enter here, and the code between this call and the one before "
              "it"_t);
        break;
      case Cause::kCoarser:
        if (row_ >= 0 && c_.rows[row_].golden >= 0)
          return Saying(
              "it computes from values that were rounded to a coarser dtype than the "
              "golden's: {}"_t(DescribeRow(c_, row_)),
              "compute this part, and keep what goes into it, in the dtype of the golden"_t);
        break;
      case Cause::kOtherPolicy:
        if (row_ >= 0)
          return Saying(Message::Joined({DescribePolicies(c_, pair_), DescribeRow(c_, row_)}, "; "),
                        "compare where the two programs begin and end autocast, and set the "
                        "default dtype"_t);
        break;
      default:
        break;
    }
    return ExplainIntroduced(c_, pair_);
  }

  // Where the results of several calls carry a gradient in one of the runs only, no_grad is around
  // all of them there: the line that they share calls them, unless the code of the two runs tells.
  FirstDivergence OfRegion(FirstDivergence f) const {
    const std::vector<CallId> region = CallsOfRegion();
    if (region.size() < 2 || !f.golden_line.empty()) return f;
    std::vector<std::string_view> shared;
    for (const CallId id : region) {
      const int32_t stack = r_.t.dump.records[r_.t.calls[id].record].stack;
      if (stack < 0) return f;
      const auto& frames = r_.t.dump.stacks[stack];
      if (id == region.front()) shared = frames;
      const auto differ =
          std::mismatch(shared.rbegin(), shared.rend(), frames.rbegin(), frames.rend());
      shared.erase(shared.begin(), differ.first.base());
    }
    const std::string line = dump::UserSourcePlace(shared).line;
    if (!line.empty() && line != f.source_line) f.caller_line = line;
    return f;
  }

  // The candidate's call, and those after it until one makes what carries a gradient in both runs.
  std::vector<CallId> CallsOfRegion() const {
    const CallId begins = r_.t.calls[candidate_.call].begins;
    std::vector<CallId> out;
    for (CallId id = begins; id < static_cast<CallId>(r_.t.calls.size()); ++id) {
      const CallKind kind = r_.t.HasOperations() ? CallKind::kOperation : CallKind::kModule;
      if (r_.t.calls[id].kind != kind || r_.pair[id] == kNoId) continue;
      bool differs = false, both = false;
      for (const Port& made : r_.t.Makes(id)) {
        const int32_t there = r_.PartnerLeaf(made.leaf);
        if (there < 0) continue;
        const auto mine = r_.t.dump.leaves[made.leaf].requires_grad.view(),
                   golden = r_.g.dump.leaves[there].requires_grad.view();
        differs |= mine != golden && !mine.empty() && !golden.empty();
        both |= mine == "True" && golden == "True";
      }
      if (both && !differs) break;
      if (differs) out.push_back(id);
    }
    return out;
  }

  // Where only modules were recorded, the candidate is the module around the call that takes the
  // value.
  int32_t TakerPair() const {
    for (const Taker& use : r_.t.TakersOf(candidate_.value)) {
      if (r_.t.calls[use.call].parent != candidate_.call) continue;
      for (int32_t p = pair_ - 1; p >= 0; --p) {
        if (c_.pairs[p].target == r_.t.calls[use.call].record && c_.pairs[p].matched()) return p;
      }
    }
    return pair_;
  }

  // `what`: the part of the sentence that is of this candidate.
  FirstDivergence Saying(Message what, Message advice) const {
    const EarlierCalls before = CountEarlierCalls(c_, pair_);
    FirstDivergence f = Begin(before);
    f.why = Message::Joined({DescribeEarlierCalls(c_, before), std::move(what)}, "; ");
    f.advice = std::move(advice);
    return f;
  }

  // What a call and its partner pass in place of each other: values by their names, or numbers.
  struct Passed {
    std::string mine, golden;
  };
  Passed WhatIsPassed() const {
    for (const Port& port : r_.t.Takes(candidate_.call)) {
      const ValueId w = r_.AtPartner(port);
      if (w == kNoId || r_.Fits(port.value, w)) continue;
      if (candidate_.another != kNoId && candidate_.another != port.value) continue;
      return {Name(r_.t, port.value), Name(r_.g, w)};
    }
    if (candidate_.golden == kNoId) return {};
    for (const Port& port : r_.g.Takes(candidate_.golden)) {
      const int32_t leaf = r_.TargetLeaf(port.leaf);
      if (leaf >= 0 && r_.AtTarget(port.leaf) == kNoId)
        return {std::string(r_.t.dump.leaves[leaf].value), NameOfMaker(r_.g, port.value)};
    }
    for (const Port& port : r_.t.Takes(candidate_.call)) {
      const int32_t leaf = r_.PartnerLeaf(port.leaf);
      if (leaf >= 0 && r_.AtPartner(port) == kNoId)
        return {NameOfMaker(r_.t, port.value), std::string(r_.g.dump.leaves[leaf].value)};
    }
    return {};
  }

  // A call that takes another value of the step, or another weight, than its partner.
  FirstDivergence Miswired() const {
    const Passed passed = WhatIsPassed();
    if (!passed.mine.empty() && !passed.golden.empty() && passed.mine != passed.golden) {
      return Saying("the target passes {}, the golden {}"_t(passed.mine, passed.golden),
                    "the two programs are wired differently here: compare the source lines"_t);
    }
    if (SummarizeCall(c_, pair_).in.differs) {
      FirstDivergence f = ExplainInherited(c_, pair_);
      if (f.pair == pair_) return f;
    }
    return Saying(candidate_.cause == Cause::kAnotherWeight
                      ? "it takes another parameter than the golden takes here"_t
                      : "it takes another value of the step than the golden takes here"_t,
                  "the two programs are wired differently here: compare the source lines"_t);
  }

  // After a call of one run: the first paired call that takes what it made, or what other calls of
  // one run made of it, where the other run takes something else; or else the first call with a
  // value that differs.
  struct Effect {
    int32_t pair = -1, row = -1;
    Tie tie = Tie::kPlace;
  };
  Effect FirstEffect() const {
    Effect first;
    const std::unordered_set<ValueId> made = MadeOfIt();
    for (int32_t p = pair_ + 1; p < static_cast<int32_t>(c_.pairs.size()); ++p) {
      const RecordPair& pair = c_.pairs[p];
      if (!pair.matched()) continue;
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
        if (c_.rows[i].target < 0 || c_.rows[i].golden < 0 ||
            c_.measures[i].verdict != RowVerdict::kDiffers)
          continue;
        const auto row = static_cast<int32_t>(i);
        const ValueId taken = TakenAt(row);
        if (IsMadeHere(taken)) return {p, row, Tie::kOutput};
        if (made.count(taken) > 0) return {p, row, Tie::kLeads};
        if (first.pair < 0) first = {p, row, Tie::kPlace};
      }
    }
    return first;
  }

  const Graph& Run() const { return OfTarget() ? r_.t : r_.g; }
  CallId Named() const { return OfTarget() ? candidate_.call : candidate_.golden; }

  // The argument in a row; kNoId: it is none.
  ValueId TakenAt(int32_t row) const {
    const int32_t leaf = OfTarget() ? c_.rows[row].target : c_.rows[row].golden;
    return Run().dump.leaves[leaf].slot == Slot::kOutput ? kNoId : Run().ValueOfLeaf(leaf);
  }

  bool IsMadeHere(ValueId v) const {
    const auto makes = Run().Makes(Named());
    return v != kNoId &&
           std::any_of(makes.begin(), makes.end(), [v](const Port& p) { return p.value == v; });
  }

  // What calls without a partner make of what the call made.
  std::unordered_set<ValueId> MadeOfIt() const {
    const std::vector<CallId>& partners = OfTarget() ? r_.pair : r_.partner;
    std::unordered_set<ValueId> made;
    std::vector<CallId> todo = {Named()};
    while (!todo.empty()) {
      const CallId call = todo.back();
      todo.pop_back();
      for (const Port& port : Run().Makes(call)) {
        if (!made.insert(port.value).second) continue;
        for (const Taker& use : Run().TakersOf(port.value)) {
          if (partners[use.call] == kNoId && use.call > call) todo.push_back(use.call);
        }
      }
    }
    return made;
  }

  // The dtype in which the golden makes the same, if it is another one.
  std::string_view GoldenDType() const {
    if (candidate_.golden == kNoId) return "";
    for (const Port& port : r_.g.Makes(candidate_.golden)) {
      const Value& made = r_.g.values[port.value];
      if (made.IsFloat() && made.dtype != r_.t.values[candidate_.value].dtype) return made.dtype;
    }
    return "";
  }

  FirstDivergence InAnotherDType() const {
    return Saying("the golden computes this in {}, and the target in {}"_t(
                      GoldenDType(), r_.t.values[candidate_.value].dtype.view()),
                  "compute this part in the dtype of the golden"_t);
  }

  FirstDivergence OfOneRun() const {
    const Effect effect = FirstEffect();
    if (c_.IsCompiled(pair_)) {  // the other run makes it in code that a compiler made
      if (effect.pair >= 0 && RecordOf(c_, effect.pair).is_module)
        return ExplainIntroduced(c_, effect.pair);
      if (effect.pair >= 0 && effect.tie == Tie::kOutput) return ExplainInherited(c_, effect.pair);
      FirstDivergence f = Saying(
          "the {} runs this call in compiled code (torch.compile), in which no "
          "operation is recorded"_t(OfTarget() ? "golden"_t : "target"_t),
          AdviceToRunEagerly());
      f.confidence = kInCompiledCode;
      f.row = -1;
      return f;
    }
    if (effect.pair >= 0) return ExplainUnmatched(c_, pair_, effect.pair, effect.row, effect.tie);
    const EarlierCalls before = CountEarlierCalls(c_, pair_);
    FirstDivergence f = Begin(before);
    f.row = -1;
    f.leads_to_it = true;
    f.why = Message::Joined(
        {DescribeEarlierCalls(c_, before), OfTarget() ? "this call exists only in the target"_t
                                                      : "this call exists only in the golden"_t},
        "; ");
    if (!without_effect_)
      f.why =
          Message::Joined({std::move(f.why), "its result reaches a result of the step"_t}, "; ");
    return f;
  }

  const Comparison& c_;
  const Relations& r_;
  const Candidate& candidate_;
  const int32_t pair_, row_;
  const bool without_effect_;
};

}  // namespace

FirstDivergence AnswerOf(const Comparison& comparison, const Relations& relations,
                         const Candidate& candidate, bool without_effect) {
  FirstDivergence f = Answer(comparison, relations, candidate, without_effect).Text();
  if (without_effect)
    f.why = Message::Joined({std::move(f.why), "it differs without effect on this step"_t}, "; ");
  return f;
}

}  // namespace msprobe::compare::relations
