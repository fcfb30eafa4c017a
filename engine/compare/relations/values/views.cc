// What code without records made of a value without computing anything: moved elements, complex
// numbers, parts of weights (graph.h).
#include <algorithm>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/compare/model/rounding.h"
#include "engine/compare/relations/values/graph.h"

namespace msprobe::compare::relations {
namespace {

using WeightsByExtreme = std::unordered_map<double, std::vector<ValueId>>;

// By their largest and their smallest element.
WeightsByExtreme FindWeights(const Graph& run) {
  WeightsByExtreme found;
  for (ValueId w = 0; w < static_cast<ValueId>(run.values.size()); ++w) {
    const Value& value = run.values[w];
    if (!run.IsWeight(w) || value.maker != kNoId || !value.IsFloat() || value.plain ||
        !value.moments.known || value.shape.extents().size() < 2)
      continue;
    found[value.moments.high].push_back(w);
    if (value.moments.low != value.moments.high) found[value.moments.low].push_back(w);
  }
  return found;
}

// Whether a value may be a part of another one: it is shorter in one dimension.
bool IsSlice(const Value& part, const Value& whole) {
  const auto a = part.shape.extents(), b = whole.shape.extents();
  if (a.size() != b.size() || part.dtype.dtype() != whole.dtype.dtype()) return false;
  int shorter = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] > b[i]) return false;
    shorter += a[i] < b[i];
  }
  const Moments &x = part.moments, &y = whole.moments;
  return shorter == 1 && x.high <= y.high && x.low >= y.low && x.norm <= y.norm &&
         (x.high == y.high || x.low == y.low);
}

std::set<ValueId> WholesOf(const Graph& run, const Value& part, const WeightsByExtreme& weights) {
  std::set<ValueId> wholes;
  for (const double extreme : {part.moments.high, part.moments.low}) {
    const auto found = weights.find(extreme);
    if (found == weights.end()) continue;
    for (const ValueId w : found->second) {
      if (IsSlice(part, run.values[w])) wholes.insert(w);
    }
  }
  return wholes;
}

}  // namespace

void Graph::FindMoved() {
  HashedLists arrivals;
  for (ValueId v = 0; v < static_cast<ValueId>(values.size()); ++v) {
    const Value& value = values[v];
    if (value.maker == kNoId && !value.plain && weight_[v] == 0 && PartsOf(v).empty() &&
        value.moments.known && !TakersOf(v).empty())
      arrivals.Add(ElementsKey(value.moments), v);
  }
  if (arrivals.empty()) return;
  arrivals.Build();
  for (ValueId w = 0; w < static_cast<ValueId>(values.size()); ++w) {
    const Value& made_value = values[w];
    if (made_value.maker == kNoId || made_value.plain || !made_value.moments.known) continue;
    for (const ValueId v : arrivals.Of(ElementsKey(made_value.moments))) {
      if (made_value.maker < TakersOf(v)[0].call &&
          made_value.dtype.dtype() == values[v].dtype.dtype() &&
          SameElements(values[v].moments, made_value.moments)) {
        moved_from_[v] = w;
        slice_of_.erase(v);
      }
    }
  }
}

// Complex numbers and pairs of real ones, of which one was made before and nobody recorded the call
// that views it as the other: of both a sketch has the same rows.
void Graph::FindViewed() {
  const auto is_complex = [](const Value& value) { return value.IsComplex(); };
  if (std::none_of(values.begin(), values.end(), is_complex)) return;
  std::unordered_map<int64_t, std::vector<ValueId>> arrivals;  // by the number of parts
  const auto parts_of = [&](const Value& value) {
    return is_complex(value) ? 2 * value.moments.n : value.moments.n;
  };
  const auto tells = [](const Value& value) {
    return value.IsFloat() && !value.plain && value.moments.known && value.moments.not_finite == 0;
  };
  for (ValueId v = 0; v < static_cast<ValueId>(values.size()); ++v) {
    const Value& value = values[v];
    if (tells(value) && value.maker == kNoId && weight_[v] == 0 && PartsOf(v).empty() &&
        MovedFrom(v) == kNoId && !TakersOf(v).empty())
      arrivals[parts_of(value)].push_back(v);
  }
  const auto same_rows = [&](ValueId v, ValueId w) {
    for (const RowSketch& a : SketchesOf(v)) {
      for (const RowSketch& b : SketchesOf(w)) {
        if (a.rows == b.rows && a.columns == b.columns)
          return DistanceOf(a, b, values[w].moments.norm).in_order <= 4 * kDigits;
      }
    }
    return false;
  };
  for (ValueId w = 0; w < static_cast<ValueId>(values.size()); ++w) {
    const Value& whole = values[w];
    if (!tells(whole) || whole.maker == kNoId) continue;
    const auto found = arrivals.find(parts_of(whole));
    if (found == arrivals.end()) continue;
    for (const ValueId v : found->second) {
      if (is_complex(values[v]) != is_complex(whole) && whole.maker < TakersOf(v)[0].call &&
          same_rows(v, w))
        moved_from_.emplace(v, w);
    }
  }
}

// A value that carries a gradient and that no call made is a view of something that carries one: of
// the one weight that is longer in one dimension and has its largest or its smallest element.
void Graph::FindSlices() {
  const WeightsByExtreme weights = FindWeights(*this);
  const auto carries_gradient = [&](const Taker& use) {
    return taken[use.port].requires_grad == true;
  };
  for (ValueId v = 0; v < static_cast<ValueId>(values.size()); ++v) {
    const Value& value = values[v];
    if (value.maker != kNoId || weight_[v] != 0 || value.plain || !value.IsFloat() ||
        !value.moments.known || std::ranges::none_of(TakersOf(v), carries_gradient))
      continue;
    const std::set<ValueId> wholes = WholesOf(*this, value, weights);
    if (wholes.size() == 1) slice_of_.emplace(v, *wholes.begin());
  }
}

}  // namespace msprobe::compare::relations
