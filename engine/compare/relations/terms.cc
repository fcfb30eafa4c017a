// What an error is relative to (error_model.cc): the size of the terms that were added up to a
// value, and the coarsest rounding on the way to it.
#include <algorithm>
#include <cmath>
#include <map>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {
double Relations::Terms(ValueId v) const { return terms_[v] >= 0 ? terms_[v] : Rms(v); }

// The size of a value, and of its partner where it is zero: of terms that cancel one kernel may
// leave nothing.
double Relations::SizeOf(ValueId v) const {
  const double size = Rms(v);
  if (size > 0) return size;
  const ValueId w = t.values[v].maker == kNoId ? of(v).golden : AtPartner(t.made[t.values[v].port]);
  return w == kNoId ? 0 : g.values[w].moments.Rms();
}

double Relations::Ratio(ValueId v) const { return SizeOf(v) > 0 ? Terms(v) / SizeOf(v) : 0; }

double Relations::Coarse(ValueId v) const {
  return coarse_[v] >= 0 ? coarse_[v] : t.values[v].roundoff();
}

// The coarsest rounding on the way to a value, in both runs, since the bits were equal.
double Relations::CoarseOf(ValueId v) const {
  const Relation& r = of(v);
  double coarse = t.values[v].roundoff();
  if (r.strength == Strength::kEqual) return coarse;
  if (r.golden != kNoId) coarse = std::max(coarse, g.values[r.golden].roundoff());
  const Inputs inputs = t.InputsOf(v, /*saved=*/true);
  if (coarsest_ > coarse && IsUnseen(v, inputs) && IsOfAnyDtype(v)) return coarsest_;
  for (const ValueId w : inputs) {
    if (of(w).proof != Proof::kNotTried) coarse = std::max(coarse, Coarse(w));
  }
  return coarse;
}

// What is known of a value now is used by those that are made of it. Where nothing was known, its
// own size and rounding were used. Its error is relative to its terms, so they are settled first.
void Relations::SettleTerms(ValueId v) {
  const double terms = std::max(Rms(v), TermsOf(v));
  if (terms != Terms(v)) changed_[v] = ++now_;
  terms_[v] = terms;
}

void Relations::SettleCoarse(ValueId v) {
  const double coarse = CoarseOf(v);
  if (coarse != Coarse(v)) changed_[v] = ++now_;
  coarse_[v] = coarse;
}

// The size of the terms that were added up to a value, beside its own size: much larger where terms
// cancel. 0: it is no sum that is known.
double Relations::TermsOf(ValueId v) const {
  const Value& value = t.values[v];
  const double n = static_cast<double>(value.moments.n);
  if (n == 0 || !value.IsFloat()) return 0;
  if (!t.PartsOf(v).empty() || value.maker == kNoId) {
    const auto arrival = arrivals_.find(v);
    double terms = arrival == arrivals_.end() || arrival->second.left == nullptr
                       ? 0
                       : arrival->second.left->terms;
    const bool scaled = value.maker == kNoId && !t.PartsOf(v).empty() && !t.AddsUp(v);
    const double factor = scaled ? t.FactorOfParts(v) : 1;
    for (const ValueId w : t.InputsOf(v, false)) {
      const double rows = static_cast<double>(t.values[w].moments.n) / n;
      terms = std::max(terms, factor * Terms(w) * std::sqrt(std::max(rows, 1.0)));
    }
    if (value.maker == kNoId && IsUnseen(v, t.InputsOf(v, /*saved=*/true)))
      terms = std::max(terms, SizeBeside(v));
    const bool listed = value.maker != kNoId && t.calls[value.maker].kind == CallKind::kGradients;
    return listed && !t.HasOperations()
               ? std::max(terms, TermsOfParameter(value, t.calls[value.maker]))
               : terms;
  }
  const Call& call = t.calls[value.maker];
  if (call.kind == CallKind::kGradients) {  // a bias is a sum over the same rows as the weight
    double size = 0;
    for (const Port& port : t.Makes(value.maker)) size = std::max(size, Rms(port.value));
    return std::max(size, TermsOfParameter(value, call));
  }
  if (call.kind == CallKind::kUpdate) return TermsOfUpdate(v, call);
  Arguments arguments;
  for (const Port& port : t.Takes(value.maker)) {
    const Value& argument = t.values[port.value];
    if (!argument.IsFloat() || argument.moments.n == 0 || port.value == v) continue;
    if (arguments.number++ == 0) arguments.first = port.value;
    arguments.tensors += argument.moments.n > 1;  // a number is a setting
    arguments.terms = std::max(arguments.terms, Terms(port.value));
    arguments.rows = std::max(arguments.rows, static_cast<double>(argument.moments.n) / n);
    arguments.size = std::max(arguments.size, Rms(port.value));
    arguments.ratio = std::max(arguments.ratio, Ratio(port.value));
  }
  if (arguments.number == 0) return 0;
  // A running mean is a sum of what is normalised, which may cancel; a variance has no negative
  // element.
  if (t.made[value.port].changed && call.facts->kind == OperationClass::kNormalisation &&
      value.moments.low < 0)
    return Terms(arguments.first);
  return call.IsBackward() ? TermsOfBackward(v, call, arguments)
                           : TermsOfForward(v, *call.facts, arguments);
}

