#include "engine/gradients/gradient_fall.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>

namespace msprobe::gradients {
namespace {

constexpr double kFloat32 = DTypeEpsilon(DType::kFloat32);

// How large the gradients of a step are beside each other, and in which dtype its pass computed.
class Sizes {
 public:
  Sizes(const SimilarityTable& table, const FallRule& rule) : table_(table), rule_(rule) {
    std::unordered_map<std::string_view, size_t> modules;  // "layers.1.fc" of "layers.1.fc.bias"
    for (const std::string& name : table.parameters()) {
      const std::string_view module = std::string_view(name).substr(0, name.rfind('.') + 1);
      module_of_.push_back(modules.emplace(module, modules.size()).first->second);
    }
    largest_.resize(modules.size());
  }

  // Makes the other functions answer for this step.
  void Begin(size_t step) {
    step_ = step;
    std::fill(largest_.begin(), largest_.end(), 0);
    int64_t all = 0, coarse = 0;
    for (size_t row = 0; row < module_of_.size(); ++row) {
      const Similarity& cell = table_.At(row, step);
      double& largest = largest_[module_of_[row]];
      largest = std::max(largest, SizeOf(cell));  // NaN changes nothing
      all += std::max<int64_t>(cell.count, 0);
      if (cell.epsilon > kFloat32) coarse += std::max<int64_t>(cell.count, 0);
    }
    largest_of_all_ = largest_.empty() ? 0 : *std::max_element(largest_.begin(), largest_.end());
    // What one gradient shows may be chance: 1 and 2 are numbers of bfloat16, too.
    epsilon_ = kFloat32;
    if (2 * coarse <= all) return;
    for (size_t row = 0; row < module_of_.size(); ++row)
      epsilon_ = std::max(epsilon_, table_.At(row, step).epsilon);
  }

  double epsilon() const { return epsilon_; }
  bool is_coarse() const { return epsilon_ > kFloat32; }
  // As small as the rounding of its module's largest, in float32.
  bool IsRounding(size_t row) const {
    return Size(row) < rule_.rounding * largest_[module_of_[row]];
  }
  // As small as what rounding may leave of a sum that cancels, in front of whatever module.
  bool IsSmall(size_t row) const {
    return Size(row) < rule_.rounding * largest_of_all_ || IsSmallInModule(row);
  }
  bool IsSmallInModule(size_t row) const {
    return is_coarse() && Size(row) < rule_.coarse * epsilon_ * largest_[module_of_[row]];
  }

 private:
  double Size(size_t row) const { return SizeOf(table_.At(row, step_)); }
  // The root mean square of the larger side; NaN: not known.
  static double SizeOf(const Similarity& cell) {
    if (cell.count <= 0 || std::isnan(cell.target_norm)) return std::nan("");
    const double larger =
        cell.target_norm > cell.golden_norm ? cell.target_norm : cell.golden_norm;  // or NaN
    return larger / std::sqrt(static_cast<double>(cell.count));
  }

