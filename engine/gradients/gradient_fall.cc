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
  // comes.
  bool IsSmall(size_t row) const {
    return SizeOf(table_.At(row, step_)) < rounding_ * largest_behind_[row];
  }

  // Makes IsRounding and IsSmall answer for this step.
  void Begin(size_t step) {
    std::fill(largest_.begin(), largest_.end(), 0);
    for (size_t row = 0; row < module_of_.size(); ++row) {
      double& largest = largest_[module_of_[row]];
      largest = std::max(largest, SizeOf(table_.At(row, step)));  // NaN changes nothing
    }
    double behind = 0,
           own = 0;  // of the modules behind, and of the part of this one that was passed
    largest_behind_.assign(module_of_.size(), 0);
    for (size_t row = module_of_.size(); row-- > 0;) {
      if (row + 1 < module_of_.size() && module_of_[row + 1] != module_of_[row]) {
        behind = std::max(behind, own);
        own = 0;
      }
      own = std::max(own, SizeOf(table_.At(row, step)));
      largest_behind_[row] = behind;
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
  std::vector<size_t> module_of_;       // of each row
  std::vector<double> largest_;         // of each module
  std::vector<double> largest_behind_;  // for each row: of the modules behind its own
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

// Whether nearly all elements changed their sign and nothing else: chance hardly does that.
bool IsReversed(const Similarity& cell, const FallRule& rule) {
  constexpr int64_t kFewest = 16;
  constexpr double kByChance = 0.2;
  return cell.count >= kFewest && cell.share() <= kByChance &&
         std::fabs(cell.target_norm - cell.golden_norm) <= rule.joined * cell.golden_norm;
}

struct Fallen {
  size_t row = 0;
  std::optional<double> before;
  double depth = 0;  // how much lower than before, or than 1 in the first step
};

// What FallenIn found of one step.
struct FallenRows {
  std::vector<Fallen> fallen;
  std::vector<size_t> unknown;  // rows that fall and may be rounding
  size_t last_compared = 0;     // the last row that was judged
};

// The parameters that fall in this step. `before` has the last similarity of each row, and gets those
// of this step.
FallenRows FallenIn(const SimilarityTable& table, size_t step, const FallRule& rule,
                    const Sizes& sizes, std::vector<std::optional<double>>* before) {
  FallenRows found;
  for (size_t row = 0; row < table.parameters().size(); ++row) {
    const Similarity& cell = table.At(row, step);
    if (!cell.known() || cell.count == 0) continue;
    if (sizes.IsRounding(row)) continue;
    std::optional<double>& former = (*before)[row];
    const double now = Judged(cell, rule);
    constexpr double kRounding = 1e-9;  // 0.97 - 0.94 is a little over 0.03
    const bool falls = former ? *former - now > rule.largest_drop + kRounding
                              : now < rule.lowest_first - kRounding;
    if (falls && sizes.IsSmall(row) && !IsReversed(cell, rule)) {
      found.unknown.push_back(row);
      continue;
    }
    found.last_compared = row;
    if (falls) found.fallen.push_back({row, former, former.value_or(1) - now});
    former = now;
  }
  return found;
}

std::vector<std::string> Named(const SimilarityTable& table, const std::vector<char>& rows) {
  std::vector<std::string> names;
  for (size_t row = 0; row < rows.size(); ++row)
    if (rows[row]) names.push_back(table.parameters()[row]);
  return names;
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
  return Named(table, found);
}

std::vector<std::string> MayBeRounding(const SimilarityTable& table, const FallRule& rule) {
  std::vector<std::optional<double>> before(table.parameters().size());
  std::vector<char> found(table.parameters().size(), 0);
  Sizes sizes(table, rule.rounding);
  for (size_t step = 0; step < table.steps().size(); ++step) {
    sizes.Begin(step);
    for (const size_t row : FallenIn(table, step, rule, sizes, &before).unknown) found[row] = 1;
  }
  return Named(table, found);
}

std::optional<GradientFall> FirstFall(const SimilarityTable& table, const FallRule& rule) {
  std::vector<std::optional<double>> before(table.parameters().size());
  Sizes sizes(table, rule.rounding);
  for (size_t step = 0; step < table.steps().size(); ++step) {
    sizes.Begin(step);
    const FallenRows found = FallenIn(table, step, rule, sizes, &before);
    const std::vector<Fallen>& fallen = found.fallen;
    if (fallen.empty()) continue;
    const Fallen* named = &fallen.back();
    GradientFall fall{.step = table.steps()[step]};
    if (fallen.size() == 1) {
      fall.why = "no other parameter falls in this step";
    } else if (named->row != found.last_compared) {
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
