#include "engine/gradients/gradient_fall.h"

namespace msprobe::gradients {
namespace {

struct Fallen {
  size_t row = 0;
  std::optional<double> before;
  double depth = 0;  // how much lower than before, or than 1 in the first step
};

// The parameters that fall in this step. `before` has the last similarity of each row, and gets those
// of this step. `last_compared`: the last row of
// this step.
std::vector<Fallen> FallenIn(const SimilarityTable& table, size_t step, const FallRule& rule,
                             std::vector<std::optional<double>>* before, size_t* last_compared) {
  std::vector<Fallen> fallen;
  for (size_t row = 0; row < table.parameters().size(); ++row) {
    const Similarity& cell = table.At(row, step);
    if (!cell.known() || cell.count == 0) continue;
    *last_compared = row;
    std::optional<double>& former = (*before)[row];
    const double now = cell.share();
    constexpr double kRounding = 1e-9;  // 0.97 - 0.94 is a little over 0.03
    const bool falls = former ? *former - now > rule.largest_drop + kRounding
                              : now < rule.lowest_first - kRounding;
    if (falls) fallen.push_back({row, former, former.value_or(1) - now});
    former = now;
  }
  return fallen;
}

}  // namespace

std::optional<GradientFall> FirstFall(const SimilarityTable& table, const FallRule& rule) {
  std::vector<std::optional<double>> before(table.parameters().size());
  for (size_t step = 0; step < table.steps().size(); ++step) {
    size_t last = 0;
    const std::vector<Fallen> fallen = FallenIn(table, step, rule, &before, &last);
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
