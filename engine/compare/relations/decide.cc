#include "engine/compare/relations/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/base/messages/message.h"
#include "engine/base/threads.h"
#include "engine/compare/explain/classify.h"
#include "engine/compare/judge/limits.h"
#include "engine/compare/model/rounding.h"
#include "engine/compare/relations/answer.h"
#include "engine/compare/relations/common_factor.h"
#include "engine/compare/relations/expose.h"
#include "engine/compare/relations/relate.h"
#include "engine/compare/relations/values/graph.h"

namespace msprobe::compare::relations {
namespace {

constexpr size_t kMostRunnersUp = 5;
// Confidence in a gradient that lay there before, by the name of its parameter or by its shape.
constexpr double kLeft = 0.95, kLeftByShape = 0.7;
// In a value that is as many times the golden's as all gradients are.
constexpr double kOfFactor = 0.9, kFactorsAlike = 1e-3;

// Whether a recorded call that is no optimizer's step made the value.
bool IsWritten(const Graph& run, ValueId v) {
  return v != kNoId && std::ranges::none_of(run.MakersOf(v), [&](CallId maker) {
           return run.calls[maker].kind == CallKind::kUpdate;
         });
}

// Both runs as graphs, with one numbering of paths; made at the same time.
struct Runs {
  explicit Runs(Comparison& c) {
    const ContentIds& content = ContentOf(&c);
    Paths paths, own;
    ThreadPool::Default().Both([&] { target.emplace(c, Side::kTarget, content, &paths); },
                               [&] { golden.emplace(c, Side::kGolden, content, &own); });
    golden->Renumber(own, &paths);
  }

  std::optional<Graph> target, golden;
};

class Decision {
 public:
  Decision(const LeftGradients& left, const Carried& before, bool keep_proofs, Comparison* c)
      : c_(*c),
        proofs_(keep_proofs ? std::make_shared<Proofs>() : nullptr),
        runs_(*c),
        target_(*runs_.target),
        golden_(*runs_.golden),
        relations_(*c, target_, golden_, before, proofs_.get()),
        left_(left),
        exposure_(relations_, left.Differences(*c)),
        row_of_(c->target.leaves.size(), -1) {
    for (size_t i = 0; i < c->rows.size(); ++i) {
      if (c->rows[i].target >= 0) row_of_[c->rows[i].target] = static_cast<int32_t>(i);
    }
  }

  Carried Left() const { return LeaveBehind(relations_); }

  // Once, before Write.
  std::shared_ptr<Proofs> TakeProofs(const ProofLook& look) {
    proofs_->of_leaf.assign(c_.target.leaves.size(), kNoId);
    for (int32_t leaf = 0; leaf < static_cast<int32_t>(c_.target.leaves.size()); ++leaf)
      proofs_->of_leaf[leaf] = target_.ValueOfLeaf(leaf);
    const auto leaf_of = [](const Graph& run, ValueId v) {
      if (run.values[v].maker != kNoId) return run.made[run.values[v].port].leaf;
      const auto uses = run.TakersOf(v);
      return uses.empty() ? kNoId : run.taken[uses[0].port].leaf;
    };
    for (ValueId v = 0; v < static_cast<ValueId>(target_.values.size()); ++v) {
      ValueProof& proof = proofs_->values[v];
      proof.target_leaf = leaf_of(target_, v);
      proof.factor = relations_.of(v).factor;
      proof.exposed = exposure_.IsExposed(v) && !relations_.IsRight(v);
    }
    for (ValueId w = 0; w < static_cast<ValueId>(golden_.values.size()); ++w)
      proofs_->golden_leaf.push_back(leaf_of(golden_, w));
    look(target_, golden_, proofs_.get());
    return std::move(proofs_);
  }

