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
Message Shared(const Updates& wrong, const Updates& right) {
  if (right.empty()) return {};
  const int dimensions = wrong.front()->dimensions;
  const auto same = [&](const WeightUpdate& u) { return u.dimensions == dimensions; };
  const auto more = [](const WeightUpdate& u) { return u.dimensions >= 2; };
  if (dimensions >= 0 && Separates(wrong, right, same))
    return dimensions == 1 ? "all those with 1 dimension and no others"_t
                           : "all those with {} dimensions and no others"_t(dimensions);
  if (Separates(wrong, right, more)) return "all those with 2 or more dimensions and no others"_t;
  const std::string_view last = LastPart(wrong.front()->name);
  if (Separates(wrong, right, [&](const WeightUpdate& u) { return LastPart(u.name) == last; }))
    return "all those named \"{}\" and no others"_t(last);
  const std::string_view module = CommonModule(wrong);
  if (!module.empty() && Separates(wrong, right, [&](const WeightUpdate& u) {
        return std::string_view(u.name).starts_with(module);
      }))
    return "all those of {} and no others"_t(module.substr(0, module.size() - 1));
  return {};
}

bool Stays(double before, double after) {
  return std::abs(after - before) <= 1e-9 * std::max(std::abs(before), std::abs(after));
}

// How far the norms moved in one run against the other; "" where that differs between parameters.
Message Movement(const Updates& wrong) {
  constexpr double kSpread = 0.1;
  bool target_stays = true, golden_stays = true;
  std::vector<double> ratios;
  for (const WeightUpdate* u : wrong) {
    const double target = u->after.target - u->before.target,
                 golden = u->after.golden - u->before.golden;
    if (!std::isfinite(target) || !std::isfinite(golden)) return {};
    target_stays &= Stays(u->before.target, u->after.target);
    golden_stays &= Stays(u->before.golden, u->after.golden);
    if (!Stays(u->before.golden, u->after.golden)) ratios.push_back(target / golden);
  }
  const bool one = wrong.size() == 1;
  if (target_stays && !golden_stays)
    return one ? "the target does not move it"_t : "the target does not move them"_t;
  if (golden_stays && !target_stays)
    return one ? "the golden does not move it"_t : "the golden does not move them"_t;
  if (ratios.size() < 2) return {};
  std::sort(ratios.begin(), ratios.end());
  const double middle = ratios[ratios.size() / 2], low = ratios[ratios.size() / 4],
               high = ratios[ratios.size() - 1 - ratios.size() / 4];
  if (middle == 0 || high - low > kSpread * std::abs(middle)) return {};
  if (middle < 0) return "the target moves their norms the other way"_t;
  const std::string times = fmt::format("{:.3g}", middle);
  if (times == "1") return {};
  return "the target moves their norms {} times as far as the golden"_t(times);
}

// "a.bias, norm.weight, c.bias and 3 more"
Message Names(const Updates& updates) {
  std::vector<Message> names;
  for (size_t i = 0; i < std::min(updates.size(), kNamed); ++i)
    names.emplace_back(updates[i]->name);
  Message text = Message::Joined(std::move(names), ", ");
  if (updates.size() <= kNamed) return text;
  return "{} and {} more"_t(std::move(text), updates.size() - kNamed);
}

}  // namespace

Message DescribeFault(const UpdateFault& fault) {
  switch (fault.kind) {
    case UpdateFault::Kind::kNone:
      return {};
    case UpdateFault::Kind::kRate:
      return "the target moves the weights {:.4g} times as far as the golden, as another learning "
             "rate does; under SGD another clip norm, or gradients that are not unscaled, do the "
             "same"_t(fault.factor);
    case UpdateFault::Kind::kDecay:
      return (fault.factor < 0
                  ? "the target shrinks the weights by {:.3g} of their size more than "
                    "the golden, as another weight decay does"_t
                  : "the target shrinks the weights by {:.3g} of their size less than "
                    "the golden, as another weight decay does"_t)(std::abs(fault.factor));
    case UpdateFault::Kind::kMomentum:
      return "the movements differ by {:.3g} of the movement one step before, as with another "
             "momentum"_t(fault.factor);
    case UpdateFault::Kind::kOther:
      return "the weights move differently, by {:.2g}% of their movement in the median, by no "
             "common "
             "factor, and their gradients agree within rounding"_t(100 * fault.factor);
    case UpdateFault::Kind::kHistory:
      return "the weights move differently, by {:.2g}% of their movement in the median, and the "
             "update "
             "before it moved them alike: as with other betas or another momentum, which act from "
             "the "
             "second update on"_t(100 * fault.factor);
  }
  return {};
}

Message DescribeWrongUpdates(std::span<const WeightUpdate> updates) {
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
  std::vector<Message> parts;
  if (!wrong.empty()) {
    Message count = wrong.size() == 1 && trained == 1
                        ? "1 of 1 parameter moved differently"_t
                        : "{} of {} parameters moved differently"_t(wrong.size(), trained);
    Message shared = Shared(wrong, right);
    if (shared.empty()) {
      // Weight decay leaves a zero as it is.
      std::erase_if(right, [](const WeightUpdate* u) {
        return u->before.target == 0 && u->before.golden == 0;
      });
      shared = Shared(wrong, right);
      if (!shared.empty()) shared = "{} but some that were 0"_t(std::move(shared));
    }
    Message which = shared.empty() ? Names(wrong) : "{} ({})"_t(std::move(shared), Names(wrong));
    parts.push_back(Message::Joined({std::move(count), std::move(which)}, ": "));
    parts.push_back(Movement(wrong));
  }
  if (!buffers.empty()) {
    parts.push_back(buffers.size() == 1
                        ? "1 of the values that no optimizer moves differs: {}"_t(Names(buffers))
                        : "{} of the values that no optimizer moves differ: {}"_t(buffers.size(),
                                                                                  Names(buffers)));
  }
  return Message::Joined(std::move(parts), "; ");
}

}  // namespace msprobe::compare
