#include "engine/compare/relations/decide.h"

#include <fmt/core.h>

#include <utility>

#include "engine/compare/explain/classify.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/relations/expose.h"
#include "engine/compare/relations/graph.h"
#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {
namespace {

constexpr size_t kMostRunnersUp = 5;

class Decision {
 public:
  Decision(const Carried& before, Comparison* c)
      : c_(*c),
        content_(ContentOf(*c)),
        target_(*c, Side::kTarget, *content_, &paths_),
        golden_(*c, Side::kGolden, *content_, &paths_),
        relations_(*c, target_, golden_, before),
        exposure_(relations_) {}

  Carried Left() const { return LeaveBehind(relations_); }

  void Write() {
    JudgeRows();
    c_.unrelated_weights.emplace();
    for (const auto& [v, name] : target_.NamedWeights()) {
      if (!relations_.IsRight(v)) c_.unrelated_weights->push_back(name);
    }
    ClassifyCalls(&c_);
    std::vector<FirstDivergence> named;
    for (const Candidate& candidate : exposure_.candidates) {
      if (candidate.cause == Cause::kAnotherUpdate) continue;  // between_steps.h names the update
      named.push_back(Describe(candidate));
      if (named.size() > kMostRunnersUp) break;
    }
    if (named.empty()) return;
    c_.first = std::move(named.front());
    c_.runners_up.assign(std::make_move_iterator(named.begin() + 1),
                         std::make_move_iterator(named.end()));
  }

 private:
  // A row's verdict follows from the relation of its value and from whether it is exposed; that of a
  // plain argument from whether a result of its call is.
  void JudgeRows() {
    for (const RecordPair& pair : c_.pairs) {
      if (!pair.matched()) continue;
      bool exposed = false;
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
        const int32_t leaf = c_.rows[i].target;
        const ValueId v = leaf < 0 ? kNoId : target_.ValueOfLeaf(leaf);
        exposed |= v != kNoId && exposure_.IsExposed(v);
      }
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i)
        JudgeRow(i, exposed);
    }
  }

  void JudgeRow(uint32_t i, bool call_is_exposed) {
    const Row& row = c_.rows[i];
    Measure& m = c_.measures[i];
    const bool judged = m.verdict == RowVerdict::kNoise || m.verdict == RowVerdict::kDiffers;
    if (row.target < 0 || row.golden < 0 || !judged) return;
    const ValueId v = target_.ValueOfLeaf(row.target), w = golden_.ValueOfLeaf(row.golden);
    if (v == kNoId || w == kNoId) {
      if (call_is_exposed || m.verdict == RowVerdict::kNoise) return;
      m.verdict = RowVerdict::kUnknown;
      m.reason = Reason::kWithoutEffect;
    } else if (exposure_.IsExposed(v) && !relations_.IsRight(v)) {
      m.verdict = RowVerdict::kDiffers;
    } else if (relations_.IsRight(v) && relations_.Fits(v, w)) {
      if (m.verdict == RowVerdict::kDiffers) m.reason = Reason::kEnlarged;
      m.verdict = RowVerdict::kNoise;
    } else {
      m.verdict = RowVerdict::kUnknown;
      m.reason = relations_.IsRight(v) ? Reason::kRewritten : Reason::kWithoutEffect;
    }
  }

  int32_t PairOf(const Candidate& candidate) const {
    const bool mine = candidate.call != kNoId;
    const int32_t record =
        mine ? target_.calls[candidate.call].record : golden_.calls[candidate.golden].record;
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if ((mine ? c_.pairs[p].target : c_.pairs[p].golden) == record)
        return static_cast<int32_t>(p);
    }
    return -1;
  }

  FirstDivergence Describe(const Candidate& candidate) {
    FirstDivergence d;
    d.pair = PairOf(candidate);
    const RecordPair& pair = c_.pairs[d.pair];
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const Row& row = c_.rows[i];
      const int32_t leaf = candidate.call != kNoId ? row.target : row.golden;
      const Graph& run = candidate.call != kNoId ? target_ : golden_;
      if (leaf >= 0 && run.ValueOfLeaf(leaf) == candidate.value) d.row = static_cast<int32_t>(i);
    }
    if (d.row >= 0 && pair.matched() && c_.measures[d.row].verdict != RowVerdict::kEqual)
      c_.measures[d.row].verdict = RowVerdict::kDiffers;
    d.call_class = pair.matched() ? CallClass::kIntroduced : CallClass::kUnknown;
    c_.classes[d.pair] = d.call_class;
    d.leads_to_it = !pair.matched();
    d.confidence = candidate.sure ? 0.95 : 0.3 + 0.25 * candidate.Evidence();
    d.module = ModuleAround(c_, d.pair);
    const dump::SourcePlace place = SourcePlaceOf(c_, d.pair);
    d.source_line = place.line;
    d.caller_line = place.caller;
    d.golden_line = GoldenLineOf(c_, d.pair);
    d.why = Why(candidate, d);
    return d;
  }

  std::string Why(const Candidate& candidate, const FirstDivergence& d) const {
    switch (candidate.cause) {
      case Cause::kAnotherResult:
        return "its arguments are those of the golden, and its result is another one";
      case Cause::kMadeDifferently:
        return "its arguments are those of the golden, and it is called with other settings";
      case Cause::kAnotherInput:
        return "it takes another value of the step than the golden takes here";
      case Cause::kAnotherWeight:
        return "it takes another parameter than the golden takes here";
      case Cause::kMissing:
        return "the target does not call it, and takes what it should have been made of";
      case Cause::kNowhere:
        return "the target has nowhere what it makes";
      case Cause::kOnlyHere:
        return "only the target calls it, and its result reaches a result of the step";
      case Cause::kNoCallMadeIt:
        return "it takes a value that no recorded call made";
      case Cause::kGradientNotAdded:
        return "the gradient of this use is not added up";
      case Cause::kWithoutGradient:
        return "it takes a value that carries no gradient, where the golden's carries one";
      case Cause::kAnotherUpdate:
        return "the step began with another weight";
      case Cause::kCoarser:
        return "it computes in a coarser dtype than the golden";
      case Cause::kOtherIntegers:
        return "it makes other integers";
    }
    return d.why;
  }

  Comparison& c_;
  std::shared_ptr<const ContentIds> content_;
  Paths paths_;
  Graph target_, golden_;
  Relations relations_;
  Exposure exposure_;
};

}  // namespace

void Decide(Carried* carried, Comparison* c) {
  const Carried before = std::move(*carried);
  Decision decision(before, c);
  decision.Write();
  *carried = decision.Left();
}

}  // namespace msprobe::compare::relations