double Relations::TermsOfForward(ValueId v, const OperationFacts& facts,
                                 const Arguments& arguments) const {
  switch (facts.kind) {
    case OperationClass::kKeeps:
    case OperationClass::kSum:
      return arguments.terms;
    case OperationClass::kScaling:
      return arguments.tensors <= 1 ? arguments.ratio * SizeOf(v) : 0;
    case OperationClass::kTakes:
    case OperationClass::kElementwise:
      return arguments.ratio * SizeOf(v);
    case OperationClass::kReduction: {
      const double root = std::sqrt(arguments.rows);
      return Rms(arguments.first) * (facts.is_mean ? 1 / root : root);
    }
    default:
      return facts.exchanges ? arguments.terms : 0;
  }
}

// The largest gradient that the optimizer's entry takes for a parameter of the same module: one
// that no recorded call made is a sum over the same rows. Or of what it is a number times.
double Relations::SizeBeside(ValueId v) const {
  const auto module_of = [](const Call& call) {
    return std::pair(call.record, call.parameter.substr(0, call.parameter.rfind('.')));
  };
  const auto each = [this](auto what) {
    for (const Call& call : t.calls) {
      if (call.kind != CallKind::kUpdate || call.parameter.find('.') == std::string_view::npos)
        continue;
      const Record& record = t.dump.records[call.record];
      for (const Port& port : t.Takes(static_cast<CallId>(&call - t.calls.data()))) {
        if (LeafPlace(t.dump.leaves[port.leaf], record).starts_with("gradients."))
          what(call, port.value);
      }
    }
  };
  if (!beside_update_) {
    beside_update_.emplace();
    std::map<std::pair<int32_t, std::string_view>, double> largest;
    each([&](const Call& call, ValueId w) {
      double& size = largest[module_of(call)];
      size = std::max(size, Rms(w));
    });
    each([&](const Call& call, ValueId w) {
      double& size = (*beside_update_)[w];
      size = std::max(size, largest[module_of(call)]);
    });
  }
  double scale = 1;
  for (int steps = 0; v != kNoId && steps < kMostScalings; ++steps) {
    const auto found = beside_update_->find(v);
    if (found != beside_update_->end()) return found->second * scale;
    const ValueId scaled = t.ScaledTo(v);
    if (scaled != kNoId) scale *= Rms(v) / std::max(Rms(scaled), 1e-30);
    v = scaled;
  }
  return 0;
}

// A gradient of a parameter of a module whose operations are not recorded: over all rows, what
// arrives at the module is multiplied by what goes in or comes out, and added up.
double Relations::TermsOfParameter(const Value& value, const Call& gradients) const {
  if (!backward_of_) {
    backward_of_.emplace();
    for (CallId id = 0; id < static_cast<CallId>(t.calls.size()); ++id) {
      if (t.calls[id].kind == CallKind::kModuleBackward) (*backward_of_)[t.calls[id].path] = id;
    }
  }
  const auto found = backward_of_->find(gradients.path);
  if (found == backward_of_->end() || t.calls[found->second].forward == kNoId) return 0;
  const CallId forward = t.calls[found->second].forward;
  double saved = 0, terms = 0;
  for (const auto ports : {t.Takes(forward), t.Makes(forward)}) {
    for (const Port& port : ports) {
      if (!t.IsWeight(port.value) && !port.changed) saved = std::max(saved, Rms(port.value));
    }
  }
  const double n = static_cast<double>(std::max<int64_t>(value.moments.n, 1));
  for (const Port& port : t.Takes(found->second)) {
    const double rows = static_cast<double>(t.values[port.value].moments.n) / n;
    if (rows >= 1) terms = std::max(terms, Terms(port.value) * saved * std::sqrt(rows));
  }
  return terms;
}