  void Write() {
    JudgeRows();
    for (const Candidate& candidate : exposure_.candidates) MarkRows(candidate);
    c_.decided.emplace();
    for (const auto& [v, name] : target_.NamedWeights()) {
      (relations_.IsRight(v) ? c_.decided->related_weights : c_.decided->unrelated_weights)
          .push_back(name);
    }
    for (const NextWeight& each : relations_.NextWeights()) {
      if (IsWritten(target_, each.mine) && IsWritten(golden_, each.golden))
        c_.decided->written_weights.push_back(each.name);
    }
    FindComparedNowhere();
    CountOpenResults();
    MarkRewritten();
    ClassifyCalls(&c_);
    if (!AnyCompared()) return;
    std::vector<FirstDivergence> named;
    for (const Candidate& candidate : exposure_.candidates) {
      if (candidate.cause == Cause::kAnotherUpdate) continue;  // between_steps.h names the update
      named.push_back(Describe(candidate));
      if (named.size() > kMostRunnersUp) break;
    }
    if (named.empty()) return;
    c_.decided->differs = !exposure_.without_effect;
    c_.first = std::move(named.front());
    c_.runners_up.assign(std::make_move_iterator(named.begin() + 1),
                         std::make_move_iterator(named.end()));
    const Candidate& first = exposure_.candidates.front();
    if (first.cause == Cause::kLeftGradient)
      left_.Put(first.pass, c_.first.pair, first.sure ? kLeft : kLeftByShape, &c_);
    SayFactor(first);
  }

 private:
  // That all gradients are one number times the golden's says what to look for, and where the first
  // divergence is so, too, that it is nothing inside of the model.
  void SayFactor(const Candidate& candidate) {
    const std::optional<CommonFactor> found = FactorOfGradients(relations_);
    if (!found || exposure_.without_effect) return;
    c_.first.why = Message::Joined(
        {c_.first.why, "all {} gradients of parameters are the golden's times {:.4g}"_t(
                           found->gradients, found->factor)},
        "; ");
    if (candidate.call == kNoId || candidate.cause != Cause::kNoCallMadeIt ||
        std::abs(relations_.of(candidate.value).factor / found->factor - 1) > kFactorsAlike)
      return;
    c_.first.confidence = std::max(c_.first.confidence, kOfFactor);
    c_.first.advice =
        "compare what the loss or its gradient is multiplied by: a sum for a mean, another number "
        "of micro-batches, a loss scale, clipping"_t;
  }

  // What a candidate makes, or what no call made, is wrong, also where its value has the elements
  // of the golden's in another order.
  void MarkRows(const Candidate& candidate) {
    if (exposure_.without_effect) return;
    if (candidate.call == kNoId) return MarkWhereMissing(candidate.golden);
    if (candidate.cause == Cause::kNoCallMadeIt) {
      for (const Taker& use : target_.TakersOf(candidate.value)) {
        const Port& port = target_.taken[use.port];
        const int32_t row = row_of_[port.leaf];
        if (row >= 0 && c_.measures[row].reason == Reason::kOtherBits) MarkRow(use.call, port);
      }
      return;
    }
    for (const Port& port : target_.Makes(candidate.call)) {
      if (port.value == candidate.value) MarkRow(candidate.call, port);
    }
  }

  // Where the golden passes on what only it makes, the target passes another value of the step.
  void MarkWhereMissing(CallId golden) {
    if (golden == kNoId) return;
    if (!rewritten_rows_) {
      rewritten_rows_.emplace();
      for (size_t i = 0; i < c_.rows.size(); ++i) {
        if (c_.measures[i].reason == Reason::kRewritten)
          rewritten_rows_->emplace(c_.rows[i].golden, static_cast<int32_t>(i));
      }
    }
    for (const Port& made : golden_.Makes(golden)) {
      for (const Taker& use : golden_.TakersOf(made.value)) {
        const auto [first, last] = rewritten_rows_->equal_range(golden_.taken[use.port].leaf);
        for (auto row = first; row != last; ++row) {
          Measure& m = c_.measures[row->second];
          if (m.reason != Reason::kRewritten) continue;
          m.verdict = RowVerdict::kDiffers;
          m.reason = Reason::kNone;
        }
      }
    }
  }

