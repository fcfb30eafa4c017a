// Of which parts a gradient is the sum: of the uses of a value, of a parameter, of the passes
// before (graph.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <map>
#include <optional>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/value_names.h"
#include "engine/compare/relations/values/graph.h"

namespace msprobe::compare::relations {

// What the backward calls gave for the uses of each forward value.
void Graph::CollectGradients() {
  std::vector<std::pair<int32_t, ValueId>> items;
  for (CallId id = 0; id < static_cast<CallId>(calls.size()); ++id) {
    if (!calls[id].IsForward() || calls[id].backward == kNoId) continue;
    for (const Port& given : Takes(id)) {
      for (const Port& gradient : Makes(calls[id].backward)) {
        if (gradient.place != given.place) continue;
        items.emplace_back(given.value, gradient.value);
        if (const auto slice = slice_of_.find(given.value); slice != slice_of_.end())
          items.emplace_back(slice->second, gradient.value);
      }
    }
  }
  gradients_.Build(values.size(), items);
}

// The name of a parameter in its module, with the module.
uint64_t Graph::ParameterKey(CallId call, const Port& port) const {
  const Leaf& leaf = dump.leaves[port.leaf];
  std::string_view name = LeafPlace(leaf, dump.records[calls[call].record]);
  if (leaf.slot == Slot::kParameterGrad) {  // "...parameters_grad.0.weight.0"
    name = leaf.name.view();
    while (!name.empty() && name.back() >= '0' && name.back() <= '9') name.remove_suffix(1);
    if (name.ends_with('.')) name.remove_suffix(1);
    name = name.substr(name.rfind('.') + 1);
  }
  return HashText(name, static_cast<uint64_t>(calls[call].path) + 1);
}

// What the backward calls of all uses of a module's parameter gave. A plain weight (zeros, ones)
// stands for those of other modules, too: of it the calls inside of the module count.
std::vector<ValueId> Graph::PartsOfParameter(ValueId weight, int32_t path) const {
  const std::span<const ValueId> all = GradientsOf(weight);
  std::vector<ValueId> parts(all.begin(), all.end());
  if (!values[weight].plain) return parts;
  parts.clear();
  for (const Taker& use : TakersOf(weight)) {
    const Call& user = calls[use.call];
    if (!user.IsForward() || user.path != path || user.backward == kNoId) continue;
    for (const Port& gradient : Makes(user.backward)) {
      if (gradient.place == taken[use.port].place) parts.push_back(gradient.value);
    }
  }
  return parts;
}

// Of each complete gradient of a parameter: its parts of this pass, and the sum before.
Graph::Sums Graph::SumsOfParameters() const {
  std::unordered_map<uint64_t, ValueId> weights, complete;
  std::unordered_map<int32_t, std::vector<CallId>> backward_of_path;
  for (CallId id = 0; id < static_cast<CallId>(calls.size()); ++id) {
    if (calls[id].kind == CallKind::kModuleBackward) backward_of_path[calls[id].path].push_back(id);
    if (calls[id].kind != CallKind::kModule) continue;
    for (const Port& port : Takes(id)) {
      if (dump.leaves[port.leaf].slot == Slot::kParameter)
        weights.emplace(ParameterKey(id, port), port.value);
    }
  }
  Sums sums;
  for (CallId id = 0; id < static_cast<CallId>(calls.size()); ++id) {
    if (calls[id].kind == CallKind::kUpdate) {  // clipping leaves another gradient to the next pass
      const std::string_view name = calls[id].parameter.substr(calls[id].parameter.rfind('.') + 1);
      for (const Port& port : Makes(id)) {
        if (LeafPlace(dump.leaves[port.leaf], dump.records[calls[id].record]).find("gradients.") !=
            std::string_view::npos)
          complete[HashText(name, static_cast<uint64_t>(calls[id].path) + 1)] = port.value;
      }
    }
    if (calls[id].kind != CallKind::kGradients) continue;
    for (const Port& port : Makes(id)) {
      const uint64_t key = ParameterKey(id, port);
      std::vector<ValueId> parts;
      if (const auto weight = weights.find(key); weight != weights.end())
        parts = PartsOfParameter(weight->second, calls[id].path);
      if (const auto before = complete.find(key); before != complete.end())
        parts.push_back(before->second);
      if (parts.empty()) {  // only modules are recorded: made of what the module takes
        for (const CallId backward : backward_of_path[calls[id].path]) {
          for (const Port& arriving : Takes(backward)) parts.push_back(arriving.value);
        }
      }
      complete[key] = port.value;
      if (values[port.value].maker == id) sums[port.value] = std::move(parts);
    }
  }
  return sums;
}

// Of a gradient that optimizers take: what the backward calls gave for their parameters.
std::vector<ValueId> Graph::PartsOfUpdated(ValueId v) const {
  std::vector<ValueId> parts;
  for (const Taker& use : TakersOf(v)) {
    const Call& user = calls[use.call];
    if (user.kind != CallKind::kUpdate) continue;
    const Leaf& leaf = dump.leaves[taken[use.port].leaf];
    const auto weight = weight_of_.find(user.parameter);
    if (weight == weight_of_.end() ||
        !LeafPlace(leaf, dump.records[user.record]).starts_with("gradients."))
      continue;
    const std::vector<ValueId> all = PartsOfParameter(weight->second, user.path);
    parts.insert(parts.end(), all.begin(), all.end());
  }
  return parts;
}

ValueId Graph::ScaledTo(ValueId v) const {
  for (const Taker& use : TakersOf(v)) {
    const Call& call = calls[use.call];
    if (call.kind != CallKind::kOperation || call.facts->kind != OperationClass::kScaling) continue;
    const auto number = [&](const Port& port) {
      return port.value == v || values[port.value].shape.elements() == 1;
    };
    if (!std::ranges::all_of(Takes(use.call), number)) continue;
    for (const Port& port : Makes(use.call)) {
      if (port.value != v && values[port.value].shape.view() == values[v].shape.view())
        return port.value;
    }
  }
  return kNoId;
}

// Of a gradient that no call made: those that were added up to it. An optimizer takes the gradient
// of its parameter, or a number times it, a backward call that of what its forward call made.
std::vector<ValueId> Graph::PartsOfArrival(ValueId v) const {
  std::vector<ValueId> parts, wholes;
  ValueId scaled = v;
  for (int steps = 0; steps < kMostScalings && scaled != kNoId; ++steps) {
    const std::vector<ValueId> all = PartsOfUpdated(scaled);
    parts.insert(parts.end(), all.begin(), all.end());
    if (!all.empty()) break;
    scaled = ScaledTo(scaled);
  }
  for (const Taker& use : TakersOf(v)) {
    const Call& user = calls[use.call];
    const Port& port = taken[use.port];
    const ValueId whole = user.IsBackward() ? ForwardOf(use.call, port) : kNoId;
    if (whole != kNoId) wholes.push_back(whole);
  }
  // Many calls may take one constant, and ask for the gradients of one value: once is enough.
  std::sort(wholes.begin(), wholes.end());
  wholes.erase(std::unique(wholes.begin(), wholes.end()), wholes.end());
  for (const ValueId whole : wholes) {
    const std::span<const ValueId> all = GradientsOf(whole);
    parts.insert(parts.end(), all.begin(), all.end());
  }
  return parts;
}

// The gradients of the parameters, each with the sketch of its sum: sketches of sums add up.
class Graph::SketchedSums {
  struct Sum {
    std::vector<ValueId> parts;
    int64_t columns = 0;
    std::complex<double> rows, wave;
    double size = 0, roundoff = 0;  // of the largest part
  };

