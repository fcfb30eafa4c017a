// What code without records may have made a value of (expose.h): a part of a result that no
// recorded call takes, its real part, an index of it.
#include <algorithm>
#include <cstddef>
#include <ranges>
#include <unordered_set>

#include "engine/compare/relations/expose.h"

namespace msprobe::compare::relations {
namespace {

// Code without records makes a value of what was made lately: of so many results.
constexpr std::ptrdiff_t kMostLoose = 4096;

}  // namespace

// How code without records may make `part` of `whole`.
Exposure::Lead Exposure::LeadOf(const Value& part, const Value& whole) {
  const Moments &a = part.moments, &b = whole.moments;
  // Code without records chooses indices by numbers, too: an assignment of least cost.
  const bool chosen = !part.IsFloat() && whole.IsFloat() && part.moments.n <= whole.moments.n;
  const Lead index = chosen ? Lead::kChosen : whole.IsFloat() ? Lead::kNone : Lead::kIndex;
  if (part.dtype.dtype() != whole.dtype.dtype()) {
    const bool part_of_complex = whole.IsComplex() && part.IsFloat() && !part.IsComplex() &&
                                 a.known && b.known && b.not_finite == 0;
    if (!part_of_complex) return index;  // else `.real` or `.imag`; b is of moduli
    return a.n <= b.n && a.Size() <= b.Size() ? Lead::kPart : Lead::kNone;
  }
  if (!a.known || !b.known || b.not_finite > 0) return Lead::kPart;
  const bool within = a.high <= std::max(b.high, 0.0) && a.low >= std::min(b.low, 0.0);
  if (within) return Lead::kPart;
  const bool around = a.n > b.n && a.high >= b.high && a.low <= b.low;
  return around ? Lead::kBeside : index;
}

std::vector<Exposure::Loose> Exposure::FindLoose() const {
  const Graph& t = r_.t;
  std::vector<Loose> out;
  const std::unordered_set<ValueId> taken(losses_.begin(), losses_.end());  // backward
  for (ValueId w = 0; w < static_cast<ValueId>(t.values.size()); ++w) {
    const CallId maker = t.values[w].maker;
    if (maker == kNoId || t.values[w].plain || r_.IsRight(w) || Ends(w) || taken.count(w) > 0 ||
        (!modules_only_ && !t.IsLoose(w)))
      continue;
    const Moments& m = t.values[w].moments;
    const bool told = m.known && m.not_finite == 0;
    out.push_back({.value = w,
                   .maker = maker,
                   .path = t.calls[maker].path,
                   .backward = t.calls[maker].IsBackward(),
                   .dtype = std::min(t.values[w].dtype.index(), kDTypeCount),
                   .top = told ? std::max(m.high, 0.0) : kInfinity,
                   .bottom = told ? std::min(m.low, 0.0) : -kInfinity});
  }
  std::ranges::stable_sort(out, {}, &Loose::maker);
  return out;
}

// Of the results `from` those of a module, and of one direction where it is given, that surely have
// `part` as a part (LeadOf): nothing is likelier.
std::vector<ValueId> Exposure::WholesOf(ValueId part, std::span<const Loose> from, int32_t path,
                                        std::optional<bool> backward) const {
  const Value& value = r_.t.values[part];
  const int dtype = std::min(value.dtype.index(), kDTypeCount);
  const double high = std::isnan(value.moments.high) ? kInfinity : value.moments.high,
               low = std::isnan(value.moments.low) ? -kInfinity : value.moments.low;
  const bool any = !backward.has_value(), wanted = backward.value_or(false);
  std::vector<ValueId> out(from.size());
  size_t count = 0;
  for (const Loose& each : from) {  // without a branch: no core foresees which of them hold it
    out[count] = each.value;
    const bool here = (each.path == path) & (any | (each.backward == wanted));
    const bool holds = (each.dtype == dtype) & (high <= each.top) & (low >= each.bottom);
    count += static_cast<size_t>(here & holds & (each.value != part));
  }
  out.resize(count);
  return out;
}

// Code without records made v: of wrong results that no recorded call takes, before it, and first
// of those of the same module.
std::vector<ValueId> Exposure::Around(ValueId v) {
  const Graph& t = r_.t;
  // The gradients of a module are listed before the calls that made them.
  const CallId lists = t.values[v].maker;
  if (lists == kNoId && t.TakersOf(v).empty()) return {};
  if (lists == kNoId && IsState(v)) return {};
  const Call& user = t.calls[lists == kNoId ? TakerOf(v) : lists];
  const CallId end = lists == kNoId || user.kind != CallKind::kGradients ? user.begins
                     : t.TakersOf(v).empty() ? static_cast<CallId>(t.calls.size())
                                             : TakerOf(v);
  std::vector<ValueId> out;
  const CallId around = user.parent;
  const auto right = [this](ValueId w) { return r_.IsRight(w); };
  if (modules_only_ && around != kNoId) {  // of what the module around was given
    for (const Port& port : t.Takes(around)) {
      if (port.value != v) out.push_back(port.value);
    }
    const CallId forward = t.calls[around].forward;
    if (forward != kNoId && std::all_of(out.begin(), out.end(), right)) {
      for (const Port& port : t.Takes(forward)) {
        if (port.value != v) out.push_back(port.value);
      }
    }
  }
  if (!loose_) loose_ = FindLoose();
  const bool exchange = user.facts->exchanges;
  const bool backward = user.IsBackward() || (lists == kNoId && r_.MayBeGradient(v));
  // Most calls that join values are recorded, so a part is likelier than a value beside others; and
  // an index is only to blame where no elements are.
  struct Best {
    Lead lead = Lead::kNone;
    std::vector<ValueId> values;  // of the likeliest lead
    void Add(Lead found, ValueId value) {
      if (found > lead) values.clear();
      lead = std::max(lead, found);
      if (found == lead) values.push_back(value);
    }
  } near, far;
  const auto last = std::ranges::lower_bound(*loose_, end, {}, &Loose::maker);
  const auto first = last - std::min(last - loose_->begin(), kMostLoose);
  if (!modules_only_)
    near.values =
        WholesOf(v, {first, last}, user.path, exchange ? std::nullopt : std::optional(backward));
  const auto rest =
      near.values.empty() ? std::ranges::subrange(first, last) : std::ranges::subrange(last, last);
  for (const Loose& each : rest) {
    if (each.value == v || (each.backward != backward && !exchange)) continue;
    if (modules_only_) {
      const auto makers = t.MakersOf(each.value);
      if (std::any_of(makers.begin(), makers.end(),
                      [&](CallId m) { return t.calls[m].parent == user.parent; }))
        near.Add(Lead::kPart, each.value);
    } else if (const Lead lead = LeadOf(t.values[v], t.values[each.value]);
               lead != Lead::kNone &&
               (lead != Lead::kChosen || r_.of(each.value).golden != kNoId)) {
      (each.path == user.path ? near : far).Add(lead, each.value);
    }
  }
  std::vector<ValueId>& from = near.values.empty() ? far.values : near.values;
  if (!std::ranges::is_sorted(from)) std::sort(from.begin(), from.end());
  out.insert(out.end(), from.begin(), from.end());
  return out;
}

}  // namespace msprobe::compare::relations