  void MarkRow(CallId call, const Port& port) {
    const int32_t row = row_of_[port.leaf];
    if (row < 0 || c_.rows[row].golden < 0) return;
    Measure& m = c_.measures[row];
    if (m.verdict == RowVerdict::kEqual) return;
    m.verdict = RowVerdict::kDiffers;
    const bool like = m.reason == Reason::kOtherBits || m.reason == Reason::kRewritten ||
                      m.reason == Reason::kWithoutEffect || m.reason == Reason::kEnlarged;
    const bool made = target_.values[port.value].maker == call;
    if (like && relations_.of(port.value).like)
      m.reason =
          made && target_.calls[call].facts->Moves() ? Reason::kMoved : Reason::kOtherElements;
    else if (like)
      m.reason = FormOf(c_.rows[row]);
  }

  // What two rows have of another form.
  Reason FormOf(const Row& row) const {
    const Leaf &mine = c_.target.leaves[row.target], &other = c_.golden.leaves[row.golden];
    if (mine.kind != LeafKind::kTensor || other.kind != LeafKind::kTensor) return Reason::kNone;
    if (!mine.shape.SameWithoutOnes(other.shape)) return Reason::kShapeDiffers;
    const bool kinds = RoundingOf(mine.dtype).kind != RoundingOf(other.dtype).kind;
    return kinds ? Reason::kKindDiffers : Reason::kNone;
  }

  // The records of the target's candidates, and those of the forward calls of backward ones: what
  // they were called with is part of the answer.
  std::unordered_set<int32_t> NamedRecords() const {
    std::unordered_set<int32_t> records;
    for (const Candidate& candidate : exposure_.candidates) {
      if (candidate.call == kNoId) continue;
      const Call& call = target_.calls[candidate.call];
      records.insert(call.record);
      if (call.forward != kNoId) records.insert(target_.calls[call.forward].record);
    }
    return records;
  }

  void FindComparedNowhere() {
    const auto look = [this](const Graph& run, const std::vector<CallId>& partners, bool killed) {
      std::unordered_set<int32_t> records;
      for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
        const Call& call = run.calls[id];
        if (!killed && partners[id] == kNoId && call.kind == CallKind::kOperation &&
            call.makes == 0 && call.facts->in_place)
          records.insert(call.record);
      }
      return records;
    };
    const std::unordered_set<int32_t> mine = look(target_, relations_.pair, !c_.golden.complete);
    const std::unordered_set<int32_t> others =
        look(golden_, relations_.partner, !c_.target.complete);
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      if (!c_.pairs[p].matched() &&
          (mine.count(c_.pairs[p].target) > 0 || others.count(c_.pairs[p].golden) > 0))
        c_.decided->compared_nowhere.push_back(static_cast<int32_t>(p));
    }
  }

