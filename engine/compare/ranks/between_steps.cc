#include "engine/compare/ranks/between_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/unmatched_calls.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/judge/zero_gradients.h"
#include "engine/compare/model/fingerprint_set.h"
#include "engine/compare/model/page_release.h"
#include "engine/compare/model/record_keys.h"
#include "engine/dump/read/weights_file.h"
#include "engine/model/names.h"
#include "engine/model/text_arena.h"

namespace msprobe::compare {
namespace {

constexpr size_t kKept = 64, kMoreThatDiffer = 4, kCalls = 6, kNamed = 3;

using Weights = std::vector<StepWeights::Weight>;

// Weights in the order in which they are added; the name of each counts once.
class Collected {
 public:
  void Set(std::string name, const Comparison& c, uint32_t row, bool replaces) {
    const Row& r = c.rows[row];
    if (r.target < 0 || r.golden < 0) return;
    const Leaf &t = c.target.leaves[r.target], &g = c.golden.leaves[r.golden];
    if (t.kind != LeafKind::kTensor || g.kind != LeafKind::kTensor) return;
    const auto [at, is_new] = index_.try_emplace(name, all_.size());
    StepWeights::Weight weight{.name = std::move(name),
                               .norm = {t.norm_value, g.norm_value},
                               .max = {t.max_value, g.max_value},
                               .min = {t.min_value, g.min_value},
                               .differs = c.measures[row].verdict == RowVerdict::kDiffers,
                               .epsilon = RoundingOfRow(c, static_cast<int32_t>(row)).epsilon};
    if (is_new) {
      all_.push_back(std::move(weight));
    } else if (replaces) {
      all_[at->second] = std::move(weight);
    }
  }
  bool empty() const { return all_.empty(); }
  const Weights& all() const { return all_; }

 private:
  Weights all_;
  std::unordered_map<std::string, size_t> index_;
};

Weights Selected(const Weights& all) {
  Weights kept;
  size_t more = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i < kKept || (all[i].differs && more++ < kMoreThatDiffer)) kept.push_back(all[i]);
  }
  return kept;
}

bool IsGradient(const Record& record, const Leaf& leaf) {
  return leaf.kind == LeafKind::kTensor && (record.direction == Direction::kParameterGrad ||
                                            record.direction == Direction::kBackward);
}

// Tells which values are weights that an optimizer may move. Dumps of MindSpore do not say of a
// value whether it requires a gradient: their weights files say it of each weight.
class TrainedWeights {
 public:
  explicit TrainedWeights(const Dump& dump) : dump_(dump) {}

  bool Has(const Leaf& leaf) {
    if (!leaf.requires_grad.empty()) return leaf.requires_grad == "True";
    if (dump_.framework != "mindspore" || leaf.fingerprint.empty()) return false;
    if (!read_) Read();
    return prints_.Has(leaf.fingerprint);
  }

 private:
  // A file that cannot be read tells nothing.
  void Read() {
    read_ = true;
    std::vector<StepWeight> weights;
    if (!dump::ReadStepWeights(dump_.folder, &weights).ok()) return;
    TextArena arena;
    for (const StepWeight& weight : weights) {
      if (weight.trained) prints_.Insert(FingerprintText(weight.fingerprint, &arena));
    }
  }

  const Dump& dump_;
  bool read_ = false;
  FingerprintSet prints_;
};

// The relative errors of gradients of parameters, one after another.
class GradientNoise {
 public:
  void Add(const Comparison& c, const Record& record, uint32_t row) {
    // Only one run may list the gradient.
    const bool both = c.rows[row].target >= 0 && c.rows[row].golden >= 0;
    if (record.direction != Direction::kParameterGrad || !both) return;
    const double error =
        c.measures[row].severity * RoundingOfRow(c, static_cast<int32_t>(row)).epsilon;
    if (std::isfinite(error)) errors_.push_back(error);
  }
  // That of nine of ten; NaN: there is none.
  double Value() {
    if (errors_.empty()) return std::nan("");
    const auto at = errors_.begin() + static_cast<std::ptrdiff_t>(0.9 * (errors_.size() - 1));
    std::nth_element(errors_.begin(), at, errors_.end());
    return *at;
  }

