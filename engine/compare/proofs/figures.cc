#include "engine/compare/proofs/figures.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "engine/compare/model/record_keys.h"
#include "engine/kernels/phase.h"

namespace msprobe::compare {
namespace {

using relations::Graph;
using relations::kNoId;
using relations::Moments;
using relations::Port;
using relations::RowSketch;
using relations::Value;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kStatisticsDigits = 0x1p-22;

uint64_t Key(ValueId v, ValueId w) {
  return static_cast<uint64_t>(v) << 32 | static_cast<uint32_t>(w);
}

double Of(double difference, double size) {
  if (difference == 0) return 0;
  const double by = size > 0 ? std::abs(difference) / size : kInfinity;
  return std::isnan(by) ? kInfinity : by;
}

double LargestOf(const Moments& m) { return std::max(std::abs(m.high), std::abs(m.low)); }

double MomentsApart(const Moments& a, const Moments& b, double terms) {
  if (!a.known || !b.known || a.n != b.n || a.not_finite != b.not_finite ||
      a.extremes != b.extremes)
    return kInfinity;
  if (a.not_finite > 0) return 0;
  const double size = std::max(LargestOf(b), terms), rms = std::max(b.Rms(), terms);
  if (size == 0 || rms == 0) return LargestOf(a) == 0 ? 0 : kInfinity;
  if (a.mean_only || b.mean_only) return Of(a.mean - b.mean, rms);
  const double root = std::sqrt(static_cast<double>(b.n));
  return std::max({Of(a.high - b.high, size), Of(a.low - b.low, size), Of(a.mean - b.mean, rms),
                   Of(a.norm - b.norm, rms * root)});
}

// Sums over all elements that tell their rows in any order.
double RowsApart(std::complex<double> rows, double squares, std::complex<double> other_rows,
                 double other_squares, double size) {
  const double roots = std::sqrt(std::max(squares, 0.0)) - std::sqrt(std::max(other_squares, 0.0));
  return std::max(Of(std::abs(rows - other_rows), size), Of(roots, size));
}

// Of values that were joined of those of several ranks: by the numbers that both have. Rows are
// summed in float, and turned by phases, which are rounded (kernels/sketch.h).
void CompareJoined(const RowSketch& x, const RowSketch& y, double size, Gap* gap) {
  const auto off = [&](const std::complex<double>& a, const std::complex<double>& b) {
    return Of(std::max(0.0, std::abs(a - b) - 0x1p-22 * size), size);
  };
  const auto root = [](double squares) { return std::sqrt(std::max(squares, 0.0)); };
  double rows = 0;
  if (x.has_rows && y.has_rows) rows = off(x.sums.rows, y.sums.rows);
  if (x.has_squares && y.has_squares)
    rows = std::max(rows, off(root(x.sums.squares), root(y.sums.squares)));
  double order = rows;
  if (x.has_wave && y.has_wave) order = std::max(order, off(x.sums.wave, y.sums.wave));
  if (x.sums.grid && y.sums.grid) order = std::max(order, off(*x.sums.grid, *y.sums.grid));
  const bool grids = x.sums.grid && y.sums.grid;
  gap->in_place = ((x.has_wave && y.has_wave) || grids) && order == 0;
  gap->told = true;
  gap->vector = !x.has_rows || !x.has_squares || !y.has_rows || !y.has_squares ||
                (x.rows == 1 && x.columns > 1);
  gap->in_order = std::max(gap->moments, order);
  gap->rows = gap->vector ? gap->moments : std::max(gap->moments, rows);
}

// What the sketches of several values add up to.
struct Whole {
  int64_t rows = 0, columns = 0, height = 0, width = 0;
  bool even_height = true, even_width = true;
  std::complex<double> sum, wave, beside;
  double squares = 0;
};

// Of sketches with `width` columns, or of the first of each value; false: a value has none.
bool Add(const Graph& run, std::span<const int32_t> values, int64_t width, Whole* out) {
  for (const int32_t v : values) {
    const auto sketches = run.SketchesOf(v);
    const auto found = std::find_if(sketches.begin(), sketches.end(), [&](const RowSketch& each) {
      return width == 0 || each.columns == width;
    });
    if (found == sketches.end()) return false;
    if (out->rows == 0) out->height = found->rows, out->width = found->columns;
    out->even_height &= found->rows == out->height;
    out->even_width &= found->columns == out->width;
    const auto turn = kernels::PhaseOf(kernels::kColumnStep * static_cast<uint64_t>(out->columns));
    out->beside += turn * found->sums.wave;
    out->sum += found->sums.rows;
    out->wave += found->sums.wave;
    out->squares += found->sums.squares;
    out->rows += found->rows;
    out->columns += found->columns;
  }
  return true;
}

Moments AllOf(const Graph& run, std::span<const int32_t> values) {
  Moments all{.known = true, .high = -kInfinity, .low = kInfinity};
  double squares = 0;
  for (const int32_t v : values) {
    const Moments& part = run.values[v].moments;
    all.known &= part.known;
    if (part.n == 0) continue;
    all.high = std::max(all.high, part.high);
    all.low = std::min(all.low, part.low);
    all.mean += part.mean * static_cast<double>(part.n);
    squares += part.norm * part.norm;
    all.n += part.n;
    all.not_finite += part.not_finite;
    all.extremes += part.extremes;
  }
  if (all.n > 0) all.mean /= static_cast<double>(all.n);
  if (all.n == 0) all.high = all.low = 0;
  all.norm = std::sqrt(squares);
  return all;
}

// The number of elements that a mask tells from the others, and its coding; 0: it is none.
struct Told {
  int64_t few = 0;
  int coding = 0;
};

Told MaskOf(const Value& value) {
  const Moments& m = value.moments;
  const int64_t all = value.shape.elements();
  Told told;
  if (value.dtype.dtype() == DType::kBool) {
    told = {m.zeros, 1};
  } else if (m.extremes > 0 && m.high == 0 && m.low == 0) {
    told = {m.extremes, 2};
  } else if (m.high == 1 && m.low == 0 && m.zeros > 0 &&
             std::abs(m.norm * m.norm + static_cast<double>(m.zeros - all)) < 1e-3) {
    told = {m.zeros, 3};
  }
  told.few = std::min(told.few, all - told.few);
  return told;
}

}  // namespace

Figures::Figures(const Comparison& comparison, const Graph& target, const Graph& golden,
                 const relations::Carried& before)
    : c_(comparison), t_(target), g_(golden) {
  for (size_t i = 0; i < c_.rows.size(); ++i) {
    const Row& row = c_.rows[i];
    if (row.target < 0 || row.golden < 0) continue;
    const ValueId v = t_.ValueOfLeaf(row.target), w = g_.ValueOfLeaf(row.golden);
    if (v != kNoId && w != kNoId) rows_[Key(v, w)].push_back(static_cast<int32_t>(i));
  }
  FindMostTerms(before);
}

std::span<const int32_t> Figures::RowsOf(ValueId v, ValueId w) const {
  const auto found = rows_.find(Key(v, w));
  if (found == rows_.end()) return {};
  return found->second;
}

// Beside NaN a sketch has the other elements alone; 0: all elements are numbers.
static double NormBesideNaN(const Moments& b, const RowSketch& y) {
  return b.not_finite > 0 ? std::sqrt(std::max(y.sums.squares, 0.0)) : 0;
}

Gap Figures::Between(ValueId v, ValueId w, double terms) const {
  const Moments &a = t_.values[v].moments, &b = g_.values[w].moments;
  Gap gap{.moments = MomentsApart(a, b, terms)};
  gap.in_order = gap.rows = gap.moments;
  if (std::isinf(gap.moments)) return gap;
  const double norm = std::max(b.Rms(), terms) * std::sqrt(static_cast<double>(b.n));
  const auto compare = [&](const RowSketch& x, const RowSketch& y) {
    const double size = std::max(norm, NormBesideNaN(b, y));
    const double rows = RowsApart(x.sums.rows, x.sums.squares, y.sums.rows, y.sums.squares, size);
    if (x.joined || y.joined) {
      CompareJoined(x, y, size, &gap);
      return;
    }
    gap.told = true;
    gap.vector = x.rows == 1 && x.columns > 1;
    gap.in_order = std::max({gap.moments, rows, Of(std::abs(x.sums.wave - y.sums.wave), size)});
    gap.rows = gap.vector ? gap.moments : std::max(gap.moments, rows);
  };
  for (const RowSketch& x : t_.SketchesOf(v)) {
    for (const RowSketch& y : g_.SketchesOf(w)) {
      if (!gap.told && x.rows == y.rows && x.columns == y.columns) compare(x, y);
    }
  }
  double far = -1;
  bool other = false;
  for (const int32_t row : RowsOf(v, w)) {
    const kernels::Diff* diff = c_.DiffOf(row);
    const bool files = c_.measures[row].reason == Reason::kShapeDiffers &&
                       t_.dump.leaves[c_.rows[row].target].shape.SameWithoutOnes(
                           g_.dump.leaves[c_.rows[row].golden].shape);
    other |= files || (diff != nullptr && diff->nonfinite_mismatch > 0);
    if (diff != nullptr && !std::isnan(diff->euclidean)) far = std::max(far, diff->euclidean);
  }
  if (far < 0 && !other) return gap;
  gap.compared = true;
  gap.in_order = other ? kInfinity : Of(far, norm);
  return gap;
}

double Figures::NumbersApart(const relations::Together& together) const {
  double left = 0, size = 0;
  for (const int32_t v : together.target) left += t_.values[v].moments.mean;
  for (const int32_t w : together.golden) {
    left -= g_.values[w].moments.mean;
    size += std::max(std::abs(g_.values[w].moments.mean), together.terms);
  }
  return Of(std::abs(left), size);
}

double Figures::Between(const relations::Together& together, bool* told) const {
  if (t_.AreSums(together.target) && g_.AreSums(together.golden)) {
    *told = true;
    return NumbersApart(together);
  }
  const Moments all = AllOf(t_, together.target), whole = AllOf(g_, together.golden);
  const double moments = MomentsApart(all, whole, together.terms);
  const double size =
      std::max(whole.Rms(), together.terms) * std::sqrt(static_cast<double>(whole.n));
  *told = true;
  for (const RowSketch& first : t_.SketchesOf(together.target[0])) {
    Whole x, y;
    if (!Add(t_, together.target, first.columns, &x) ||
        !Add(g_, together.golden, first.columns, &y))
      continue;
    const double rows =
        x.rows != y.rows ? kInfinity
                         : std::max(moments, RowsApart(x.sum, x.squares, y.sum, y.squares, size));
    const bool added_up = t_.IsGradientOfWeight(together.target[0]);
    const bool as_many = together.target.size() == together.golden.size();
    if (!added_up && (as_many || all.extremes > 0)) return rows;
    if (!x.even_height || !y.even_height || x.height != y.height)
      return added_up ? kInfinity : rows;
    const double sums =
        std::max(Of(std::abs(x.sum - y.sum), size), Of(std::abs(x.wave - y.wave), size)) *
        std::sqrt(static_cast<double>(together.golden.size()));
    return added_up ? sums : std::min(rows, sums);
  }
  Whole x, y;
  *told = Add(t_, together.target, 0, &x) && Add(g_, together.golden, 0, &y);
  if (!*told) return moments;
  if (x.columns != y.columns || !x.even_height || !y.even_height || x.height != y.height)
    return kInfinity;
  return std::max(moments, Of(std::abs(x.beside - y.beside), size));
}

Padding Figures::PaddingOf(ValueId v, ValueId w, double terms) const {
  Moments a = t_.values[v].moments;
  const Moments b = g_.values[w].moments;
  const double floats = t_.values[v].IsFloat() ? terms : 0;
  const double size = std::max(b.Rms(), floats) * std::sqrt(static_cast<double>(b.n));
  Padding padding{.error = kInfinity};
  padding.zeros = a.zeros >= 0 && b.zeros >= 0 && a.n - a.zeros == b.n - b.zeros;
  if (padding.zeros) {  // with so many zeros as the golden's it would have this mean
    const double rms = std::max(b.Rms(), floats);
    const double largest = std::max(LargestOf(b), floats);
    const double sums = a.mean * static_cast<double>(a.n) - b.mean * static_cast<double>(b.n);
    padding.error = std::max({Of(std::max(a.high, 0.0) - std::max(b.high, 0.0), largest),
                              Of(std::min(a.low, 0.0) - std::min(b.low, 0.0), largest),
                              Of(sums / static_cast<double>(b.n), rms), Of(a.norm - b.norm, size)});
  }
  for (const RowSketch& x : t_.SketchesOf(v)) {
    const auto sketches = g_.SketchesOf(w);
    const auto y = std::ranges::find(sketches, x.columns, &RowSketch::columns);
    if (y == sketches.end()) continue;
    double rows = RowsApart(x.sums.rows, x.sums.squares, y->sums.rows, y->sums.squares, size);
    if (x.joined || y->joined) {
      Gap gap;
      CompareJoined(x, *y, size, &gap);
      rows = gap.rows;
    }
    if (padding.zeros) {
      const bool vector = y->rows == 1 && y->columns > 1;
      if (!vector) padding.error = std::max(padding.error, rows);
    } else if (x.rows != y->rows) {  // k rows r: |k r|^2 = k * (k |r|^2)
      const auto k = static_cast<double>(x.rows - y->rows);
      const double sum = std::norm(x.sums.rows - y->sums.rows);
      const double squares = k * (x.sums.squares - y->sums.squares);
      const double most = std::sqrt(std::max(x.sums.squares, y->sums.squares));
      padding.error = Of((sum - squares) / std::abs(k), 2 * size * most);
    }
    break;
  }
  return padding;
}

bool Figures::IsComplex(const Value& value) {
  const std::optional<DType> dtype = value.dtype.dtype();
  return dtype && DTypeKindOf(*dtype) == DTypeKind::kComplex;
}

Paired Figures::PairsOf(ValueId v, ValueId w, double terms) const {
  const Value &a = t_.values[v], &b = g_.values[w];
  const Moments& moduli = (IsComplex(a) ? a : b).moments;
  const Moments& parts = (IsComplex(a) ? b : a).moments;
  const bool fit = IsComplex(a) != IsComplex(b) && a.IsFloat() && b.IsFloat() && moduli.known &&
                   parts.known && parts.n == moduli.n + moduli.n &&
                   moduli.not_finite + parts.not_finite + moduli.extremes + parts.extremes == 0;
  if (!fit) return {.error = kInfinity};
  const double size = std::max(b.moments.norm, terms * std::sqrt(static_cast<double>(a.moments.n)));
  // No part is larger than its modulus, and one of two is no smaller than that by the root of 2.
  const double largest = LargestOf(parts);
  Paired paired{.error =
                    std::max({Of(a.moments.norm - b.moments.norm, size),
                              Of(std::max(largest - moduli.high, 0.0), moduli.high),
                              Of(std::max(moduli.high * moduli.high - 2 * largest * largest, 0.0),
                                 4 * largest * largest)})};
  for (const RowSketch& x : t_.SketchesOf(v)) {
    for (const RowSketch& y : g_.SketchesOf(w)) {
      if (paired.told || x.joined || y.joined || x.rows != y.rows || x.columns != y.columns)
        continue;
      paired.told = true;
      paired.error =
          std::max({paired.error, Of(std::abs(x.sums.wave - y.sums.wave), size),
                    RowsApart(x.sums.rows, x.sums.squares, y.sums.rows, y.sums.squares, size)});
    }
  }
  return paired;
}

double Figures::SquaresApart(const relations::Together& together) const {
  double mine = 0, others = 0;
  bool known = true;
  const auto add = [&known](const Moments& m, double* squares) {
    known &= m.known && m.not_finite == 0;
    *squares += static_cast<double>(m.n) * std::pow(m.Rms(), 2);
  };
  for (const int32_t v : together.target) add(t_.values[v].moments, &mine);
  for (const int32_t w : together.golden) add(g_.values[w].moments, &others);
  return known && others > 0 ? std::abs(std::sqrt(mine) / std::sqrt(others) - 1) : kInfinity;
}

bool Figures::IsCircle(const Graph& run, std::span<const int32_t> values, ValueId angle) {
  const auto made_by = [&](int32_t value, std::string_view name) {
    return std::ranges::any_of(run.MakersOf(value), [&](relations::CallId call) {
      const auto takes = run.Takes(call);
      if (BaseApi(run.ApiOf(call)) != name || takes.empty() || takes.back().value != angle)
        return false;
      if (takes.size() == 1) return name != "polar";
      const Moments& m = run.values[takes[0].value].moments;
      return name == "polar" && takes.size() == 2 && m.known && m.high == 1 && m.low == 1;
    });
  };
  if (values.size() == 1) return made_by(values[0], "polar");
  return values.size() == 2 && made_by(values[0], "cos") && made_by(values[1], "sin");
}

bool Figures::SameElements(ValueId v, ValueId w) const {
  const Moments &a = t_.values[v].moments, &b = g_.values[w].moments;
  if (!a.known || !b.known) return false;
  const bool zeros = a.zeros < 0 || b.zeros < 0 || a.zeros == b.zeros;
  return zeros && a.n == b.n && a.high == b.high && a.low == b.low &&
         a.not_finite == b.not_finite && a.extremes == b.extremes &&
         std::abs(a.norm - b.norm) <= kStatisticsDigits * b.norm &&
         std::abs(a.mean - b.mean) <= kStatisticsDigits * std::max(b.Rms(), std::abs(b.mean));
}

bool Figures::SameMask(ValueId v, ValueId w) const {
  const Told a = MaskOf(t_.values[v]), b = MaskOf(g_.values[w]);
  return a.coding != 0 && b.coding != 0 && a.coding != b.coding && a.few > 0 && a.few == b.few &&
         t_.values[v].shape.elements() == g_.values[w].shape.elements();
}

bool Figures::StandAtOnePlace(ValueId v, ValueId w) const {
  if (!RowsOf(v, w).empty()) return true;
  // Calls of a backward pass that have no rows are paired by their places.
  const auto places = [](const Graph& run, ValueId value) {
    std::vector<std::pair<bool, int32_t>> out;  // whether it is made there; the place
    for (const relations::Taker& use : run.TakersOf(value)) {
      if (run.calls[use.call].IsBackward()) out.emplace_back(false, run.taken[use.port].place);
    }
    for (const relations::CallId maker : run.MakersOf(value)) {
      for (const Port& port : run.Makes(maker)) {
        if (port.value == value && run.calls[maker].IsBackward())
          out.emplace_back(true, port.place);
      }
    }
    return out;
  };
  const auto mine = places(t_, v), others = places(g_, w);
  return std::ranges::any_of(
      mine, [&](const auto& place) { return std::ranges::find(others, place) != others.end(); });
}

// How much larger the differences between the elements of a call's result are than of its argument.
double Figures::SlopeOf(relations::CallId call) const {
  const auto variance = [this](std::span<const Port> ports) {
    for (const Port& port : ports) {
      const Moments& m = t_.values[port.value].moments;
      if (m.known && !port.changed) return (m.Rms() - m.mean) * (m.Rms() + m.mean);
    }
    return 0.0;
  };
  const double taken = variance(t_.Takes(call)), made = variance(t_.Makes(call));
  return taken > 0 && made > 0 ? std::sqrt(made / taken) : 0;
}

// Terms of a value are at most those of an argument that was added to it, the same share of it as
// of an argument, or the root of the number of elements that were added up.
double Figures::TermsFrom(ValueId v) const {
  const Value& value = t_.values[v];
  double most = value.moments.Rms(), saved = 1, slope = 1;
  if (!value.IsFloat() || value.moments.n == 0) return most;
  const relations::CallId maker = value.maker;
  const relations::CallId forward = maker == kNoId ? kNoId : t_.calls[maker].forward;
  if (forward != kNoId && t_.calls[forward].facts->kind == OperationClass::kNormalisation)
    slope = std::max(slope, SlopeOf(forward));
  if (maker != kNoId && t_.calls[maker].kind == relations::CallKind::kGradients) {
    for (const Port& port : t_.Makes(maker))
      most = std::max(most, t_.values[port.value].moments.Rms());
  }
  for (const ValueId w : t_.InputsOf(v, /*saved=*/true)) {
    const double rms = t_.values[w].moments.Rms();
    if (t_.values[w].IsFloat()) saved = std::max(saved, rms);
    if (rms > 0) {
      const double ratio = most_terms_[w] / rms;
      const bool squares = maker != kNoId && t_.calls[maker].kind == relations::CallKind::kUpdate;
      most = std::max(most, value.moments.Rms() * (squares ? ratio * ratio : ratio));
    }
  }
  for (const ValueId w : t_.InputsOf(v, /*saved=*/true)) {
    const double rows =
        static_cast<double>(t_.values[w].moments.n) / static_cast<double>(value.moments.n);
    most = std::max({most, most_terms_[w] * std::sqrt(std::max(rows, 1.0)) * slope,
                     t_.values[w].moments.Rms() * saved * std::sqrt(rows)});
  }
  return most;
}

// Of each gradient that an optimizer takes, and of what it is a number times, the size of the
// largest one of its module: they are sums over the same rows.
std::vector<std::pair<ValueId, double>> Figures::GradientsBeside() const {
  std::map<std::pair<int32_t, std::string_view>, std::vector<ValueId>> of_modules;
  for (relations::CallId id = 0; id < static_cast<relations::CallId>(t_.calls.size()); ++id) {
    const relations::Call& call = t_.calls[id];
    if (call.kind != relations::CallKind::kUpdate) continue;
    const size_t dot = call.parameter.rfind('.');
    if (dot == std::string_view::npos) continue;
    for (const Port& port : t_.Takes(id)) {
      const Leaf& leaf = t_.dump.leaves[port.leaf];
      if (LeafPlace(leaf, t_.dump.records[call.record]).starts_with("gradients."))
        of_modules[{call.record, call.parameter.substr(0, dot)}].push_back(port.value);
    }
  }
  std::vector<std::pair<ValueId, double>> out;
  for (const auto& [module, gradients] : of_modules) {
    double size = 0;
    for (const ValueId v : gradients) size = std::max(size, t_.values[v].moments.Rms());
    for (const ValueId v : gradients) out.emplace_back(v, size);
  }
  for (size_t i = 0; i < out.size(); ++i) {  // and what each of these was made of
    const auto [v, size] = out[i];
    const relations::CallId maker = t_.values[v].maker;
    if (maker == kNoId || t_.calls[maker].kind != relations::CallKind::kOperation ||
        t_.calls[maker].facts->kind != OperationClass::kScaling)
      continue;
    for (const Port& port : t_.Takes(maker)) {
      const Value& given = t_.values[port.value];
      if (port.value < v && given.moments.n == t_.values[v].moments.n && given.moments.n > 1)
        out.emplace_back(port.value,
                         size * given.moments.Rms() / std::max(t_.values[v].moments.Rms(), 1e-30));
    }
  }
  return out;
}

void Figures::FindMostTerms(const relations::Carried& before) {
  constexpr int kMostRounds = 6;  // most values have a larger number than what they were made of
  most_terms_.resize(t_.values.size());
  for (size_t v = 0; v < most_terms_.size(); ++v)
    most_terms_[v] = t_.values[v].IsFloat() ? t_.values[v].moments.Rms() : 0;
  for (const Port& port : t_.taken) {
    const auto left = before.left.find(ContentKey(t_.dump.leaves[port.leaf]));
    if (left != before.left.end())
      most_terms_[port.value] = std::max(most_terms_[port.value], left->second.terms);
  }
  for (const auto& [v, size] : GradientsBeside()) most_terms_[v] = std::max(most_terms_[v], size);
  bool grows = true;
  for (int round = 0; round < kMostRounds && grows; ++round) {
    grows = false;
    for (ValueId v = 0; v < static_cast<ValueId>(most_terms_.size()); ++v) {
      const double most = TermsFrom(v);
      if (!(most > most_terms_[v] * (1 + 1e-9))) continue;
      most_terms_[v] = most;
      grows = true;
    }
  }
}

}  // namespace msprobe::compare
