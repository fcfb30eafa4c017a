// Values that are together what others are together: pieces of a weight, parts of a batch, addends
// (relate.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/value_names.h"
#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {
namespace {

// What the calls of a group take or make in one slot, or in any, with rows as `like` has them.
std::vector<ValueId> InSlot(const Graph& run, const std::vector<CallId>& calls, int32_t place,
                            bool made, bool any, const Value& like) {
  std::vector<ValueId> out;
  for (const CallId id : calls) {
    for (const Port& other : made ? run.Makes(id) : run.Takes(id)) {
      if (!any && other.place != place) continue;
      const Value& value = run.values[other.value];
      const auto a = value.shape.extents(), b = like.shape.extents();
      const bool rows = a.size() > 1 && b.size() > 1 ? a.back() == b.back() : a.size() == b.size();
      if (rows && value.dtype.dtype() == like.dtype.dtype()) out.push_back(other.value);
    }
  }
  return out;
}

// How far numbers are together from others: sums of parts of a batch, which may be dealt otherwise.
double DistanceOfNumbers(std::span<const Moments> a, std::span<const Moments> b, double terms) {
  double mine = 0, others = 0, size = 0;
  for (const Moments& each : a) mine += each.mean;
  for (const Moments& each : b) {
    others += each.mean;
    size += std::max(std::abs(each.mean), terms);
  }
  return size > 0 ? std::abs(mine - others) / size : kInfinity;
}

}  // namespace

// How far values are together from what others are together: as parts of a batch, as addends, or
// side by side.
double Relations::TogetherApart(std::span<const ValueId> mine, std::span<const ValueId> others,
                                double terms, bool* proven) const {
  std::vector<Moments> a, b;
  for (const ValueId v : mine) a.push_back(t.values[v].moments);
  for (const ValueId w : others) b.push_back(g.values[w].moments);
  const Moments all = Join(a), whole = Join(b);
  if (t.AreSums(mine) && g.AreSums(others)) {
    *proven = true;
    return DistanceOfNumbers(a, b, terms);
  }
  const double moments = Distance(all, whole, terms);
  *proven = false;
  std::vector<RowSketch> x, y;
  const auto collect = [](const Graph& run, std::span<const ValueId> values, int64_t columns,
                          std::vector<RowSketch>* out) {
    for (const ValueId v : values) {
      for (const RowSketch& sketch : run.SketchesOf(v)) {
        if (columns != 0 && sketch.columns != columns) continue;
        out->push_back(sketch);
        break;
      }
    }
    return out->size() == values.size();
  };
  const double size = std::max(whole.Rms(), terms) * std::sqrt(static_cast<double>(whole.n));
  for (const RowSketch& first : t.SketchesOf(mine[0])) {
    x.clear(), y.clear();
    if (!collect(t, mine, first.columns, &x) || !collect(g, others, first.columns, &y)) continue;
    *proven = true;
    const double rows = std::max(moments, DistanceOfRows(x, y, size));
    // As many values may have one sum by chance, a and 1 - a; gradients of weights are added up.
    if (t.IsGradientOfWeight(mine[0])) return DistanceOfSums(x, y, size);
    const bool may_add_up = mine.size() != others.size() && all.extremes == 0;
    return may_add_up ? std::min(rows, DistanceOfSums(x, y, size)) : rows;
  }
  x.clear(), y.clear();
  if (!collect(t, mine, 0, &x) || !collect(g, others, 0, &y)) return moments;
  *proven = true;
  return std::max(moments, DistanceSideBySide(x, y, size));
}