 public:
  explicit SketchedSums(const Graph& run) : run_(run) {
    // A plain weight (zeros, ones) stands for those of several modules: of each by itself, then.
    std::map<std::array<int32_t, 3>, Sum> of_weights;
    for (CallId id = 0; id < static_cast<CallId>(run.calls.size()); ++id) {
      const Call& call = run.calls[id];
      if (!call.IsForward() || call.backward == kNoId) continue;
      for (const Port& given : run.Takes(id)) {
        const Value& whole = run.values[given.value];
        if (whole.maker != kNoId) continue;
        const int32_t user = !whole.plain ? kNoId : call.path != kNoId ? call.path : id;
        for (const Port& gradient : run.Makes(call.backward)) {
          if (gradient.place == given.place)
            of_weights[{given.value, user, whole.plain ? given.place : 0}].parts.push_back(
                gradient.value);
        }
      }
    }
    for (auto& [weight, sum] : of_weights) {
      std::sort(sum.parts.begin(), sum.parts.end());
      sum.parts.erase(std::unique(sum.parts.begin(), sum.parts.end()), sum.parts.end());
      const Value& whole = run.values[weight[0]];
      if (Add(whole, &sum)) of_elements_[whole.moments.n].push_back(std::move(sum));
    }
    for (auto& [n, sums] : of_elements_) {
      std::sort(sums.begin(), sums.end(),
                [](const Sum& a, const Sum& b) { return a.rows.real() < b.rows.real(); });
    }
  }