  void CountOpenResults() {
    const auto open = [](const Graph& run, int32_t leaf) {
      return leaf >= 0 && run.dump.leaves[leaf].slot == Slot::kOutput &&
             run.ValueOfLeaf(leaf) == kNoId;
    };
    for (const RecordPair& pair : c_.pairs) {
      if (!pair.matched()) continue;
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
        const Row& row = c_.rows[i];
        if (c_.measures[i].reason == Reason::kNoPartner)
          c_.decided->open_results += open(target_, row.target) || open(golden_, row.golden);
      }
    }
  }

  // Whether the runs have anything in common by which they can be judged.
  bool AnyCompared() const {
    return std::ranges::any_of(c_.pairs, [this](const RecordPair& pair) {
      if (!pair.matched()) return false;
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
        if (c_.measures[i].verdict != RowVerdict::kUnknown ||
            c_.measures[i].reason == Reason::kRewritten ||
            c_.measures[i].reason == Reason::kWithoutEffect)
          return true;
      }
      return false;
    });
  }

  // Operations that only one run calls, and of which nothing wrong is made: they compute what other
  // calls compute in the other run.
  void MarkRewritten() {
    const auto mark = [this](const Graph& run, const std::vector<CallId>& partners,
                             const auto& is_exposed, const auto& pair_of) {
      for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
        const Call& call = run.calls[id];
        const int32_t p = pair_of[call.record];
        const bool operation =
            call.kind == CallKind::kOperation || call.kind == CallKind::kBackward;
        // The backward call of a call that both runs make: its result is used in one of them only.
        const bool unused = call.forward != kNoId && partners[call.forward] != kNoId;
        if (partners[id] != kNoId || !operation || unused || p < 0 || c_.pairs[p].matched() ||
            c_.IsCompiled(p) || std::ranges::any_of(run.Makes(id), is_exposed))
          continue;
        c_.rewritten.resize(c_.pairs.size(), 0);
        c_.rewritten[p] = Comparison::kRewrite;
      }
    };
    std::vector<int32_t> of_target(c_.target.records.size(), -1),
        of_golden(c_.golden.records.size(), -1);
    for (size_t p = 0; p < c_.pairs.size(); ++p) {
      const RecordPair& pair = c_.pairs[p];
      if (pair.target >= 0) of_target[pair.target] = static_cast<int32_t>(p);
      if (pair.golden >= 0) of_golden[pair.golden] = static_cast<int32_t>(p);
    }
    // A run that was killed may have made the other calls later.
    if (c_.golden.complete)
      mark(
          target_, relations_.pair,
          [this](const Port& port) {
            return exposure_.IsExposed(port.value) && !relations_.IsRight(port.value);
          },
          of_target);
    if (c_.target.complete)
      mark(
          golden_, relations_.partner,
          [this](const Port& port) { return exposure_.IsGoldenExposed(port.value); }, of_golden);
  }

  // A row's verdict follows from the relation of its value and from whether it is exposed; that of
  // a plain argument from whether a result of its call is, or the call is named.
  void JudgeRows() {
    const std::unordered_set<int32_t> named = NamedRecords();
    for (const RecordPair& pair : c_.pairs) {
      if (!pair.matched()) continue;
      bool exposed = named.count(pair.target) > 0;
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
        const int32_t leaf = c_.rows[i].target;
        const ValueId v = leaf < 0 ? kNoId : target_.ValueOfLeaf(leaf);
        exposed |= v != kNoId &&
                   (exposure_.IsExposed(v) || exposure_.IsMisplaced(target_.CallOfLeaf(leaf), v));
      }
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i)
        JudgeRow(i, exposed);
    }
  }

  void JudgeRow(uint32_t i, bool call_is_exposed) {
    const Row& row = c_.rows[i];
    Measure& m = c_.measures[i];
    if (call_is_exposed && row.target >= 0 && row.golden >= 0 && HasOtherShape(row)) {
      m.verdict = RowVerdict::kDiffers;
      m.reason = Reason::kShapeDiffers;
      return;
    }
    const bool judged = m.verdict == RowVerdict::kNoise || m.verdict == RowVerdict::kDiffers;
    if (row.target < 0 || row.golden < 0 || !judged) return;
    const ValueId v = target_.ValueOfLeaf(row.target), w = golden_.ValueOfLeaf(row.golden);
    if (!c_.exact.empty()) {  // bits decide; but two calls may have changed their places
      const bool moved = v != kNoId && w != kNoId &&
                         relations_.of(v).strength == Strength::kEqual && relations_.Has(w) &&
                         !relations_.Fits(v, w);  // what is only rounded differently has not
      if (!moved || !exposure_.candidates.empty()) return;
    }
    if (v == kNoId || w == kNoId) {
      if (call_is_exposed || m.verdict == RowVerdict::kNoise) return;
      m.verdict = RowVerdict::kUnknown;
      m.reason = Reason::kWithoutEffect;
    } else if (relations_.of(v).unknown && !IsOffByRounding(i, v, w)) {
      m.verdict = RowVerdict::kUnknown;
      m.reason = Reason::kTooWide;
    } else if ((exposure_.IsExposed(v) && !relations_.IsRight(v)) ||
               exposure_.IsMisplaced(target_.CallOfLeaf(row.target), v)) {
      m.verdict = RowVerdict::kDiffers;
    } else if (relations_.IsRight(v) && relations_.Fits(v, w)) {
      if (m.verdict == RowVerdict::kDiffers) m.reason = Reason::kEnlarged;
      m.verdict = RowVerdict::kNoise;
    } else if (m.verdict == RowVerdict::kNoise && !relations_.IsRight(v) &&
               IsOffByRounding(i, v, w)) {
      return;  // a weight may be off by less than rounding, and by more than its update explains
    } else {
      m.verdict = RowVerdict::kUnknown;
      m.reason = relations_.IsRight(v) ? Reason::kRewritten : Reason::kWithoutEffect;
    }
  }

  // Whether the elements of a row are apart by no more roundings than a row is judged by.
  bool IsOffByRounding(uint32_t i, ValueId v, ValueId w) const {
    const Rounding rounding = RoundingOfRow(c_, static_cast<int32_t>(i));
    const double apart = relations_.ApartOf(v, w, relations_.Terms(v)).in_order;
    return apart <= Limits(c_, "").Explained(rounding) * rounding.epsilon;
  }

  // An argument with the shape that another call gave it; of a result the elements tell.
  bool HasOtherShape(const Row& row) const {
    const Leaf &mine = c_.target.leaves[row.target], &other = c_.golden.leaves[row.golden];
    return mine.kind == LeafKind::kTensor && other.kind == LeafKind::kTensor &&
           mine.slot != Slot::kOutput && mine.shape.view() != other.shape.view();
  }

  FirstDivergence Describe(const Candidate& candidate) {
    FirstDivergence d = AnswerOf(c_, relations_, candidate, exposure_.without_effect);
    if (d.row >= 0 && c_.pairs[d.pair].matched() &&
        c_.measures[d.row].verdict != RowVerdict::kEqual)
      c_.measures[d.row].verdict = RowVerdict::kDiffers;
    if (c_.pairs[d.pair].matched()) {
      c_.classes[d.pair] =
          d.call_class == CallClass::kInherited ? CallClass::kInherited : CallClass::kIntroduced;
    }
    return d;
  }

  Comparison& c_;
  std::shared_ptr<Proofs> proofs_;  // null: nobody asks
  Runs runs_;
  const Graph &target_, &golden_;
  Relations relations_;
  const LeftGradients& left_;
  Exposure exposure_;
  std::vector<int32_t> row_of_;  // of each leaf of the target
  // By their leaves of the golden, once they are asked for.
  std::optional<std::unordered_multimap<int32_t, int32_t>> rewritten_rows_;
};