// Parameters that one run has in one piece and the other in several, one after the other.
void Relations::FindPieces() {
  const auto lone = [](const Graph& run, const Graph& other, const std::vector<int32_t>& partners) {
    std::vector<ValueId> out;
    for (const Port& port : run.taken) {
      const Leaf& leaf = run.dump.leaves[port.leaf];
      const bool weight = leaf.slot == Slot::kParameter || run.IsWeight(port.value);
      const int32_t there = partners[port.leaf];
      const bool alone = there < 0 || other.dump.leaves[there].shape.view() != leaf.shape.view();
      if (weight && alone && !run.values[port.value].plain &&
          run.values[port.value].maker == kNoId &&
          std::find(out.begin(), out.end(), port.value) == out.end())
        out.push_back(port.value);
      if (out.size() > 4096) break;  // so many have no partner: the models are other ones
    }
    return out;
  };
  const std::vector<ValueId> mine = lone(t, g, golden_leaf_), others = lone(g, t, target_leaf_);
  const auto search = [&](const Graph& one, const std::vector<ValueId>& wholes, const Graph& many,
                          const std::vector<ValueId>& parts, bool whole_in_target) {
    for (const ValueId whole : wholes) {
      const Value& value = one.values[whole];
      for (size_t i = 0; i < parts.size(); ++i) {
        std::vector<ValueId> group;
        int64_t n = 0;
        for (size_t j = i; j < parts.size() && n < value.shape.elements(); ++j) {
          const auto rows = many.values[parts[j]].shape.extents(),
                     whole_rows = value.shape.extents();
          if (rows.size() != whole_rows.size() ||
              (rows.size() > 1 && rows.back() != whole_rows.back() && rows[0] != whole_rows[0]))
            continue;  // a bias between weights, say
          group.push_back(parts[j]);
          n += many.values[parts[j]].shape.elements();
        }
        if (n != value.shape.elements() || group.size() < 2) continue;
        const std::vector<ValueId> single = {whole};
        const double left = whole_in_target
                                ? RelateParts(single, group, 4 * kDigits, Proof::kPieceOfWeight)
                                : RelateParts(group, single, 4 * kDigits, Proof::kPieceOfWeight);
        if (left != 0) continue;
        KeepHolders(whole_in_target ? single : group, whole_in_target ? group : single);
        break;
      }
    }
  };
  search(g, others, t, mine, false);
  search(t, mine, g, others, true);
}

// The modules that hold pieces of one weight hold those of the other parameters, too.
void Relations::KeepHolders(std::span<const ValueId> mine, std::span<const ValueId> others) {
  const auto paths_of = [](const Graph& run, std::span<const ValueId> weights) {
    std::vector<int32_t> out;
    for (const ValueId weight : weights) {
      int32_t path = kNoId;
      for (const Taker& use : run.TakersOf(weight)) {
        const CallKind kind = run.calls[use.call].kind;
        if (kind == CallKind::kModule || kind == CallKind::kUpdate) path = run.calls[use.call].path;
        if (kind == CallKind::kUpdate) break;  // of a module that is shared it knows the first
      }
      if (path != kNoId && std::find(out.begin(), out.end(), path) == out.end())
        out.push_back(path);
    }
    return out;
  };
  Holders holders{.mine = paths_of(t, mine), .others = paths_of(g, others)};
  if (holders.mine.size() != mine.size() || holders.others.size() != others.size()) return;
  const bool known = std::any_of(holders_.begin(), holders_.end(), [&](const Holders& each) {
    return each.mine == holders.mine && each.others == holders.others;
  });
  if (!known) holders_.push_back(std::move(holders));
}

