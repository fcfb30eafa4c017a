#include "engine/compare/relations/relate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <tuple>

#include "engine/compare/model/record_keys.h"

namespace msprobe::compare::relations {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kDouble = 0x1p-53;
constexpr double kSurely = 8;        // an error of so many bounds is no rounding
constexpr int kMostCandidates = 64;  // values of nearly the same norm that are looked at

// A tensor that only tells k elements from the other n - k.
struct Mask {
  enum Coding { kNone, kBool, kAdded, kFactor } coding = kNone;
  int64_t n = 0, k = 0;
};

Mask MaskOf(const Value& value) {
  const Moments& m = value.moments;
  if (!m.known || value.plain) return {};
  Mask mask;
  mask.n = value.shape.elements();
  if (value.dtype.dtype() == DType::kBool) {
    mask.coding = Mask::kBool;
    mask.k = m.zeros;
  } else if (m.extremes > 0 && m.high == 0 && m.low == 0) {
    mask.coding = Mask::kAdded;
    mask.k = m.extremes;
  } else if (m.high == 1 && m.low == 0 && m.zeros > 0 &&
             std::abs(m.norm * m.norm - static_cast<double>(mask.n - m.zeros)) < 1e-3) {
    mask.coding = Mask::kFactor;
    mask.k = m.zeros;
  }
  if (mask.k <= 0 || mask.k >= mask.n) return {};
  mask.k = std::min(mask.k, mask.n - mask.k);
  return mask;
}

uint64_t ElementsKey(const Moments& m) {
  const auto bits = [](double x) {
    const float f = static_cast<float>(x) + 0.0F;
    uint32_t u = 0;
    std::memcpy(&u, &f, sizeof u);
    return static_cast<uint64_t>(u);
  };
  return MixKeys(MixKeys(MixKeys(static_cast<uint64_t>(m.n), bits(m.high)), bits(m.low)),
                 static_cast<uint64_t>(m.zeros));
}

uint64_t MaskKey(const Mask& mask) {
  return MixKeys(MixKeys(99, static_cast<uint64_t>(mask.n)), static_cast<uint64_t>(mask.k));
}

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

Relations::Relations(const Comparison& comparison, const Graph& target, const Graph& golden)
    : c(comparison),
      t(target),
      g(golden),
      pair(target.calls.size(), kNoId),
      partner(golden.calls.size(), kNoId),
      relations_(target.values.size()),
      wrong_(target.values.size(), 0),
      terms_(target.values.size(), -1),
      coarse_(target.values.size(), -1),
      has_(golden.values.size(), 0),
      part_(target.values.size(), 0),
      covered_(golden.values.size(), 0),
      golden_leaf_(target.dump.leaves.size(), kNoId),
      target_leaf_(golden.dump.leaves.size(), kNoId),
      scalar_differs_(target.dump.leaves.size(), 0),
      same_environment_(SameEnvironment(target.dump, golden.dump)) {
  PairCalls();
  PairRecomputed();
  PairGradients();
  FindDivided();
  for (ValueId w = 0; w < static_cast<ValueId>(g.values.size()); ++w) {
    const Value& value = g.values[w];
    if (value.plain || !value.moments.known || !std::isfinite(value.moments.norm)) continue;
    by_norm_[value.moments.n].push_back({value.moments.norm, w});
    by_elements_[ElementsKey(value.moments)].push_back(w);
    if (const Mask mask = MaskOf(value); mask.coding != Mask::kNone)
      by_elements_[MaskKey(mask)].push_back(w);
  }
  for (auto& [n, norms] : by_norm_) {
    std::sort(norms.begin(), norms.end(), [](const Norm& a, const Norm& b) {
      return std::tie(a.norm, a.value) < std::tie(b.norm, b.value);
    });
  }
  RelateAll();
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
  // What a round relates may be a premise of what an earlier call made; relations only get stronger.
  constexpr int kMostRounds = 4;
  for (int round = 0; round < kMostRounds; ++round) {
    const auto count = [this] {
      return std::accumulate(
          relations_.begin(), relations_.end(), int64_t{0},
          [](int64_t sum, const Relation& r) { return sum + static_cast<int>(r.strength); });
    };
    const int64_t before = count();
    for (const CallId call : order) RelateCall(call);
    if (round > 0 && count() == before) break;
  }
  for (ValueId w = 0; w < static_cast<ValueId>(g.values.size()); ++w) {
    const Value& value = g.values[w];
    has_[w] = (!value.plain && t.WithContent(value.content) != kNoId) || covered_[w] != 0;
  }
  for (const Relation& r : relations_) {
    if (r.strength >= Strength::kSame && r.golden != kNoId) has_[r.golden] = 1;
  }
}

void Relations::RelateCall(CallId call) {
  for (const Port& port : t.Takes(call)) {
    const Relation& r = of(port.value);
    if (r.proof == Proof::kNotTried || r.strength < Strength::kNear)
      Relate(port.value, AtPartner(port), false);
    Settle(port.value);
  }
  for (const Port& port : t.Makes(call)) {
    Relate(port.value, AtPartner(port), false);
    Settle(port.value);
  }
  if (groups_of_.count(call) > 0) RelateDivided(call);
}

void Relations::Relate(ValueId v, ValueId w, bool weight) {
  const Value& value = t.values[v];
  Relation& old = relations_[v];
  if (value.plain) {
    RelateConstant(v, w);
    return;
  }
  if (old.strength == Strength::kEqual) return;
  if (const ValueId same = g.WithContent(value.content); same != kNoId) {
    old = {.strength = Strength::kEqual, .proof = Proof::kSameContent, .golden = same};
    return;
  }
  const bool began = weight && value.maker == kNoId && w != kNoId;
  const Bound model = BoundOf(v);
  double wrong = 0;
  const double bound = NotHiding(v, model.error, &wrong);
  Relation best{.proof = Proof::kNotFound, .bound = bound};
  if (w != kNoId) {
    best = CompareWith(v, w, bound, model.exact, began ? Proof::kBeganSo : Proof::kPartner);
    if (best.strength < Strength::kNear && std::isfinite(best.error) &&
        best.error > kSurely * bound)
      wrong = best.error;
  }
  if (best.strength < Strength::kNear) {
    Relation other = Search(v, bound, model.exact);
    if (other.strength > best.strength) best = other;
  }
  wrong_[v] = best.strength < Strength::kNear ? wrong : 0;
  best.doubtful =
      (best.strength == Strength::kSame || best.strength == Strength::kNear) && !Follows(v);
  best.like = best.like || wrong > 0;
  if (best.strength > old.strength || old.proof == Proof::kNotTried) old = best;
}

// A constant is right unless its place in the golden has another content.
void Relations::RelateConstant(ValueId v, ValueId w) {
  Relation& old = relations_[v];
  if (old.golden != kNoId || (w == kNoId && old.proof != Proof::kNotTried)) return;
  const Value& a = t.values[v];
  if (w == kNoId || a.unwritten || g.values[w].unwritten || a.content == g.values[w].content ||
      !a.moments.known || !g.values[w].moments.known) {
    old = {.strength = Strength::kEqual,
           .proof = a.moments.known ? Proof::kConstant : Proof::kNotRecorded,
           .golden = w};
    return;
  }
  const Value& b = g.values[w];
  const double bound = std::max(BoundOf(v).error, kOwnRoundings * std::max(a.roundoff, b.roundoff));
  const double error = Distance(a.moments, b.moments, Terms(v));
  const bool near = error <= bound;
  old = {.strength = near ? Strength::kNear : Strength::kNone,
         .proof = Proof::kConstant,
         .golden = near ? w : kNoId,
         .error = error,
         .bound = bound};
}

Relation Relations::CompareWith(ValueId v, ValueId w, double bound, bool exact, Proof proof) const {
  const Value &a = t.values[v], &b = g.values[w];
  Relation r{.proof = proof, .golden = w, .bound = bound};
  if (!a.moments.known || !b.moments.known || b.unwritten) {
    r.strength = Strength::kEqual;
    r.proof = Proof::kNotRecorded;
    return r;
  }
  const bool like = SameElements(a.moments, b.moments);
  if (!a.IsFloat() || !b.IsFloat()) {  // integers do not round
    r.strength = !like ? Strength::kNone : a.dtype != b.dtype ? Strength::kNear : Strength::kSame;
    r.error = like ? 0 : kInfinity;
    r.bound = 0;
    r.like = like;
    return r;
  }
  if (a.dtype.dtype() != b.dtype.dtype()) {
    r.bound = std::max(bound, kOwnRoundings * std::max(a.roundoff, b.roundoff));
    exact = false;
  }
  r.error = Distance(a.moments, b.moments, Terms(v));
  r.strength = r.error <= r.bound && !exact ? Strength::kNear
               : like                       ? Strength::kSame
                                            : Strength::kNone;
  r.like = like && a.dtype.dtype() == b.dtype.dtype();
  return r;
}

// A golden value with the same moments, whatever call made it.
Relation Relations::Search(ValueId v, double bound, bool exact) const {
  const Value& value = t.values[v];
  Relation best{.proof = Proof::kNotFound, .bound = bound};
  const Moments& m = value.moments;
  if (!m.known || !std::isfinite(m.norm)) return best;
  if (const Mask mask = MaskOf(value); mask.coding != Mask::kNone) {
    if (const auto found = by_elements_.find(MaskKey(mask)); found != by_elements_.end()) {
      for (const ValueId w : found->second) {
        const Mask other = MaskOf(g.values[w]);
        if (other.coding != Mask::kNone && other.coding != mask.coding)
          return {.strength = Strength::kNear, .proof = Proof::kMask, .golden = w, .bound = bound};
      }
    }
  }
  if (const auto found = by_elements_.find(ElementsKey(m)); found != by_elements_.end()) {
    int looked = 0;
    for (const ValueId w : found->second) {
      if (++looked > kMostCandidates) break;
      Relation near = CompareWith(v, w, bound, exact, Proof::kSameNumbers);
      if (near.strength > best.strength && near.proof == Proof::kSameNumbers) best = near;
    }
  }
  if (best.strength >= Strength::kNear || exact || !value.IsFloat() || m.norm == 0) return best;
  const auto of_size = by_norm_.find(m.n);
  if (of_size == by_norm_.end()) return best;
  const std::vector<Norm>& norms = of_size->second;
  auto at = std::lower_bound(norms.begin(), norms.end(), m.norm * (1 - bound),
                             [](const Norm& a, double norm) { return a.norm < norm; });
  for (int i = 0; i < kMostCandidates && at != norms.end(); ++i, ++at) {
    if (at->norm > m.norm * (1 + 2 * bound)) break;
    if (!g.values[at->value].IsFloat()) continue;
    Relation near = CompareWith(v, at->value, bound, exact, Proof::kNearNumbers);
    if (near.strength >= Strength::kNear && near.proof == Proof::kNearNumbers &&
        (best.strength < Strength::kNear || near.error < best.error))
      best = near;
  }
  // Each of the statistics agrees by chance with a probability of `bound`.
  if (best.strength == Strength::kNear && best.proof == Proof::kNearNumbers) {
    const double chance = -std::min<double>(4, static_cast<double>(m.n)) * std::log10(bound);
    if (chance < std::log10(static_cast<double>(norms.size())) + 3)
      return {.proof = Proof::kNotFound, .bound = bound};
  }
  return best;
}

// The same operation, called alike with related arguments, keeps the order of elements.
bool Relations::Follows(ValueId v) const {
  const std::vector<ValueId> inputs = t.InputsOf(v, false);
  for (const ValueId w : inputs) {
    if (of(w).strength < Strength::kNear || of(w).doubtful) return false;
  }
  if (!t.PartsOf(v).empty() || t.values[v].maker == kNoId) return !inputs.empty();
  return Alike(t.values[v].maker);
}

bool Relations::OtherApi(CallId id) const {
  return BaseApi(t.ApiOf(id)) != BaseApi(g.ApiOf(pair[id]));
}

// A plain argument that says how a call computes. Of a dtype or a device the result tells.
static bool IsSetting(const Leaf& leaf) {
  if (leaf.kind != LeafKind::kScalar || leaf.slot == Slot::kOutput) return false;
  const std::string_view type = leaf.type.view();
  return type.find("dtype") == std::string_view::npos &&
         type.find("device") == std::string_view::npos &&
         type.find("layout") == std::string_view::npos &&
         type.find("memory_format") == std::string_view::npos;
}

bool Relations::OtherScalars(CallId id) const {
  const Record& record = t.dump.records[t.calls[id].record];
  const Record& other = g.dump.records[g.calls[pair[id]].record];
  for (uint32_t i = record.first_leaf; i < record.first_leaf + record.leaf_count; ++i) {
    const Leaf& leaf = t.dump.leaves[i];
    if (!IsSetting(leaf)) continue;
    const int32_t there = golden_leaf_[i];
    if (there < 0) {
      if (leaf.value != "None" && leaf.value != "False") return true;
      continue;
    }
    if (scalar_differs_[i] != 0) return true;
  }
  for (uint32_t i = other.first_leaf; i < other.first_leaf + other.leaf_count; ++i) {
    const Leaf& leaf = g.dump.leaves[i];
    if (IsSetting(leaf) && target_leaf_[i] < 0 && leaf.value != "None" && leaf.value != "False")
      return true;
  }
  return false;
}

bool Relations::Alike(CallId id) const {
  if (id == kNoId || pair[id] == kNoId) return false;
  const Call &mine = t.calls[id], &other = g.calls[pair[id]];
  for (const Port& port : t.Takes(id)) {
    if (!FitsOrWrong(port.value, AtPartner(port))) return false;
  }
  if (mine.kind == CallKind::kBackward)
    return mine.forward != kNoId && pair[mine.forward] == other.forward && Alike(mine.forward);
  if (mine.kind == CallKind::kModule) return t.ChildrenOf(id).empty();
  const bool free = mine.kind != CallKind::kOperation || mine.facts->exchanges ||
                    mine.facts->opaque || mine.facts->draws;
  return !free && !OtherApi(id) && !OtherScalars(id);
}

bool Relations::FitsOrWrong(ValueId v, ValueId w) const {
  return w == kNoId || Fits(v, w) || (of(v).strength == Strength::kNone && !t.values[v].plain);
}

bool Relations::Fits(ValueId v, ValueId w) const {
  if (w == kNoId) return false;
  const Value &a = t.values[v], &b = g.values[w];
  const Relation& r = of(v);
  if ((r.golden == w && r.strength >= Strength::kSame) ||
      (a.content != kNoId && a.content == b.content) || (part_[v] != 0 && covered_[w] != 0) ||
      a.unwritten || b.unwritten)
    return true;
  if (a.plain) {
    return !a.moments.known || !b.moments.known ||
           Distance(a.moments, b.moments, 0) <= kOwnRoundings * std::max(a.roundoff, b.roundoff);
  }
  if (r.strength < Strength::kSame) return false;
  const double error = Distance(a.moments, b.moments, Terms(v));
  if (r.strength == Strength::kEqual && a.dtype.dtype() == b.dtype.dtype())
    return Distance(a.moments, b.moments, 0) <= kOwnRoundings * a.roundoff &&
           !SameElements(a.moments, b.moments);
  return error <= std::max({r.bound, kOwnRoundings * std::max(a.roundoff, b.roundoff), kDouble});
}

// Parameters that one run has in one piece and the other in several, one after the other.
void Relations::FindPieces() {
  const auto lone = [](const Graph& run, const std::vector<int32_t>& partners) {
    std::vector<ValueId> out;
    for (const Port& port : run.taken) {
      const Leaf& leaf = run.dump.leaves[port.leaf];
      const bool weight = leaf.slot == Slot::kParameter || run.IsWeight(port.value);
      if (weight && partners[port.leaf] < 0 && !run.values[port.value].plain &&
          run.values[port.value].maker == kNoId &&
          std::find(out.begin(), out.end(), port.value) == out.end())
        out.push_back(port.value);
      if (out.size() > 4096) break;  // so many have no partner: the models are other ones
    }
    return out;
  };
  const std::vector<ValueId> mine = lone(t, golden_leaf_), others = lone(g, target_leaf_);
  const auto search = [&](const Graph& one, const std::vector<ValueId>& wholes, const Graph& many,
                          const std::vector<ValueId>& parts, bool whole_in_target) {
    for (const ValueId whole : wholes) {
      const Value& value = one.values[whole];
      for (size_t i = 0; i < parts.size(); ++i) {
        std::vector<ValueId> group;
        int64_t n = 0;
        for (size_t j = i; j < parts.size() && n < value.shape.elements(); ++j) {
          if (many.values[parts[j]].shape.extents().size() != value.shape.extents().size()) break;
          group.push_back(parts[j]);
          n += many.values[parts[j]].shape.elements();
        }
        if (n != value.shape.elements() || group.size() < 2) continue;
        const std::vector<ValueId> single = {whole};
        const double left = whole_in_target
                                ? RelateParts(single, group, 4 * kDigits, Proof::kPieceOfWeight)
                                : RelateParts(group, single, 4 * kDigits, Proof::kPieceOfWeight);
        if (left == 0) break;
      }
    }
  };
  search(g, others, t, mine, false);
  search(t, mine, g, others, true);
}

double Relations::RelateParts(std::span<const ValueId> mine, std::span<const ValueId> others,
                              double bound, Proof proof) {
  if (mine.empty() || others.empty() || mine.size() == others.size()) return kInfinity;
  std::vector<Moments> a, b;
  double roundoff = 0, terms = 0, allowed = bound;
  for (const ValueId v : mine) {
    a.push_back(t.values[v].moments);
    roundoff = std::max(roundoff, t.values[v].roundoff);
    terms = std::max(terms, Terms(v));
  }
  for (const ValueId w : others) {
    b.push_back(g.values[w].moments);
    roundoff = std::max(roundoff, g.values[w].roundoff);
  }
  const auto known = [](const Moments& m) { return m.known; };
  if (!std::all_of(a.begin(), a.end(), known) || !std::all_of(b.begin(), b.end(), known))
    return kInfinity;
  if (bound <= 0) {
    allowed = kOwnRoundings * roundoff;
    for (const ValueId v : mine) {
      double wrong = 0;
      allowed = std::max(allowed, NotHiding(v, BoundOf(v).error, &wrong));
    }
  }
  const double error = Distance(Join(a), Join(b), terms);
  if (!(error <= (roundoff > 0 ? allowed : 1e-12))) return error;
  for (const ValueId v : mine) {
    if (of(v).strength < Strength::kNear) {
      relations_[v] = {.strength = Strength::kNear,
                       .proof = proof,
                       .error = std::max(error, 4 * roundoff),
                       .bound = allowed};
    }
    part_[v] = 1;
  }
  for (const ValueId w : others) covered_[w] = 1;
  return 0;
}

void Relations::RelateDivided(CallId call) {
  // What calls take or make in one slot, with rows as `like` has them.
  const auto in_slot = [](const Graph& run, const std::vector<CallId>& calls, const Port& port,
                          bool made, const Value& like) {
    std::vector<ValueId> out;
    for (const CallId id : calls) {
      for (const Port& other : made ? run.Makes(id) : run.Takes(id)) {
        const Value& value = run.values[other.value];
        const auto a = value.shape.extents(), b = like.shape.extents();
        const bool rows =
            a.size() > 1 && b.size() > 1 ? a.back() == b.back() : a.size() == b.size();
        if (other.place == port.place && rows && value.dtype.dtype() == like.dtype.dtype())
          out.push_back(other.value);
      }
    }
    return out;
  };
  for (const bool made : {false, true}) {
    for (const Port& port : made ? t.Makes(call) : t.Takes(call)) {
      const ValueId v = port.value;
      if (of(v).strength >= Strength::kNear && part_[v] != 0) continue;
      double best = kInfinity;
      for (const int32_t number : groups_of_[call]) {
        const Group& group = divided_[number];
        const std::vector<ValueId> a = in_slot(t, group.mine, port, made, t.values[v]);
        const std::vector<ValueId> b = in_slot(g, group.others, port, made, t.values[v]);
        best = std::min(best, RelateParts(a, b, 0, Proof::kPartOfBatch));
        if (best == 0) break;
      }
      if (kSurely * of(v).bound < best && best < kInfinity && of(v).strength < Strength::kNear)
        wrong_[v] = best;
    }
  }
}

}  // namespace msprobe::compare::relations