// Whether the runs make the same calls with the same values, in one form: then nothing is to be
// decided, and large dumps need no graphs.
bool NothingDiffers(const Comparison& c) {
  const auto same_form = [&](const Row& row) {
    const Leaf &mine = c.target.leaves[row.target], &other = c.golden.leaves[row.golden];
    return mine.kind == other.kind && mine.dtype == other.dtype &&
           mine.shape.view() == other.shape.view();
  };
  for (const RecordPair& pair : c.pairs) {
    if (!pair.matched()) return false;
  }
  for (size_t i = 0; i < c.rows.size(); ++i) {
    const Row& row = c.rows[i];
    if (row.target < 0 || row.golden < 0 || !same_form(row)) return false;
    const Measure& m = c.measures[i];
    if (m.verdict != RowVerdict::kEqual && m.reason != Reason::kNothingRecorded) return false;
  }
  return true;
}

}  // namespace

void Decide(const LeftGradients& left, Carried* carried, const ProofLook& look, Comparison* c) {
  const Carried before = std::move(*carried);
  if (!look && NothingDiffers(*c) && left.Differences(*c).empty()) {
    *carried = {};
    c->decided.emplace();
    ClassifyCalls(c);
    return;
  }
  Decision decision(left, before, static_cast<bool>(look), c);
  *carried = decision.Left();
  const std::shared_ptr<Proofs> proofs = look ? decision.TakeProofs(look) : nullptr;
  decision.Write();
  if (proofs == nullptr) return;
  proofs->of_leaf.resize(c->target.leaves.size(), kNoId);  // some were added with the answer
  c->decided->proofs = proofs;
}

}  // namespace msprobe::compare::relations
