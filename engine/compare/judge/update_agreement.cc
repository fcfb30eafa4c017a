#include "engine/compare/judge/update_agreement.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>

namespace msprobe::compare {
namespace {

// The element that a share of all is smaller than.
double Quantile(std::vector<double> values, double share) {
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// The factor by which most of `apart` are the same multiples of `of`, and how far the others are
// from it.
struct Fit {
  double factor = 0;
  double left = std::numeric_limits<double>::infinity();
};

Fit FitOf(const std::vector<double>& apart, const std::vector<double>& of) {
  constexpr double kMost = 0.8;
  Fit fit;
  std::vector<double> ratios, left;
  for (size_t i = 0; i < apart.size(); ++i) {
    if (!std::isfinite(of[i]) || of[i] == 0) return fit;
    ratios.push_back(apart[i] / of[i]);
  }
  fit.factor = Quantile(ratios, 0.5);
  for (size_t i = 0; i < apart.size(); ++i)
    left.push_back(std::abs(apart[i] - fit.factor * of[i]) / std::abs(apart[i]));
  fit.left = Quantile(left, kMost);
  return fit;
}

}  // namespace

void UpdateAgreement::Add(const WeightMovement& m) {
  const double target = m.after.target - m.before.target, golden = m.after.golden - m.before.golden;
  const double larger = std::max(std::abs(target), std::abs(golden));
  if (!std::isfinite(target) || !std::isfinite(golden) || larger == 0) return;
  const double size = m.epsilon * std::max(std::abs(m.before.golden), std::abs(m.after.golden));
  moved_.push_back({.target = target,
                    .golden = golden,
                    .was = m.before.golden,
                    .earlier = m.before.golden - m.earlier.golden,
                    .roundings = size > 0 ? std::abs(target - golden) / size : 0,
                    .weight = m.weight,
                    .statistic = m.statistic});
}

bool UpdateAgreement::agrees() const {
  constexpr double kApart = 0.25;
  if (moved_.empty()) return false;
  std::map<uint8_t, std::vector<double>> apart;  // by statistic
  for (const Moved& m : moved_) {
    apart[m.statistic].push_back(std::abs(m.target - m.golden) /
                                 std::max(std::abs(m.target), std::abs(m.golden)));
  }
  for (const auto& [statistic, of_weights] : apart) {
    if (Quantile(of_weights, 0.5) > kApart) return false;
  }
  return fault().kind == UpdateFault::Kind::kNone;
}

double UpdateAgreement::otherwise(double gradient_noise) const {
  constexpr double kEnlarged = 1000;               // by an optimizer, at most
  constexpr double kLeast = 1e-4, kRoundings = 8;  // two optimizers may round differently
  constexpr size_t kWeights = 3;
  std::set<uint32_t> weights;
  std::vector<double> apart, roundings;
  for (const Moved& m : moved_) {
    weights.insert(m.weight);
    apart.push_back(std::abs(m.target - m.golden) /
                    std::max(std::abs(m.target), std::abs(m.golden)));
    roundings.push_back(m.roundings);
  }
  if (weights.size() < kWeights || std::isnan(gradient_noise)) return 0;
  const double median = Quantile(apart, 0.5);
  const bool explained = median <= std::max(kLeast, kEnlarged * gradient_noise);
  return explained || Quantile(roundings, 0.5) <= kRoundings ? 0 : median;
}

// An update that is twice as long moves each element twice as far, and a norm not quite so. So
// where no factor explains all statistics, one that explains the largest and smallest elements
// does.
UpdateFault UpdateAgreement::fault() const {
  const UpdateFault of_all = FaultOf(moved_);
  if (of_all.kind != UpdateFault::Kind::kNone) return of_all;
  std::vector<Moved> elements;
  std::copy_if(moved_.begin(), moved_.end(), std::back_inserter(elements),
               [](const Moved& m) { return m.statistic != 0; });
  return FaultOf(elements);
}

UpdateFault UpdateAgreement::FaultOf(const std::vector<Moved>& moved) {
  constexpr double kRoundings = 64;           // of the weight: more than the sum of an update has
  constexpr size_t kWeights = 3, kLeast = 6;  // fewer are alike by chance
  constexpr double kLeft = 0.1;               // of what is apart: what the factor may leave
  std::vector<double> apart, rate, decay, momentum;
  std::set<uint32_t> weights;
  for (const Moved& m : moved) {
    if (!(m.roundings > kRoundings)) continue;
    apart.push_back(m.target - m.golden);
    rate.push_back(m.golden);
    decay.push_back(m.was);
    momentum.push_back(m.earlier);
    weights.insert(m.weight);
  }
  if (apart.size() < kLeast || weights.size() < kWeights || apart.size() < moved.size() / 4)
    return {};
  UpdateFault fault;
  double least = 2 * kLeft;
  const auto take = [&](UpdateFault::Kind kind, const Fit& fit, double add) {
    // Of two that explain it the first: the other one must leave less than half of that.
    const double left = std::max(fit.left, 0.01);
    if (!(left <= kLeft && 2 * left <= least)) return;
    least = left;
    fault = {kind, fit.factor + add};
  };
  take(UpdateFault::Kind::kRate, FitOf(apart, rate), 1);
  take(UpdateFault::Kind::kDecay, FitOf(apart, decay), 0);
  take(UpdateFault::Kind::kMomentum, FitOf(apart, momentum), 0);
  return fault;
}

}  // namespace msprobe::compare