 private:
  std::vector<double> errors_;
};

bool IsWeightOfACall(const Record& record, const Leaf& leaf, TrainedWeights* trained) {
  return !record.is_module && record.direction == Direction::kForward &&
         leaf.slot == Slot::kInput && trained->Has(leaf);
}

// The weight whose gradient the row is, if that is zero by mathematics; else "".
std::string MovedByChance(const Comparison& c, const RecordPair& pair, uint32_t row) {
  constexpr std::string_view kGradients = "input.gradients.";
  if (!IsZeroGradient(c, pair, row)) return "";
  const Record& record = c.target.records[pair.target];
  if (record.direction == Direction::kParameterGrad)
    return ParameterName(record.api, LeafPlace(c.target.leaves[c.rows[row].target], record));
  return std::string(LeafPath(c, static_cast<int32_t>(row)).substr(kGradients.size()));
}

// The relative error of a value; 0: one run has it alone, or no number tells.
double RelativeErrorOf(const Comparison& c, int32_t row) {
  if (row < 0 || !c.rows[row].has_both()) return 0;
  const double error = c.measures[row].severity * RoundingOfRow(c, row).epsilon;
  return std::isfinite(error) ? error : 0;
}

// Whether the row is a tensor of an optimizer's state that is off by at most a thousandth: steps
// before have made it, and do not enlarge rounding as they do in weights.
bool IsSmallErrorOfState(const Comparison& c, int32_t row) {
  constexpr double kLargest = 0x1p-10;
  if (!c.rows[row].has_both() || !std::isfinite(c.measures[row].severity)) return false;
  const Leaf& leaf = c.target.leaves[c.rows[row].target];
  return IsStateOfOptimizer(c.target.records[leaf.record], leaf) &&
         RelativeErrorOf(c, row) <= kLargest;
}

// StepWeights::begins_otherwise.
bool BeginsOtherwise(const Comparison& c, TrainedWeights* trained) {
  if (c.first.pair < 0 || c.classes[c.first.pair] != CallClass::kInherited || c.first.row < 0 ||
      c.rows[c.first.row].target < 0)
    return false;
  const Leaf& leaf = c.target.leaves[c.rows[c.first.row].target];
  return leaf.slot == Slot::kParameter || trained->Has(leaf) || IsSmallErrorOfState(c, c.first.row);
}

// StepWeights::error_behind_weight. `made`: contents of the outputs of recorded calls.
double ErrorBehindWeight(const Comparison& c, const FingerprintSet& made, TrainedWeights* trained) {
  if (c.first.pair < 0 || c.first.row < 0 || !c.pairs[c.first.pair].matched()) return 0;
  const RecordPair& pair = c.pairs[c.first.pair];
  if (!DifferingArguments(c, c.first.pair).empty()) return 0;
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    if (row.target < 0 || row.golden < 0) continue;
    const Leaf &t = c.target.leaves[row.target], &g = c.golden.leaves[row.golden];
    const bool reads = t.slot == Slot::kParameter || t.slot == Slot::kInput;
    const bool is_weight = trained->Has(t) && !made.HasHash(ContentKey(t));
    if (!reads || !is_weight || t.fingerprint == g.fingerprint) continue;
    if (c.measures[i].verdict == RowVerdict::kDiffers) continue;
    return RelativeErrorOf(c, c.first.row);
  }
  return 0;
}

// StepWeights::first_error.
double ErrorOfFirst(const Comparison& c) {
  if (c.first.pair < 0 || !DifferingArguments(c, c.first.pair).empty()) return 0;
  return RelativeErrorOf(c, c.first.row);
}

// "fc.bias in the target": a weight that only one run gives to its optimizer; "" for other rows.
Message WeightOfOneRun(const Comparison& c, uint32_t row) {
  constexpr std::string_view kWeights = "input.weights.";
  const bool in_target = c.rows[row].golden < 0;
  const std::string_view path = LeafPath(c, static_cast<int32_t>(row));
  if ((!in_target && c.rows[row].target >= 0) || !path.starts_with(kWeights)) return {};
  return (in_target ? "{} in the target"_t : "{} in the golden"_t)(path.substr(kWeights.size()));
}