  // The parts of the sum that `v` is, all of them made before the call; empty: it is none.
  std::vector<ValueId> PartsOf(ValueId v, CallId before) const {
    const Value& value = run_.values[v];
    const auto sums = of_elements_.find(value.moments.n);
    if (sums == of_elements_.end()) return {};
    for (const RowSketch& mine : run_.SketchesOf(v)) {
      const double norm = std::sqrt(static_cast<double>(value.moments.n));
      constexpr double kCoarsest = FactsOf(DType::kBFloat16).format.roundoff();
      const double most = kRoundings * kCoarsest * norm * value.moments.Rms();
      auto at =
          std::lower_bound(sums->second.begin(), sums->second.end(), mine.sums.rows.real() - most,
                           [](const Sum& sum, double real) { return sum.rows.real() < real; });
      for (; at != sums->second.end() && at->rows.real() <= mine.sums.rows.real() + most; ++at) {
        const double bound = kRoundings * std::max(at->roundoff, value.roundoff()) * norm *
                             std::max(at->size, value.moments.Rms());
        const bool same = at->columns == mine.columns &&
                          std::abs(at->rows - mine.sums.rows) <= bound &&
                          std::abs(at->wave - mine.sums.wave) <= bound;
        const bool made = std::all_of(at->parts.begin(), at->parts.end(), [&](ValueId part) {
          return run_.values[part].maker < before;
        });
        if (same && made) return at->parts;
      }
    }
    return {};
  }

 private:
  static constexpr double kRoundings = 4;

  bool Add(const Value& whole, Sum* sum) const {
    for (const ValueId part : sum->parts) {
      const auto sketches = run_.SketchesOf(part);
      const Value& value = run_.values[part];
      if (sketches.empty() || value.moments.n != whole.moments.n ||
          (sum->columns != 0 && sketches[0].columns != sum->columns))
        return false;
      sum->columns = sketches[0].columns;
      sum->rows += sketches[0].sums.rows;
      sum->wave += sketches[0].sums.wave;
      sum->size = std::max(sum->size, value.moments.Rms());
      sum->roundoff = std::max(sum->roundoff, value.roundoff());
    }
    return true;
  }

  const Graph& run_;
  std::unordered_map<int64_t, std::vector<Sum>> of_elements_;
};

void Graph::AddUpGradients() {
  CollectGradients();
  Sums sums = SumsOfParameters();
  std::optional<SketchedSums> sketched;  // once it is asked for
  std::vector<std::pair<int32_t, ValueId>> items;
  for (ValueId v = 0; v < static_cast<ValueId>(values.size()); ++v) {
    std::vector<ValueId> parts;
    if (const auto sum = sums.find(v); sum != sums.end()) {
      parts = std::move(sum->second);
    } else if (values[v].maker == kNoId) {
      parts = PartsOfArrival(v);
      // Or an operation takes it, which does not say whose gradient it is.
      const auto uses = TakersOf(v);
      if (parts.empty() && !uses.empty() && !values[v].plain && values[v].IsFloat() &&
          !SketchesOf(v).empty()) {
        if (!sketched) sketched.emplace(*this);
        parts = sketched->PartsOf(v, uses[0].call);
      }
    }
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    for (const ValueId part : parts) {
      if (part != v) items.emplace_back(v, part);
    }
  }
  parts_.Build(values.size(), items);
}

double Graph::FactorOfParts(ValueId v) const {
  constexpr double kAlike = 1e-3;
  for (const RowSketch& mine : SketchesOf(v)) {
    std::complex<double> rows, wave;
    const bool all = std::ranges::all_of(PartsOf(v), [&](ValueId part) {
      for (const RowSketch& sketch : SketchesOf(part)) {
        if (sketch.columns != mine.columns) continue;
        rows += sketch.sums.rows;
        wave += sketch.sums.wave;
        return true;
      }
      return false;
    });
    if (!all || std::abs(rows) == 0 || std::abs(wave) == 0) continue;
    const std::complex<double> factor = mine.sums.rows / rows, other = mine.sums.wave / wave;
    if (std::abs(factor.imag()) <= kAlike * std::abs(factor) &&
        std::abs(factor - other) <= kAlike * std::abs(factor))
      return std::abs(factor);
  }
  return 1;
}

bool Graph::AddsUp(ValueId v) const {
  constexpr double kRoundings = 64;
  const Value& sum = values[v];
  double mean = 0, size = sum.moments.Rms(), roundoff = sum.roundoff();
  for (const ValueId p : PartsOf(v)) {
    const Value& part = values[p];
    if (!part.moments.known || part.moments.n != sum.moments.n) return true;  // nobody can tell
    mean += part.moments.mean;
    size = std::max(size, part.moments.Rms());
    roundoff = std::max(roundoff, part.roundoff());
  }
  return !(std::abs(mean - sum.moments.mean) > kRoundings * roundoff * size);
}

}  // namespace msprobe::compare::relations