// What is recorded of the parameters of modules that hold pieces of weights: gradients, moments,
// and what a step makes of them; the first record of each module belongs to the first of the
// others.
void Relations::RelateHolders() {
  if (holders_.empty()) return;
  using Roles = std::map<std::string, std::vector<ValueId>>;
  using ByPath = std::unordered_map<int32_t, std::vector<CallId>>;
  const auto by_path = [](const Graph& run) {
    ByPath out;
    for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
      const Call& call = run.calls[id];
      if (call.kind == CallKind::kUpdate || call.kind == CallKind::kGradients)
        out[call.path].push_back(id);
    }
    return out;
  };
  const auto roles_of = [](const Graph& run, ByPath* calls, const std::vector<int32_t>& paths) {
    std::vector<Roles> out;  // of each path
    for (const int32_t path : paths) {
      Roles roles;
      for (const CallId id : (*calls)[path]) {
        const Call& call = run.calls[id];
        const bool update = call.kind == CallKind::kUpdate;
        const Record& record = run.dump.records[call.record];
        for (const bool made : {false, true}) {
          for (const Port& port : made ? run.Makes(id) : run.Takes(id)) {
            const Leaf& leaf = run.dump.leaves[port.leaf];
            std::string role(update ? LeafPlace(leaf, record) : LeafPath(leaf, record));
            if (const size_t at = role.find(call.parameter); update && at != std::string::npos)
              role.replace(at, call.parameter.rfind('.') + 1,
                           "");  // keeps the parameter's own name
            roles[std::string(made ? ">" : "<") + std::string(update ? record.api.view() : "") +
                  role]
                .push_back(port.value);
          }
        }
      }
      out.push_back(std::move(roles));
    }
    return out;
  };
  ByPath my_calls = by_path(t), other_calls = by_path(g);
  for (const Holders& each : holders_) {
    const std::vector<Roles> mine = roles_of(t, &my_calls, each.mine),
                             others = roles_of(g, &other_calls, each.others);
    const auto at = [](const std::vector<Roles>& all, const std::string& role, size_t i) {
      std::vector<ValueId> out;
      for (const Roles& roles : all) {
        const auto found = roles.find(role);
        if (found != roles.end() && i < found->second.size()) out.push_back(found->second[i]);
      }
      return out.size() == all.size() ? out : std::vector<ValueId>();
    };
    for (const auto& [role, values] : mine[0]) {
      for (size_t i = 0; i < values.size(); ++i)
        RelateParts(at(mine, role, i), at(others, role, i), 0, Proof::kPieceOfWeight);
    }
  }
}

// The bounds of parts that are off by `error` together; empty: it is not explained. The sum of
// parts says of each as much as its share in it: a large one hides a small one, of which nothing is
// known then where it was rounded to a coarse dtype.
std::vector<double> Relations::AllowedOfParts(std::span<const ValueId> mine, double error,
                                              double bound, double roundoff) const {
  constexpr double kHiddenShare = 0.25, kCoarse = 0x1p-11;
  const auto size_of = [this](ValueId v) {
    return std::max(Rms(v), Terms(v)) * std::sqrt(static_cast<double>(t.values[v].moments.n));
  };
  double squares = 0, explained = 0;
  for (const ValueId v : mine) squares += std::pow(size_of(v), 2);
  const bool may_hide =
      std::ranges::any_of(mine, [this](ValueId v) { return Coarse(v) >= kCoarse; });
  std::vector<double> allowed;
  for (const ValueId v : mine) {
    double wrong = 0;
    const double own = bound > 0 ? bound
                                 : std::max(kOwnRoundings * roundoff,
                                            NotHiding(v, BoundOf(v).error, roundoff, &wrong));
    const double share =
        squares > 0 ? size_of(v) * std::sqrt(static_cast<double>(mine.size()) / squares) : 1;
    allowed.push_back(roundoff > 0 ? own * std::min(share, 1.0) : 1e-12);
    if (of(v).strength != Strength::kEqual && squares > 0)
      explained += std::pow(own * size_of(v), 2) / squares;
    const bool hidden = may_hide && share <= kHiddenShare && error <= own && wrong == 0;
    if (!(error <= allowed.back()) && !hidden) return {};
  }
  const auto [least, most] = std::ranges::minmax(allowed);
  // One part at least is judged, and what hides the others is no more than rounding explains.
  const bool all = error <= least, one = error <= most && error <= std::sqrt(explained);
  return all || one ? allowed : std::vector<double>();
}