// The first weight of the later step that differs, in the order of the file.
std::vector<const StepWeights::Weight*> Differing(const Weights& weights,
                                                  const std::vector<std::string>& file_order) {
  std::vector<const StepWeights::Weight*> found;
  for (const StepWeights::Weight& weight : weights) {
    if (weight.differs) found.push_back(&weight);
  }
  std::unordered_map<std::string_view, size_t> place;
  for (size_t i = 0; i < file_order.size(); ++i) place.try_emplace(file_order[i], i);
  const auto rank = [&](const StepWeights::Weight* weight) {
    const auto at = place.find(weight->name);
    return at == place.end() ? file_order.size() : at->second;
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const auto* a, const auto* b) { return rank(a) < rank(b); });
  return found;
}

// "fc.bias (its norm moves from 1.2 to 1.3 in the target, stays 1.2 in the golden)"
Message NameAndMovement(const StepWeights::Weight& now, const Weights& before) {
  const auto was = std::find_if(before.begin(), before.end(),
                                [&](const auto& weight) { return weight.name == now.name; });
  const auto moved = [](double from, double to) {
    return from == to ? "stays {:.7g}"_t(to) : "moves from {:.7g} to {:.7g}"_t(from, to);
  };
  if (!std::isfinite(now.norm.target) || !std::isfinite(now.norm.golden)) return now.name;
  if (was == before.end()) {
    return "{} (norm {:.7g} in the target, {:.7g} in the golden)"_t(now.name, now.norm.target,
                                                                    now.norm.golden);
  }
  return "{} (its norm {} in the target, {} in the golden)"_t(
      now.name, moved(was->norm.target, now.norm.target), moved(was->norm.golden, now.norm.golden));
}

}  // namespace

bool MovesByChance(const StepWeights& step, std::string_view name) {
  return std::ranges::find(step.by_chance, name) != step.by_chance.end();
}

Message DescribeCause(const StepOfRank& earlier) {
  const StepWeights& w = *earlier.weights;
  if (w.optimizer_calls.empty()) {
    return w.in_graph_mode
               ? "gradient clipping, the optimizer, its schedule, loading of weights or "
                 "synchronisation, none of which is recorded in that step; in PyNative mode level "
                 "mix records optimizers if step() of the debugger comes after them"_t
               : "gradient clipping, the optimizer, its schedule, loading of weights or "
                 "synchronisation, none of which is recorded in that step; level mix records "
                 "optimizers if step() of the debugger comes after them"_t;
  }
  const std::string calls = fmt::format("{}", fmt::join(w.optimizer_calls, ", "));
  if (!w.alone.empty()) return "the optimizer, which has {} only; recorded: {}"_t(w.alone, calls);
  if (w.end.empty()) {
    return "the optimizer, its schedule, loading of weights or synchronisation; recorded and "
           "equal: "
           "{}"_t(calls);
  }
  return "loading of weights, synchronisation or other code after the optimizer: {} and the "
         "weights "
         "after them agree"_t(calls);
}

Message DescribeStepThatAgrees(const StepOfRank& earlier, int32_t later) {
  return (earlier.weights->gradients_agree
              ? "step {} agrees, gradients included, and step {} begins with other weights: what "
                "changed them is between the steps. It is {}"_t
              : "step {} agrees, and step {} begins with other weights: what changed them is "
                "between the steps. It is {}"_t)(earlier.step, later, DescribeCause(earlier));
}

namespace {

// Collects what one step says of the weights, from all of its rows.
class WeightScan {
 public:
  explicit WeightScan(const Comparison& c) : c_(c), trained_(c.target) {}

  StepWeights Take() {
    AddFacts();
    PageRelease pages(c_.target, c_.golden);
    for (const RecordPair& pair : c_.pairs) {
      pages.RowsDone(pair.row_count);
      if (pair.matched()) AddCall(pair);
    }
    Finish();
    return std::move(w_);
  }

