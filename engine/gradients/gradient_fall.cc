#include "engine/gradients/gradient_fall.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>

namespace msprobe::gradients {
namespace {

// Tells for each cell whether its gradient is rounding, as FallRule says.
class Sizes {
 public:
  Sizes(const SimilarityTable& table, double rounding) : table_(table), rounding_(rounding) {
    std::unordered_map<std::string_view, size_t> modules;  // "layers.1.fc" of "layers.1.fc.bias"
    for (const std::string& name : table.parameters()) {
      const std::string_view module = std::string_view(name).substr(0, name.rfind('.') + 1);
      module_of_.push_back(modules.emplace(module, modules.size()).first->second);
    }
    largest_.resize(modules.size());
  }

  // Whether the gradient is as small beside one of a module behind it, from which the backward pass
  // comes. Nothing that is recorded says whether rounding made it, as of all in front of a norm whose
  // result is averaged, or it is real and small, as behind a factor of 1e-6.
  bool IsSmall(size_t row) const {
    const double size = SizeOf(table_.At(row, step_));
    for (size_t later = row + 1; later < module_of_.size(); ++later) {
      if (module_of_[later] != module_of_[row] && size < rounding_ * largest_[module_of_[later]])
        return true;
    }
    return false;
  }

  // Makes IsRounding answer for this step.
  void Begin(size_t step) {
    std::fill(largest_.begin(), largest_.end(), 0);
    for (size_t row = 0; row < module_of_.size(); ++row) {
      double& largest = largest_[module_of_[row]];
      largest = std::max(largest, SizeOf(table_.At(row, step)));  // NaN changes nothing
    }
    step_ = step;
  }
  bool IsRounding(size_t row) const {
    return SizeOf(table_.At(row, step_)) < rounding_ * largest_[module_of_[row]];
  }

 private:
  // The root mean square of the larger side; NaN: not known.
  static double SizeOf(const Similarity& cell) {
    if (cell.count <= 0 || std::isnan(cell.target_norm)) return std::nan("");
    const double larger =
        cell.target_norm > cell.golden_norm ? cell.target_norm : cell.golden_norm;  // or NaN
    return larger / std::sqrt(static_cast<double>(cell.count));
  }

  const SimilarityTable& table_;
  const double rounding_;
  size_t step_ = 0;
  std::vector<size_t> module_of_;  // of each row
  std::vector<double> largest_;    // of each module
};

// The changed elements that rounding explains in parts of a joined bias.
int64_t RoundingOfParts(const Similarity& cell, const FallRule& rule) {
  const double apart = std::fabs(cell.target_norm - cell.golden_norm);
  return apart <= rule.joined * cell.golden_norm ? cell.changed_parts : 0;  // NaN: 0
}

// The share of elements with the same direction, as the rule sees it.
double Judged(const Similarity& cell, const FallRule& rule) {
  const int64_t parts = RoundingOfParts(cell, rule);
  return cell.share() +
         (parts == 0 ? 0 : static_cast<double>(parts) / static_cast<double>(cell.count));
}

struct Fallen {
  size_t row = 0;
  std::optional<double> before;
  double depth = 0;  // how much lower than before, or than 1 in the first step
};

// The parameters that fall in this step. `before` has the last similarity of each row, and gets those
// of this step. `last_compared`: the last row of
// this step.
std::vector<Fallen> FallenIn(const SimilarityTable& table, size_t step, const FallRule& rule,
                             const Sizes& sizes, std::vector<std::optional<double>>* before,
                             size_t* last_compared) {
  std::vector<Fallen> fallen;
  for (size_t row = 0; row < table.parameters().size(); ++row) {
    const Similarity& cell = table.At(row, step);
    if (!cell.known() || cell.count == 0) continue;
    if (sizes.IsRounding(row)) continue;
    *last_compared = row;
    std::optional<double>& former = (*before)[row];
    const double now = Judged(cell, rule);
    constexpr double kRounding = 1e-9;  // 0.97 - 0.94 is a little over 0.03
    const bool falls = former ? *former - now > rule.largest_drop + kRounding
                              : now < rule.lowest_first - kRounding;
    if (falls) fallen.push_back({row, former, former.value_or(1) - now});
    former = now;
  }
  return fallen;
}

}  // namespace

std::vector<std::string> OnlyRounding(const SimilarityTable& table, const FallRule& rule) {
  std::vector<char> found(table.parameters().size(), 0);
  Sizes sizes(table, rule.rounding);
  for (size_t step = 0; step < table.steps().size(); ++step) {
    sizes.Begin(step);
    for (size_t row = 0; row < found.size(); ++row) {
      const Similarity& cell = table.At(row, step);
      const bool parts = RoundingOfParts(cell, rule) > 0;
      if (parts || (cell.same < cell.count && sizes.IsRounding(row))) found[row] = 1;
    }
  }
  std::vector<std::string> names;
  for (size_t row = 0; row < found.size(); ++row)
    if (found[row]) names.push_back(table.parameters()[row]);
  return names;
}

std::optional<GradientFall> FirstFall(const SimilarityTable& table, const FallRule& rule) {
  std::vector<std::optional<double>> before(table.parameters().size());
  Sizes sizes(table, rule.rounding);
  for (size_t step = 0; step < table.steps().size(); ++step) {
    size_t last = 0;
    sizes.Begin(step);
    const std::vector<Fallen> fallen = FallenIn(table, step, rule, sizes, &before, &last);
    if (fallen.empty()) continue;
    const Fallen* named = &fallen.back();
    GradientFall fall{.step = table.steps()[step]};
    if (fallen.size() == 1) {
      fall.why = "no other parameter falls in this step";
    } else if (named->row != last) {
      fall.why =
          "the parameters after it in the model do not fall: the backward pass was right up to it";
    } else {
      // The later one of two that fall as much: the backward pass reaches it first.
      for (const Fallen& other : fallen)
        if (other.depth > named->depth) named = &other;
      fall.why =
          "it falls most; the last parameter of the model falls, too, so the error may be in "
          "the forward pass, the loss or the data";
    }
    if (sizes.IsSmall(named->row))
      fall.why +=
          "; its gradient is as small as the rounding of those behind it: if mathematics makes it "
          "zero (all in front of a norm whose result is averaged), its directions are chance";
    const Similarity& cell = table.At(named->row, step);
    fall.parameter = table.parameters()[named->row];
    fall.before = named->before;
    fall.similarity = cell.share();
    fall.changed = cell.count < 0 ? -1 : cell.count - cell.same;
    fall.count = cell.count;
    for (const Fallen& other : fallen)
      if (other.row != named->row) fall.others.push_back(table.parameters()[other.row]);
    return fall;
  }
  return std::nullopt;
}

}  // namespace msprobe::gradients