  const SimilarityTable& table_;
  const FallRule& rule_;
  size_t step_ = 0;
  double epsilon_ = kFloat32, largest_of_all_ = 0;
  std::vector<size_t> module_of_;  // of each row
  std::vector<double> largest_;    // of each module
};

// The changed elements that rounding explains in parts of a joined bias.
int64_t RoundingOfParts(const Similarity& cell, const FallRule& rule, const Sizes& sizes) {
  const double apart = std::fabs(cell.target_norm - cell.golden_norm);
  const double limit = sizes.is_coarse() ? sizes.epsilon() : rule.joined;
  return apart <= limit * cell.golden_norm ? cell.changed_parts : 0;  // NaN: 0
}

// The share of elements with the same direction, as the rule sees it.
double Judged(const Similarity& cell, const FallRule& rule, const Sizes& sizes) {
  const int64_t parts = RoundingOfParts(cell, rule, sizes);
  return cell.share() +
         (parts == 0 ? 0 : static_cast<double>(parts) / static_cast<double>(cell.count));
}

// Whether chance turns `changed` of `count` elements, each with this probability, in one of a
// thousand cases or more.
bool IsChance(int64_t changed, int64_t count, double probability) {
  constexpr double kRare = 1e-3, kDeviations = 3.1;
  const double mean = static_cast<double>(count) * probability;
  if (static_cast<double>(changed) <= mean) return true;
  if (mean > 100) return static_cast<double>(changed) - mean <= kDeviations * std::sqrt(mean);
  double fewer = 0, term = std::exp(static_cast<double>(count) * std::log1p(-probability));
  for (int64_t x = 0; x < changed; ++x) {
    fewer += term;
    term *= static_cast<double>(count - x) / static_cast<double>(x + 1) * probability /
            (1 - probability);
  }
  return 1 - fewer >= kRare;
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

// The share of elements that point elsewhere, of ordinary gradients that do not fall; one more than
// were seen, so that it is not zero where few were compared.
double ShareTurned(const SimilarityTable& table, size_t step, const Sizes& sizes,
                   const std::vector<char>& falls) {
  int64_t changed = 1, all = 0;
  for (size_t row = 0; row < falls.size(); ++row) {
    const Similarity& cell = table.At(row, step);
    if (falls[row] || cell.count <= 0 || sizes.IsSmall(row) || sizes.IsRounding(row)) continue;
    changed += cell.count - cell.same - cell.changed_parts;
    all += cell.count;
  }
  return static_cast<double>(changed) / static_cast<double>(std::max<int64_t>(all, 1));
}

bool Falls(double now, const std::optional<double>& before, const FallRule& rule) {
  constexpr double kRounding = 1e-9;  // 0.97 - 0.94 is a little over 0.03
  return before ? *before - now > rule.largest_drop + kRounding
                : now < rule.lowest_first - kRounding;
}

// The parameters that fall in this step. `before` has the last similarity of each row, and gets
// those of this step.
FallenRows FallenIn(const SimilarityTable& table, size_t step, const FallRule& rule,
                    const Sizes& sizes, std::vector<std::optional<double>>* before) {
  const size_t rows = table.parameters().size();
  std::vector<char> judged(rows, 0), falls(rows, 0);
  for (size_t row = 0; row < rows; ++row) {
    const Similarity& cell = table.At(row, step);
    judged[row] = cell.known() && cell.count != 0 && !sizes.IsRounding(row);
    falls[row] = judged[row] && Falls(Judged(cell, rule, sizes), (*before)[row], rule);
  }
  const double turned =
      sizes.is_coarse() ? std::min(rule.most_turned, ShareTurned(table, step, sizes, falls)) : 0;
  FallenRows found;
  for (size_t row = 0; row < rows; ++row) {
    if (!judged[row]) continue;
    const Similarity& cell = table.At(row, step);
    const double now = Judged(cell, rule, sizes);
    const bool rounding = sizes.IsSmall(row) ||
                          (turned > 0 && IsChance(cell.count - cell.same, cell.count, 2 * turned));
    if (falls[row] && rounding && !IsReversed(cell, rule)) {
      found.unknown.push_back(row);
      continue;
    }
    std::optional<double>& former = (*before)[row];
    found.last_compared = row;
    if (falls[row]) found.fallen.push_back({row, former, former.value_or(1) - now});
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
  Sizes sizes(table, rule);
  for (size_t step = 0; step < table.steps().size(); ++step) {
    sizes.Begin(step);
    for (size_t row = 0; row < found.size(); ++row) {
      const Similarity& cell = table.At(row, step);
      const bool parts = RoundingOfParts(cell, rule, sizes) > 0;
      if (parts || (cell.same < cell.count && sizes.IsRounding(row))) found[row] = 1;
    }
  }
  return Named(table, found);
}

std::vector<std::string> MayBeRounding(const SimilarityTable& table, const FallRule& rule) {
  std::vector<std::optional<double>> before(table.parameters().size());
  std::vector<char> found(table.parameters().size(), 0);
  Sizes sizes(table, rule);
  for (size_t step = 0; step < table.steps().size(); ++step) {
    sizes.Begin(step);
    for (const size_t row : FallenIn(table, step, rule, sizes, &before).unknown) found[row] = 1;
  }
  return Named(table, found);
}

std::optional<GradientFall> FirstFall(const SimilarityTable& table, const FallRule& rule) {
  std::vector<std::optional<double>> before(table.parameters().size());
  Sizes sizes(table, rule);
  for (size_t step = 0; step < table.steps().size(); ++step) {
    sizes.Begin(step);
    const FallenRows found = FallenIn(table, step, rule, sizes, &before);
    const std::vector<Fallen>& fallen = found.fallen;
    if (fallen.empty()) continue;
    const Fallen* named = &fallen.back();
    GradientFall fall{.step = table.steps()[step]};
    if (fallen.size() == 1) {
      fall.why = "no other parameter falls in this step"_t;
    } else if (named->row != found.last_compared) {
      fall.why =
          "the parameters after it in the model do not fall: the backward pass was right up to "
          "it"_t;
    } else {
      // The later one of two that fall as much: the backward pass reaches it first.
      for (const Fallen& other : fallen)
        if (other.depth > named->depth) named = &other;
      fall.why = Message::Joined(
          {"it falls most"_t,
           "the last parameter of the model falls, too, so the error may be in the forward pass, "
           "the loss or the data"_t},
          "; ");
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
