#include "engine/compare/relations/common_factor.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace msprobe::compare::relations {
namespace {

struct Gradient {
  ValueId mine = kNoId, other = kNoId;
};

// The gradients that both runs list, each once.
std::vector<Gradient> GradientsOf(const Relations& r) {
  std::vector<Gradient> listed, taken;
  std::unordered_set<std::string_view> parameters;
  for (CallId id = 0; id < static_cast<CallId>(r.t.calls.size()); ++id) {
    const Call& call = r.t.calls[id];
    const auto add = [&](const Port& port, std::vector<Gradient>* to) {
      const ValueId there = r.AtPartner(port);
      if (there != kNoId) to->push_back({port.value, there});
    };
    if (call.kind == CallKind::kGradients) {
      for (const Port& port : r.t.Makes(id)) add(port, &listed);
    } else if (call.kind == CallKind::kUpdate && parameters.insert(call.parameter).second) {
      for (const Port& port : r.t.Takes(id)) {
        const std::string_view name = r.t.dump.leaves[port.leaf].name.view();
        if (name.find(".input.gradients.") != std::string_view::npos) add(port, &taken);
      }
    }
  }
  return listed.empty() ? taken : listed;
}

double NearOf(const Relations& r, ValueId v) {
  return std::max(r.of(v).bound, kOwnRoundings * r.t.values[v].roundoff());
}

// How much of a gradient is rounding; of one whose terms cancel, nearly all.
double NoiseOf(const Relations& r, ValueId v) { return kSurely * NearOf(r, v) * r.Terms(v); }

// Whether a gradient of few elements has the factor.
bool Has(const Relations& r, const Gradient& gradient, double factor) {
  const Moments& mine = r.t.values[gradient.mine].moments;
  const Moments scaled = Times(factor, r.g.values[gradient.other].moments);
  const double noise = NoiseOf(r, gradient.mine);
  return mine.n == scaled.n && mine.n < kFewestScaled &&
         std::abs(mine.high - scaled.high) <= noise && std::abs(mine.low - scaled.low) <= noise;
}

// Whether rounding hides the factor of a gradient that is right.
bool Hides(const Relations& r, const Gradient& gradient, double factor) {
  const double size = r.g.values[gradient.other].moments.Rms();
  return r.IsRight(gradient.mine) && std::abs(factor - 1) * size <= NoiseOf(r, gradient.mine);
}

}  // namespace

std::optional<CommonFactor> FactorOfGradients(const Relations& relations) {
  constexpr int64_t kFewest = 3;
  CommonFactor found;
  std::vector<Gradient> others;
  for (const Gradient& gradient : GradientsOf(relations)) {
    const Relation& of = relations.of(gradient.mine);
    const double near = NearOf(relations, gradient.mine);
    const double factor = of.strength == Strength::kNone
                              ? relations.FactorOf(gradient.mine, gradient.other, near)
                              : 0;
    if (factor == 0) {
      others.push_back(gradient);
      continue;
    }
    if (found.gradients == 0) found.factor = factor;
    if (std::abs(factor / found.factor - 1) > near + found.tolerance) return std::nullopt;
    found.tolerance = std::max(found.tolerance, near);
    ++found.gradients;
  }
  if (found.gradients < kFewest) return std::nullopt;
  for (const Gradient& gradient : others) {
    if (Has(relations, gradient, found.factor)) {
      ++found.gradients;
    } else if (!Hides(relations, gradient, found.factor)) {
      return std::nullopt;
    }
  }
  return found;
}

}  // namespace msprobe::compare::relations