// The size of what a normalisation multiplies by `n` weights: 1, or more where it takes statistics
// of before.
double Relations::NormalisedSize(CallId forward, int64_t n) const {
  double weight = 0, made = 0;
  for (const Port& port : t.Takes(forward)) {
    const Value& taken = t.values[port.value];
    if (taken.IsFloat() && taken.moments.n == n) weight = std::max(weight, Rms(port.value));
  }
  for (const Port& port : t.Makes(forward)) {
    if (!port.changed) made = std::max(made, Rms(port.value));
  }
  return weight > 0 ? std::max(1.0, made / weight) : 1;
}

// How much a normalisation enlarges what differs between the elements that it takes.
double Relations::SlopeOf(CallId forward) const {
  const auto spread = [this](std::span<const Port> ports) {
    for (const Port& port : ports) {
      const Moments& m = t.values[port.value].moments;
      if (!port.changed && m.known)
        return std::sqrt(std::max(m.Rms() * m.Rms() - m.mean * m.mean, 0.0));
    }
    return 0.0;
  };
  const double taken = spread(t.Takes(forward));
  return taken > 0 ? spread(t.Makes(forward)) / taken : 0;
}

// A softmax y gives back y (g - <g, y>), and its logarithm g - y sum(g): what is the same in all
// elements is taken away. Attention with the weights y of queries q and keys k gives back the first
// of these with g = dO V^T, times k for q, and times q for k; scores are divided by the root of the
// columns.
double Relations::TermsOfSoftmax(ValueId v, CallId forward, double arriving) const {
  if (!t.calls[forward].facts->sums_products) {
    for (const Port& made : t.Makes(forward)) {
      const Value& y = t.values[made.value];
      const auto extents = y.shape.extents();
      if (!y.IsFloat() || extents.empty()) continue;
      // Relative to what a row of y adds up to, which is 1.
      const double sum = y.moments.mean * static_cast<double>(extents.back());
      return y.moments.low < 0 ? arriving : sum > 0 ? arriving * y.moments.Rms() / sum : 0;
    }
    return 0;
  }
  std::vector<ValueId> given;  // queries, keys, values
  for (const Port& port : t.Takes(forward)) {
    if (t.values[port.value].IsFloat()) given.push_back(port.value);
  }
  const Leaf& leaf = t.dump.leaves[t.made[t.values[v].port].leaf];
  const std::string_view place = LeafPlace(leaf, t.dump.records[leaf.record]);
  if (given.size() < 3 || (place != "0" && place != "1")) return 0;
  return arriving * Rms(given[2]) * Rms(given[place == "0" ? 1 : 0]);
}

double Relations::TermsOfBackward(ValueId v, const Call& call, const Arguments& arguments) const {
  if (call.forward == kNoId) return 0;
  if (t.calls[call.forward].facts->softmax) return TermsOfSoftmax(v, call.forward, arguments.terms);
  const OperationClass kind = t.calls[call.forward].facts->kind;
  if (arguments.rows <= 1) {
    switch (kind) {
      case OperationClass::kKeeps:
      case OperationClass::kSum:
        return arguments.terms;
      case OperationClass::kTakes:
      case OperationClass::kScaling:
      case OperationClass::kElementwise:
      case OperationClass::kContraction:
        return arguments.ratio * SizeOf(v);
      case OperationClass::kNormalisation:  // what is the same in all elements is taken away
        return arguments.terms * SlopeOf(call.forward);
      default:
        return 0;
    }
  }
  double saved = 1;
  if (kind == OperationClass::kNormalisation)
    saved = NormalisedSize(call.forward, t.values[v].moments.n);
  if (kind == OperationClass::kContraction && t.values[v].shape.extents().size() > 1) {
    saved = 0;
    for (const Port& port : t.Takes(call.forward)) saved = std::max(saved, Rms(port.value));
  }
  return arguments.terms * saved * std::sqrt(arguments.rows);
}

double Relations::TermsOfUpdate(ValueId v, const Call& call) const {
  const Record& record = t.dump.records[call.record];
  const std::string_view place = LeafPlace(t.dump.leaves[t.made[t.values[v].port].leaf], record);
  if (place.find("weights.") != std::string_view::npos) return 0;
  for (const Port& port : t.Takes(t.values[v].maker)) {
    if (LeafPlace(t.dump.leaves[port.leaf], record).starts_with("gradients."))
      return SizeOf(v) * std::pow(Ratio(port.value), place.ends_with("sq") ? 2 : 1);
  }
  return 0;
}

}  // namespace msprobe::compare::relations