 private:
  void AddFacts() {
    if (c_.decided) {
      w_.unrelated = c_.decided->unrelated_weights;
      w_.related = c_.decided->related_weights;
      w_.written = c_.decided->written_weights;
    }
    for (const Dump* dump : {&c_.target, &c_.golden}) {
      for (const auto& [key, value] : dump->provenance)
        w_.in_graph_mode |= key == "mode" && value == "graph";
    }
  }

  void AddCall(const RecordPair& pair) {
    const Record& record = c_.target.records[pair.target];
    const bool optimizer = IsOptimizerCall(record.api);
    if (optimizer && w_.optimizer_calls.size() < kCalls)
      w_.optimizer_calls.emplace_back(record.name.view());
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      if (optimizer && w_.alone.empty()) w_.alone = WeightOfOneRun(c_, i);
      if (c_.rows[i].target < 0) continue;
      const Leaf& leaf = c_.target.leaves[c_.rows[i].target];
      AddContent(record, leaf, i);
      AddMovedByChance(pair, i);
      if (optimizer) AddOfOptimizer(i);
      if (!optimizer && leaf.slot == Slot::kParameter) AddOfModule(record, i);
    }
  }

  void AddContent(const Record& record, const Leaf& leaf, uint32_t row) {
    if (IsGradient(record, leaf)) {
      gradients_ = true;
      wrong_gradients_ |= c_.measures[row].verdict == RowVerdict::kDiffers;
      noise_.Add(c_, record, row);
    }
    const uint64_t content = ContentKey(leaf);
    const bool more_arguments = arguments_.all().size() < kKept;
    if (more_arguments && IsWeightOfACall(record, leaf, &trained_) && !made_.HasHash(content))
      arguments_.Set(std::string(leaf.name.view()), c_, row, /*replaces=*/false);
    if ((c_.first.pair >= 0 || arguments_.all().size() < kKept) && leaf.slot == Slot::kOutput &&
        content != 0)
      made_.InsertHash(content);
  }

  void AddMovedByChance(const RecordPair& pair, uint32_t row) {
    const std::string name = MovedByChance(c_, pair, row);
    if (!name.empty() && std::ranges::find(w_.by_chance, name) == w_.by_chance.end())
      w_.by_chance.push_back(name);
  }

  // The rest of a path that begins so; nullopt: it begins otherwise.
  static std::optional<std::string_view> Behind(std::string_view prefix, std::string_view path) {
    if (!path.starts_with(prefix)) return std::nullopt;
    return path.substr(prefix.size());
  }

  void AddOfModule(const Record& record, uint32_t row) {
    const std::string_view path = LeafPath(c_, static_cast<int32_t>(row));
    if (record.direction != Direction::kForward) return;
    if (const auto name = Behind("parameters.", path))
      modules_.Set(ParameterName(record.api, *name), c_, row, /*replaces=*/false);
  }

  void AddOfOptimizer(uint32_t row) {
    const std::string_view path = LeafPath(c_, static_cast<int32_t>(row));
    if (const auto name = Behind("input.weights.", path)) {
      before_.Set(std::string(*name), c_, row, /*replaces=*/false);
    } else if (const auto changed = Behind("output.0.weights.", path)) {
      after_.Set(std::string(*changed), c_, row, /*replaces=*/true);
    }
  }

  void Finish() {
    const Weights& begin = !modules_.empty()  ? modules_.all()
                           : !before_.empty() ? before_.all()
                                              : arguments_.all();
    w_.begin = Selected(begin);
    w_.end = Selected(after_.all());
    w_.count = static_cast<int64_t>(begin.size());
    w_.differing =
        std::count_if(begin.begin(), begin.end(), [](const auto& x) { return x.differs; });
    w_.gradients_agree = gradients_ && !wrong_gradients_;
    w_.gradient_noise = noise_.Value();
    w_.begins_otherwise = BeginsOtherwise(c_, &trained_);
    w_.first_is_weight = c_.first.pair >= 0 && c_.first.row >= 0 &&
                         c_.rows[c_.first.row].target >= 0 &&
                         c_.target.leaves[c_.rows[c_.first.row].target].slot == Slot::kParameter;
    w_.error_behind_weight = ErrorBehindWeight(c_, made_, &trained_);
    w_.first_error = ErrorOfFirst(c_);
    std::string room;
    for (const Weight& weight : c_.target.weights)
      w_.file_order.emplace_back(WithoutWrappers(weight.name, &room));
  }

