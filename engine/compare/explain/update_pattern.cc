#include "engine/compare/explain/update_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <vector>

namespace msprobe::compare {
namespace {

using Updates = std::vector<const WeightUpdate*>;
using Test = std::function<bool(const WeightUpdate&)>;

constexpr size_t kNamed = 3;

std::string_view LastPart(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// Whether the test holds for all wrong updates and for no right one.
bool Separates(const Updates& wrong, const Updates& right, const Test& test) {
  const auto holds = [&](const WeightUpdate* update) { return test(*update); };
  return std::all_of(wrong.begin(), wrong.end(), holds) &&
         std::none_of(right.begin(), right.end(), holds);
}

// The longest "layers.3." that all names begin with; "" where there is none.
std::string_view CommonModule(const Updates& updates) {
  std::string_view prefix = updates.front()->name;
  prefix = prefix.substr(0, prefix.rfind('.') + 1);
  for (const WeightUpdate* update : updates) {
    while (!prefix.empty() && !std::string_view(update->name).starts_with(prefix)) {
      prefix.remove_suffix(1);
      prefix = prefix.substr(0, prefix.rfind('.') + 1);
    }
  }
  return prefix;
}

// What the wrong ones share, as "all those with 1 dimension and no others"; "" where nothing is.
std::string Shared(const Updates& wrong, const Updates& right) {
  if (right.empty()) return "";
  const int dimensions = wrong.front()->dimensions;
  const auto same = [&](const WeightUpdate& u) { return u.dimensions == dimensions; };
  const auto more = [](const WeightUpdate& u) { return u.dimensions >= 2; };
  if (dimensions >= 0 && Separates(wrong, right, same))
    return fmt::format("all those with {} dimension{} and no others", dimensions,
                       dimensions == 1 ? "" : "s");
  if (Separates(wrong, right, more)) return "all those with 2 or more dimensions and no others";
  const std::string_view last = LastPart(wrong.front()->name);
  if (Separates(wrong, right, [&](const WeightUpdate& u) { return LastPart(u.name) == last; }))
    return fmt::format("all those named \"{}\" and no others", last);
  const std::string_view module = CommonModule(wrong);
  if (!module.empty() && Separates(wrong, right, [&](const WeightUpdate& u) {
        return std::string_view(u.name).starts_with(module);
      }))
    return fmt::format("all those of {} and no others", module.substr(0, module.size() - 1));
  return "";
}

bool Stays(double before, double after) {
  return std::abs(after - before) <= 1e-9 * std::max(std::abs(before), std::abs(after));
}

// How far the norms moved in one run against the other; "" where that differs between parameters.
std::string Movement(const Updates& wrong) {
  constexpr double kSpread = 0.1;
  bool target_stays = true, golden_stays = true;
  std::vector<double> ratios;
  for (const WeightUpdate* u : wrong) {
    const double target = u->after.target - u->before.target,
                 golden = u->after.golden - u->before.golden;
    if (!std::isfinite(target) || !std::isfinite(golden)) return "";
    target_stays &= Stays(u->before.target, u->after.target);
    golden_stays &= Stays(u->before.golden, u->after.golden);
    if (!Stays(u->before.golden, u->after.golden)) ratios.push_back(target / golden);
  }
  const std::string_view them = wrong.size() == 1 ? "it" : "them";
  if (target_stays && !golden_stays) return fmt::format("the target does not move {}", them);
  if (golden_stays && !target_stays) return fmt::format("the golden does not move {}", them);
  if (ratios.size() < 2) return "";
  std::sort(ratios.begin(), ratios.end());
  const double middle = ratios[ratios.size() / 2], low = ratios[ratios.size() / 4],
               high = ratios[ratios.size() - 1 - ratios.size() / 4];
  if (middle == 0 || high - low > kSpread * std::abs(middle)) return "";
  if (middle < 0) return "the target moves their norms the other way";
  const std::string times = fmt::format("{:.3g}", middle);
  if (times == "1") return "";
  return fmt::format("the target moves their norms {} times as far as the golden", times);
}

std::string Names(const Updates& updates) {
  std::string text;
  for (size_t i = 0; i < std::min(updates.size(), kNamed); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", updates[i]->name);
  if (updates.size() > kNamed) text += fmt::format(" and {} more", updates.size() - kNamed);
  return text;
}

}  // namespace

std::string DescribeFault(const UpdateFault& fault) {
  switch (fault.kind) {
    case UpdateFault::Kind::kNone:
      return "";
    case UpdateFault::Kind::kRate:
      return fmt::format(
          "the target moves the weights {:.4g} times as far as the golden, as another learning "
          "rate does; under SGD another clip norm, or gradients that are not unscaled, do the same",
          fault.factor);
    case UpdateFault::Kind::kDecay:
      return fmt::format(
          "the target shrinks the weights by {:.3g} of their size {} than the golden, as another "
          "weight decay does",
          std::abs(fault.factor), fault.factor < 0 ? "more" : "less");
    case UpdateFault::Kind::kMomentum:
      return fmt::format(
          "the movements differ by {:.3g} of the movement one step before, as with another "
          "momentum",
          fault.factor);
    case UpdateFault::Kind::kOther:
      return fmt::format(
          "the weights move differently, by {:.2g}% of their movement in the median, by no common "
          "factor, and their gradients agree within rounding",
          100 * fault.factor);
    case UpdateFault::Kind::kHistory:
      return fmt::format(
          "the weights move differently, by {:.2g}% of their movement in the median, and the "
          "update "
          "before it moved them alike: as with other betas or another momentum, which act from the "
          "second update on",
          100 * fault.factor);
  }
  return "";
}

std::string DescribeWrongUpdates(std::span<const WeightUpdate> updates) {
  Updates wrong, right, buffers;
  size_t trained = 0;
  for (const WeightUpdate& update : updates) {
    trained += update.trained;
    if (update.trained) {
      (update.wrong ? wrong : right).push_back(&update);
    } else if (update.wrong) {
      buffers.push_back(&update);
    }
  }
  std::string text;
  if (!wrong.empty()) {
    const bool one = wrong.size() == 1 && trained == 1;
    text = fmt::format("{} of {} parameter{} moved differently", wrong.size(), trained,
                       one ? "" : "s");
    std::string shared = Shared(wrong, right);
    if (shared.empty()) {
      // Weight decay leaves a zero as it is.
      std::erase_if(right, [](const WeightUpdate* u) {
        return u->before.target == 0 && u->before.golden == 0;
      });
      shared = Shared(wrong, right);
      if (!shared.empty()) shared += " but some that were 0";
    }
    const std::string moved = Movement(wrong);
    text += shared.empty() ? fmt::format(": {}", Names(wrong))
                           : fmt::format(": {} ({})", shared, Names(wrong));
    if (!moved.empty()) text += "; " + moved;
  }
  if (!buffers.empty())
    text += fmt::format("{}{} of the values that no optimizer moves differ{}: {}",
                        text.empty() ? "" : "; ", buffers.size(), buffers.size() == 1 ? "s" : "",
                        Names(buffers));
  return text;
}

}  // namespace msprobe::compare