double Relations::RelateParts(std::span<const ValueId> mine, std::span<const ValueId> others,
                              double bound, Proof proof) {
  if (mine.empty() || others.empty() || (mine.size() == 1 && others.size() == 1)) return kInfinity;
  double roundoff = 0, terms = 0;
  for (const ValueId v : mine) {
    if (!t.values[v].moments.known) return kInfinity;
    roundoff = std::max(roundoff, t.values[v].roundoff());
    terms = std::max(terms, Terms(v));
  }
  for (const ValueId w : others) {
    if (!g.values[w].moments.known) return kInfinity;
    roundoff = std::max(roundoff, g.values[w].roundoff());
  }
  // Moments alone do not tell rows that were dealt to as many parts.
  if (mine.size() == others.size() && t.SketchesOf(mine[0]).empty() && !t.AreSums(mine))
    return kInfinity;
  bool proven = false;
  const double error = TogetherApart(mine, others, terms, &proven);
  if (!proven && mine.size() == others.size()) return kInfinity;
  if (!c.exact.empty() && error > 1e-12) return error;  // bits decide
  const std::vector<double> allowed = AllowedOfParts(mine, error, bound, roundoff);
  if (allowed.empty()) return error;
  int32_t together = -1;
  if (log != nullptr &&
      !std::all_of(mine.begin(), mine.end(), [this](ValueId v) { return IsKnown(v); })) {
    together = static_cast<int32_t>(log->together.size());
    log->together.push_back({.target = {mine.begin(), mine.end()},
                             .golden = {others.begin(), others.end()},
                             .error = error,
                             .terms = terms});
  }
  for (size_t i = 0; i < mine.size(); ++i) {
    const ValueId v = mine[i];
    if (!IsKnown(v)) {
      Set(v,
          {.strength = Strength::kNear,
           .proof = proof,
           .error = std::max(error, 4 * roundoff),
           .bound = std::max(allowed[i], error),
           .proven = proven,
           .unknown = !(error <= allowed[i])},
          {}, together);
    }
    Keep(&wrong_[v], 0.0, v);
    Keep<char>(&part_[v], 1, v);
  }
  Cover(others);
  return 0;
}

void Relations::Cover(std::span<const ValueId> golden) {
  for (const ValueId w : golden) {
    if (covered_[w] == 0) covered_now_ = ++now_;
    covered_[w] = 1;
  }
}

// Parts of a batch are made of parts of a batch, or code without records made them.
bool Relations::MayBePart(ValueId v) const {
  const Inputs inputs = t.InputsOf(v, /*saved=*/true);
  return inputs.empty() || std::any_of(inputs.begin(), inputs.end(), [this](ValueId w) {
           return part_[w] != 0 && of(w).golden == kNoId;
         });
}

void Relations::RelateDivided(CallId call) {
  const std::vector<Group> groups = GroupsOf(call);
  if (groups.empty()) return;
  const auto [place, index] = place_of_[call];
  places_[place].divided[index] = now_;
  const auto known = [this](ValueId v) { return IsKnown(v); };
  for (const bool made : {false, true}) {
    for (const Port& port : made ? t.Makes(call) : t.Takes(call)) {
      const Value& like = t.values[port.value];
      double best = kInfinity;
      std::vector<ValueId> all;
      for (const Group& group : groups) {
        // One call may divide its argument into its results.
        const bool one = group.mine.size() == 1 && group.others.size() == 1, any = made && one;
        if (one && !made) continue;
        const std::vector<ValueId> mine = InSlot(t, group.mine, port.place, made, any, like);
        if (std::all_of(mine.begin(), mine.end(), known)) continue;
        const std::vector<ValueId> others = InSlot(g, group.others, port.place, made, any, like);
        const auto may_be = [this](ValueId v) { return IsKnown(v) || MayBePart(v); };
        if (!one && mine.size() == others.size() && !std::ranges::all_of(mine, may_be)) continue;
        best = std::min(best, RelateParts(mine, others, 0, Proof::kPartOfBatch));
        if (best == 0) break;
        // Numbers may have been divided before they were added: they are not wrong for that.
        if (!t.AreSums(mine)) all.insert(all.end(), mine.begin(), mine.end());
      }
      if (best != 0 && std::isfinite(best)) TakeApart(all, best);
    }
  }
}

// Values that are not together what others are, and are off by so much.
void Relations::TakeApart(std::span<const ValueId> values, double error) {
  for (const ValueId v : values) {
    if (IsKnown(v) || of(v).strength == Strength::kSame || !(error > kSurely * of(v).bound))
      continue;
    Keep(&wrong_[v], error, v);
    Relation apart = of(v);  // together, not from its partner
    apart.proof = Proof::kNotFound;
    if (log != nullptr) Log(v, apart, {}, -1);
  }
}

}  // namespace msprobe::compare::relations