  const Comparison& c_;
  StepWeights w_;
  Collected modules_, before_, after_, arguments_;
  FingerprintSet made_;  // contents of the target's outputs
  bool gradients_ = false, wrong_gradients_ = false;
  GradientNoise noise_;
  TrainedWeights trained_;
};

}  // namespace

StepWeights WeightsIn(const Comparison& c) { return WeightScan(c).Take(); }

namespace {

using ByName = std::unordered_map<std::string_view, const StepWeights::Weight*>;

ByName ByNameOf(const StepOfRank* step) {
  ByName weights;
  if (step == nullptr || step->weights == nullptr) return weights;
  for (const StepWeights::Weight& weight : step->weights->begin) weights[weight.name] = &weight;
  return weights;
}

// The movements of the weights between two steps, and the largest one relative to what moved.
UpdateAgreement UpdatesOf(const StepOfRank& earlier, const StepOfRank& later,
                          const StepOfRank* first, double* moved) {
  const ByName before = ByNameOf(&earlier), at_first = ByNameOf(first);
  UpdateAgreement updates;
  uint32_t count = 0;
  for (const StepWeights::Weight& now : later.weights->begin) {
    const auto was = before.find(now.name), begun = at_first.find(now.name);
    ++count;
    if (was == before.end() || MovesByChance(*earlier.weights, now.name)) continue;
    uint8_t number = 0;
    for (const auto statistic :
         {&StepWeights::Weight::norm, &StepWeights::Weight::max, &StepWeights::Weight::min}) {
      const BothSides from = was->second->*statistic, to = now.*statistic;
      updates.Add(
          {.before = from,
           .after = to,
           .earlier = begun == at_first.end() ? BothSides{NAN, NAN} : begun->second->*statistic,
           .epsilon = now.epsilon,
           .weight = count,
           .statistic = number++});
      const double change = std::abs(to.golden - from.golden) / std::abs(from.golden);
      if (std::isfinite(change)) *moved = std::max(*moved, change);
    }
  }
  return updates;
}

}  // namespace

UpdateFault FaultOfUpdate(const StepOfRank& earlier, const StepOfRank& later,
                          const StepOfRank* first) {
  double moved = 0;
  return UpdatesOf(earlier, later, first, &moved).fault();
}

bool CarriesRounding(const StepOfRank& earlier, const StepOfRank& later, const StepOfRank* first) {
  const StepWeights& weights = *later.weights;
  if (!earlier.agrees || !earlier.rounds) return false;
  if (!weights.begins_otherwise && weights.error_behind_weight == 0) return false;
  double moved = 0;
  const UpdateAgreement updates = UpdatesOf(earlier, later, first, &moved);
  if (!updates.agrees() || updates.otherwise(earlier.weights->gradient_noise) > 0) return false;
  constexpr double kOfMovement = 0.01;
  return weights.begins_otherwise || weights.error_behind_weight <= kOfMovement * moved;
}

Message DescribeBetweenSteps(const StepOfRank& earlier, const StepOfRank& later,
                             const std::vector<std::string>& file_order) {
  if (earlier.weights == nullptr || later.weights == nullptr || !earlier.agrees) return {};
  const StepWeights &was = *earlier.weights, &now = *later.weights;
  if (now.differing == 0 && !now.begins_otherwise) return {};
  Message text = DescribeStepThatAgrees(earlier, later.step);
  if (now.differing == 0) return text;
  const std::vector<const StepWeights::Weight*> differing = Differing(now.begin, file_order);
  std::vector<Message> named;
  for (size_t i = 0; i < std::min(differing.size(), kNamed); ++i)
    named.push_back(NameAndMovement(*differing[i], was.end.empty() ? was.begin : was.end));
  return Message::Joined(
      {std::move(text), "{} of {} parameters differ, first {}"_t(
                            now.differing, now.count, Message::Joined(std::move(named), ", "))},
      ". ");
}

}  // namespace msprobe::compare
