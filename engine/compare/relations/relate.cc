#include "engine/compare/relations/relate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "engine/base/threads.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"
#include "engine/compare/relations/values/mask.h"

namespace msprobe::compare::relations {
namespace {

constexpr double kTelling = 24;  // bits; contents with fewer are equal by chance

std::string_view Setting(const Dump& dump, std::string_view key) {
  for (const auto& [name, value] : dump.provenance) {
    if (name == key) return value;
  }
  return {};
}

bool SameEnvironment(const Dump& a, const Dump& b) {
  if (a.provenance.empty() || b.provenance.empty()) return false;
  for (const std::string_view key :
       {"torch", "device", "threads", "onednn", "matmul_precision", "cpu", "deterministic"}) {
    if (Setting(a, key) != Setting(b, key)) return false;
  }
  const std::string_view exact = Setting(a, "deterministic");
  return Setting(a, "device") == "cpu" || exact == "true" || exact == "True";
}

}  // namespace

Relations::Relations(const Comparison& comparison, const Graph& target, const Graph& golden,
                     const Carried& before, Proofs* proofs)
    : c(comparison),
      t(target),
      g(golden),
      carried(before),
      log(proofs),
      of_two_frameworks(OfTwoFrameworks(target.dump, golden.dump)),
      pair(target.calls.size(), kNoId),
      partner(golden.calls.size(), kNoId),
      changed_(target.values.size(), 0),
      related_taken_(target.taken.size(), 0),
      related_made_(target.made.size(), 0),
      relations_(target.values.size()),
      wrong_(target.values.size(), 0),
      scaled_(target.values.size(), 0),
      terms_(target.values.size(), -1),
      coarse_(target.values.size(), -1),
      step_of_(log != nullptr ? target.values.size() : 0, -1),
      has_(golden.values.size(), 0),
      part_(target.values.size(), 0),
      covered_(golden.values.size(), 0),
      taken_(golden.values.size(), 0),
      transposed_(target.values.size(), 0),
      compiled_(golden.calls.size(), 0),
      golden_leaf_(target.dump.leaves.size(), kNoId),
      target_leaf_(golden.dump.leaves.size(), kNoId),
      scalar_differs_(target.dump.leaves.size(), 0),
      same_environment_(!comparison.tolerant && SameEnvironment(target.dump, golden.dump)) {
  if (log != nullptr) log->values.resize(t.values.size());
  ThreadPool::Default().Both(
      [this] {
        PairCalls();
        PairRecomputed();
        PairGradients();
        FindPlaces();
        FindBeside();
      },
      [this] { IndexGolden(); });
  for (const Graph* run : {&t, &g}) {
    for (const Port& port : run->made)
      coarsest_ = std::max(coarsest_, run->values[port.value].roundoff());
  }
  while (first_backward_ < static_cast<CallId>(t.calls.size()) &&
         !t.calls[first_backward_].IsBackward())
    ++first_backward_;
  FindArrivals();
  RelateAll();
  by_norm_ = {};
  by_elements_ = {};
  places_ = {};
  place_of_ = {};
  changed_ = related_taken_ = related_made_ = {};
}

// By what values of the golden are found that a value of the target may be.
void Relations::IndexGolden() {
  for (ValueId w = 0; w < static_cast<ValueId>(g.values.size()); ++w) {
    const Value& value = g.values[w];
    if (value.plain || !value.moments.known || !std::isfinite(value.moments.norm)) continue;
    complex_there_ |= value.IsComplex();
    by_norm_.Add(w, value);
    by_elements_.Add(ElementsKey(value.moments), w);
    if (const Mask mask = MaskOf(value); mask.coding != Mask::kNone)
      by_elements_.Add(MaskKey(mask), w);
  }
  by_elements_.Build();
  by_norm_.Build();
}

// Values with which the step began, and of which the step before knows something.
void Relations::FindArrivals() {
  const auto each_arrival = [](const Graph& run, const auto& use) {
    for (const Port& port : run.taken) {
      if (run.values[port.value].maker == kNoId && !run.values[port.value].plain)
        use(port.value, ContentKey(run.dump.leaves[port.leaf]));
    }
  };
  if (!carried.left.empty()) {
    std::unordered_map<uint64_t, ValueId> golden;
    each_arrival(g, [&](ValueId w, uint64_t key) {
      golden.emplace(key, w);
      if (carried.covered.count(key) > 0) covered_[w] = 1;
    });
    each_arrival(t, [&](ValueId v, uint64_t key) {
      const auto left = carried.left.find(key);
      if (left == carried.left.end()) return;
      const auto there = golden.find(left->second.golden);
      if (left->second.golden != 0 && there == golden.end()) return;
      arrivals_[v] = {.left = &left->second,
                      .golden = left->second.golden == 0 ? kNoId : there->second};
    });
  }
  for (const auto& [v, name] : t.NamedWeights()) {
    const auto unseen = carried.unseen.find(name);
    if (unseen != carried.unseen.end()) arrivals_[v].unseen = &unseen->second;
  }
}

// As the step before left it.
bool Relations::RelateAsLeft(ValueId v) {
  const auto found = arrivals_.find(v);
  if (found == arrivals_.end() || found->second.left == nullptr) return false;
  const Carried::Left& left = *found->second.left;
  Set(v, {.strength = left.in_order ? Strength::kNear : Strength::kSame,
          .proof = Proof::kLeftSo,
          .golden = found->second.golden,
          .error = left.error,
          .bound = left.bound,
          .proven = true});
  if (left.golden == 0) Keep<char>(&part_[v], 1, v);
  return true;
}

ValueId Relations::AtPartner(const Port& port) const {
  const int32_t leaf = golden_leaf_[port.leaf];
  return leaf < 0 ? kNoId : g.ValueOfLeaf(leaf);
}

ValueId Relations::AtTarget(int32_t golden_leaf) const {
  const int32_t leaf = target_leaf_[golden_leaf];
  return leaf < 0 ? kNoId : t.ValueOfLeaf(leaf);
}

// Gradients of parameters are recorded before the calls that made them.
std::vector<CallId> Relations::Order() const {
  std::vector<CallId> order, late;
  for (CallId id = 0; id < static_cast<CallId>(t.calls.size()); ++id) {
    const CallKind kind = t.calls[id].kind;
    if (kind == CallKind::kGradients) {
      late.push_back(id);
      continue;
    }
    if (kind == CallKind::kUpdate || kind == CallKind::kTotalNorm) {
      order.insert(order.end(), late.begin(), late.end());
      late.clear();
    }
    order.push_back(id);
  }
  order.insert(order.end(), late.begin(), late.end());
  return order;
}

void Relations::RelateAll() {
  const std::vector<CallId> order = Order();
  for (const CallId call : order) {
    for (const Port& port : t.Takes(call)) {
      if (t.IsWeight(port.value) && t.values[port.value].maker == kNoId)
        Relate(port.value, AtPartner(port), /*weight=*/true);
    }
  }
  FindPieces();
  // What a round relates may be a premise of what an earlier call made; relations only get
  // stronger.
  constexpr int kMostRounds = 4;
  for (int round = 0; round < kMostRounds; ++round) {
    const auto count = [this] {
      return std::accumulate(
          relations_.begin(), relations_.end(), int64_t{0},
          [](int64_t sum, const Relation& r) { return sum + static_cast<int>(r.strength); });
    };
    const int64_t before = count();
    all_gradients_ = {};
    round_ = round;
    for (const CallId call : order) RelateCall(call);
    ++now_;
    RelateHolders();
    if (round > 0 && count() == before) break;
  }
  for (ValueId w = 0; w < static_cast<ValueId>(g.values.size()); ++w) {
    const Value& value = g.values[w];
    const ValueId same = value.plain ? kNoId : t.WithContent(value.content);
    has_[w] = (same != kNoId && SameBits(same, w)) || covered_[w] != 0;
  }
  for (const Relation& r : relations_) {
    if (r.strength >= Strength::kSame && r.golden != kNoId) has_[r.golden] = 1;
  }
  FindAgain();
}

void Relations::RelateCall(CallId call) {
  bool again = false, open = false;
  const auto related_before = [&](ValueId v, uint64_t* related) {
    if (!MayChange(v, *related)) {
      open |= !IsKnown(v);
      return true;
    }
    *related = ++now_;  // before its terms change: then it is related once more in the next round
    SettleTerms(v);
    again = true;
    return false;
  };
  for (const Port& port : t.Takes(call)) {
    const ValueId v = port.value;
    // The norm of all gradients is taken by as many calls as it is made of: once a round is enough.
    const CallId maker = t.values[v].maker;
    if (maker != kNoId && t.calls[maker].kind == CallKind::kTotalNorm) {
      const TotalNorm now{v, round_, AtPartner(port)};
      open |= !IsKnown(v);
      if (std::exchange(total_norm_, now) == now) continue;
    }
    if (related_before(v, &related_taken_[&port - t.taken.data()])) continue;
    const Relation& r = of(v);
    if (r.proof == Proof::kNotTried || r.strength < Strength::kNear || r.unknown)
      Relate(v, AtPartner(port), false);
    SettleCoarse(v);
    open |= !IsKnown(v);
  }
  for (const Port& port : t.Makes(call)) {
    if (related_before(port.value, &related_made_[&port - t.made.data()])) continue;
    Relate(port.value, AtPartner(port), false);
    SettleCoarse(port.value);
    open |= !IsKnown(port.value);
  }
  ++now_;
  if (const auto [place, index] = place_of_[call]; place >= 0) {
    places_[place].open[index] = open;
    if (again) places_[place].related[index] = now_;
    RelateDivided(call);
  }
  RelateIndices(call);
  RelateTransposed(call);
  RelatePolar(call);
}

// Whether a value could be related otherwise than at `since`: what it was made of is known better,
// or its error is another one. Proofs are logged each time.
bool Relations::MayChange(ValueId v, uint64_t since) const {
  if (since == 0 || log != nullptr || changed_[v] > since) return true;
  const Value& value = t.values[v];
  const CallKind kind = value.maker == kNoId ? CallKind::kOperation : t.calls[value.maker].kind;
  // An optimizer's call may ask for all gradients of its entry, a module's for what arrives at it.
  if (kind == CallKind::kUpdate || (kind == CallKind::kGradients && !t.HasOperations()))
    return true;
  const bool seen = value.maker != kNoId && kind != CallKind::kGradients;
  if (!seen && noise_now_ > since) return true;
  if (value.maker == kNoId && of(v).strength == Strength::kSame) return true;  // taken_
  for (const ValueId w : t.InputsOf(v, /*saved=*/true)) {
    if (changed_[w] > since || (part_[w] != 0 && covered_now_ > since)) return true;
    if (of(w).strength != Strength::kEqual) continue;
    const Inputs before = t.InputsOf(w, /*saved=*/false);  // IsMadeReordered
    if (std::any_of(before.begin(), before.end(),
                    [this](ValueId u) { return of(u).strength == Strength::kSame; }))
      return true;
  }
  return false;
}

// Integers that a call takes as indices, of a result that has the rows of its partner's: they name
// the same rows, which are numbered in another order.
void Relations::RelateIndices(CallId call) {
  const CallId golden = pair[call];
  if (golden == kNoId || t.calls[call].kind != CallKind::kOperation) return;
  const auto known = [this](const Port& port) {
    return t.values[port.value].plain || IsKnown(port.value);
  };
  if (t.calls[call].facts->Moves() && !OtherApi(call) &&
      !OtherScalars(call)) {  // indices that are moved
    const auto takes = t.Takes(call);
    const auto index = [this](const Port& port) { return of(port.value).proof == Proof::kIndex; };
    if (std::all_of(takes.begin(), takes.end(), known) &&
        std::any_of(takes.begin(), takes.end(), index)) {
      for (const Port& port : t.Makes(call)) RelateIndex(port, call);
    }
  }
  bool in_another_order = false;
  for (const Port& port : t.Makes(call)) {
    if (!known(port)) return;
    in_another_order |= of(port.value).strength == Strength::kSame;
  }
  for (const Port& port : t.Takes(call)) {
    if (t.values[port.value].IsFloat()) {
      if (!known(port)) return;
      in_another_order |= of(port.value).strength == Strength::kSame;
    }
  }
  if (in_another_order && !OtherApi(call)) {
    for (const Port& port : t.Takes(call)) RelateIndex(port, call);
  }
}

void Relations::RelateIndex(const Port& port, CallId call) {
  const Value& value = t.values[port.value];
  const ValueId w = AtPartner(port);
  if (value.IsFloat() || value.plain || IsKnown(port.value) || w == kNoId ||
      value.dtype.dtype() != g.values[w].dtype.dtype() ||
      value.shape.view() != g.values[w].shape.view())
    return;
  for (const ValueId made_of : t.InputsOf(port.value, false)) {
    if (!IsKnown(made_of) && !t.values[made_of].plain) return;  // they may be others for that
  }
  Keep(&wrong_[port.value], 0.0, port.value);
  std::vector<ValueId> beside;
  for (const auto ports : {t.Takes(call), t.Makes(call)}) {
    for (const Port& other : ports) {
      if (other.value != port.value) beside.push_back(other.value);
    }
  }
  Set(port.value,
      {.strength = Strength::kSame, .proof = Proof::kIndex, .golden = w, .proven = true}, beside);
}

void Relations::Relate(ValueId v, ValueId w, bool weight) {
  const Value& value = t.values[v];
  Relation& old = relations_[v];
  if (value.plain) {
    RelateConstant(v, w);
    return;
  }
  if (old.strength == Strength::kEqual) return;
  const ValueId same = g.WithContent(value.content);
  const Relation equal{.strength = Strength::kEqual, .proof = Proof::kSameContent, .golden = same};
  const bool has_equal = same != kNoId && SameBits(v, same);
  // A mask that the golden has at another place may be the partner's in another order.
  const bool tells = BitsOf(value) >= kTelling;
  if (has_equal && (w == kNoId || w == same || tells)) {
    Set(v, equal);
    return;
  }
  if (RelateAsLeft(v)) return;
  const bool began = weight && value.maker == kNoId && w != kNoId;
  Bound model = BoundOf(v);
  model.exact |= !c.exact.empty();
  const auto arrival = arrivals_.find(v);
  const bool moved = arrival != arrivals_.end() && arrival->second.unseen != nullptr;
  if (moved) model.error = model.wide = BoundOfUnseen(v, w, *arrival->second.unseen);
  double wrong = 0;
  const double bound = NotHiding(v, model.error, value.roundoff(), &wrong);
  const double goes_in = wrong;
  const double surely = SurelyWrong(v);
  Relation best{.proof = Proof::kNotFound, .bound = bound};
  if (w != kNoId) {
    best = CompareWith(v, w, bound, model.exact,
                       moved   ? Proof::kMovedAlike
                       : began ? Proof::kBeganSo
                               : Proof::kPartner);
    if (best.strength == Strength::kNone)
      best = AsPadded(v, w, model.exact ? 0 : bound).value_or(best);
    if (best.strength == Strength::kNone && std::isfinite(best.error) &&
        best.error > surely * bound)
      wrong = best.error;
  }
  // What is a number times its partner is not something else that happens to have its size.
  const double factor = w != kNoId && best.strength == Strength::kNone ? FactorOf(v, w, bound) : 0;
  if (best.strength < (tells ? Strength::kNear : Strength::kSame) && factor == 0) {
    // Within so wide a bound something stands by chance: its partner is no less likely.
    const bool open =
        w != kNoId && model.wide > model.error && best.error <= model.wide && goes_in == 0;
    Relation other = Search(v, open ? kOwnRoundings * value.roundoff() : bound, model.exact);
    if (other.strength > best.strength) best = other;
    if (best.strength == Strength::kNone)
      best = AsAnyPairs(v, w, model.exact ? 0 : bound).value_or(best);
  }
  if (best.strength == Strength::kNone && w != kNoId && IsReordered(v, w)) {
    best.strength = Strength::kSame;
    best.proof = Proof::kReordered;
    best.golden = w;
    best.error = 0;
    best.proven = true;
    wrong = 0;
  }
  if (best.strength == Strength::kNone && has_equal) best = equal;
  const bool judges = model.exact || goes_in > 0 || !(model.wide > model.error);
  if (best.strength == Strength::kNone && factor == 0 && !judges) {
    best = AsUnknown(v, w, model.wide, best);
    if (best.unknown || best.error <= surely * best.bound) wrong = 0;
  }
  Keep(&wrong_[v], best.strength == Strength::kNone ? wrong : 0, v);
  best.doubtful = IsDoubtful(v, best);
  best.moved = IsMoved(v, best);
  best.like = best.like || wrong > 0;
  if (best.strength == Strength::kNone) best.factor = factor;
  Keep(&scaled_[v], wrong_[v] > 0 ? ErrorOfFactor(v, best) : 0, v);
  const bool known = old.unknown && !best.unknown && best.strength == old.strength;
  if (best.strength > old.strength || known || old.proof == Proof::kNotTried)
    Set(v, best);
  else if (log != nullptr && best.strength == Strength::kNone && old.strength == Strength::kNone)
    Log(v, best, {}, -1);  // it is wrong by more, or by less, than was known
  if (old.strength == Strength::kNone) old.factor = best.factor;
}

// Where the bound is too wide to judge: what is within it is unknown, and nothing says that it is
// wrong. Where something unrelated went in, or at another place, a sketch must prove it, and no
// chance.
Relation Relations::AsUnknown(ValueId v, ValueId w, double bound, const Relation& unrelated) const {
  Relation best = unrelated;
  if (w != kNoId) {
    best = CompareWith(v, w, bound, /*exact=*/false,
                       unrelated.proof == Proof::kNotFound ? Proof::kPartner : unrelated.proof);
    best.unknown = best.strength == Strength::kNear;
    if (best.unknown && !IsOfUnrelated(v)) return best;
    best.strength = Strength::kNone;
  }
  Relation other = Search(v, bound, /*exact=*/false, /*wide=*/true);
  if (other.strength != Strength::kNear || !other.proven) return best;
  other.unknown = true;
  return other;
}

void Relations::Set(ValueId v, const Relation& r, std::span<const ValueId> more, int32_t together) {
  if (log != nullptr) {  // before: it may be one of its own premises
    Log(v, r, more, together);
    log->values[v].step = step_of_[v];
  }
  Keep(&relations_[v], r, v);
  const bool tells = !t.values[v].plain;  // any constant is near any other one of its number
  if (tells && r.strength >= Strength::kNear && r.golden != kNoId) taken_[r.golden] = 1;
}

void Relations::Log(ValueId v, const Relation& r, std::span<const ValueId> more, int32_t together) {
  std::vector<ValueId> used;
  if (r.proof != Proof::kSameContent) used = t.InputsOf(v, /*saved=*/true).Copy();
  used.insert(used.end(), more.begin(), more.end());
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  step_of_[v] = LogStep(v, r, used, together);
}

int32_t Relations::LogStep(ValueId v, const Relation& r, std::span<const ValueId> used,
                           int32_t together) const {
  ProofStep step{.strength = r.strength,
                 .proof = r.proof,
                 .proven = r.proven,
                 .unknown = r.unknown,
                 .value = v,
                 .golden = r.golden,
                 .together = together,
                 .error = r.error,
                 .bound = r.bound,
                 .first_premise = static_cast<uint32_t>(log->premises.size())};
  for (const ValueId w : used) {
    log->premises.push_back({.value = w,
                             .step = step_of_[w],
                             .error = MeasuredOrBound(w),
                             .terms = Terms(w),
                             .coarse = Coarse(w),
                             .wrong = wrong_[w],
                             .scaled = scaled_[w]});
  }
  if (v != kNoId) {
    step.terms = Terms(v);
    step.wrong = r.strength == Strength::kNone ? wrong_[v] : 0;
    const CallId maker = t.values[v].maker;
    if (maker != kNoId && t.calls[maker].kind == CallKind::kUpdate && all_gradients_.step >= 0 &&
        all_gradients_.record == t.calls[maker].record)
      log->premises.push_back({.step = all_gradients_.step, .error = all_gradients_.error});
  }
  step.premises = static_cast<uint32_t>(log->premises.size()) - step.first_premise;
  log->steps.push_back(step);
  return static_cast<int32_t>(log->steps.size()) - 1;
}

bool Relations::IsOfWrong(ValueId v) const {
  const Inputs inputs = t.InputsOf(v, /*saved=*/true);
  return std::any_of(inputs.begin(), inputs.end(), [this](ValueId u) {
    return of(u).strength == Strength::kNone && of(u).proof != Proof::kNotTried;
  });
}

Relation Relations::OfOpen(ValueId v, ValueId w, double bound) const {
  const bool wrong = IsOfWrong(v);
  return {.strength = wrong ? Strength::kNone : Strength::kNear,
          .proof = Proof::kNotRecorded,
          .golden = wrong ? kNoId : w,
          .error = bound,
          .bound = bound};
}

// A constant is right unless its place in the golden has another content.
void Relations::RelateConstant(ValueId v, ValueId w) {
  Relation& old = relations_[v];
  if (old.golden != kNoId || (w == kNoId && old.proof != Proof::kNotTried)) return;
  const Value& a = t.values[v];
  const bool told = w != kNoId && a.moments.known && g.values[w].moments.known;
  if (w != kNoId && !told && !a.unwritten && !g.values[w].unwritten) {
    if (const auto by_row = ByRow(v, w)) {
      Set(v, *by_row);
      return;
    }
  }
  const bool same = told && SameBits(v, w);
  if (w != kNoId && !told && IsOfTwoJoined()) {
    Set(v, OfOpen(v, w, BoundOf(v).error));
    return;
  }
  if (!told || a.unwritten || g.values[w].unwritten || same) {
    Set(v, {.strength = Strength::kEqual,
            .proof = a.moments.known ? Proof::kConstant : Proof::kNotRecorded,
            .golden = w});
    return;
  }
  const Value& b = g.values[w];
  const double own = kOwnRoundings * std::max(a.roundoff(), b.roundoff());
  const double bound = c.exact.empty() ? std::max(BoundOf(v).error, own) : 0;
  const double error = ApartOf(v, w, Terms(v)).in_order;
  const bool near =
      a.IsFloat() || b.IsFloat() ? error <= bound : SameElements(a.moments, b.moments);
  Set(v, {.strength = near ? Strength::kNear : Strength::kNone,
          .proof = Proof::kConstant,
          .golden = near ? w : kNoId,
          .error = error,
          .bound = bound,
          .factor = near ? 0 : FactorOf(v, w, bound)});
}

}  // namespace msprobe::compare::relations
