#include "engine/accuracy/rounding_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "engine/accuracy/rounding_steps.h"
#include "engine/tensor/float_formats.h"

namespace msprobe::accuracy {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Of float32, in which halves are computed.
constexpr double kSingleRounding = FactsOf(DType::kFloat32).format.roundoff();
constexpr double kLibraryRoundings = 4;  // float32 ones of any right implementation
constexpr double kDeviations = 10;       // what chance does not reach among 10^9 elements
// A half that several kernels make, or a gradient: also one rounding inside of a kernel.
constexpr double kInnerRounding = 0.5;
constexpr size_t kTruncatedNumbers = 16;  // fewer different ones are no proof

bool IsHalf(const FloatFormat& format) { return format.mantissa < 23; }

std::vector<double> Doubles(const TensorView& view) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(view.numel()));
  const auto* const bytes = static_cast<const std::byte*>(view.data);
  const auto size = static_cast<int64_t>(DTypeSize(view.dtype));
  const StridedRuns runs = MakeRuns(view);
  runs.ForEach(0, runs.count, [&](int64_t offset) {
    for (int64_t i = 0; i < runs.run; ++i) {
      const std::byte* const p = bytes + (offset + i * runs.run_stride) * size;
      if (view.dtype == DType::kFloat64) {
        values.push_back(*reinterpret_cast<const double*>(p));
      } else if (view.dtype == DType::kFloat32) {
        values.push_back(static_cast<double>(*reinterpret_cast<const float*>(p)));
      } else {
        values.push_back(ElementToDouble(view.dtype, p));
      }
    }
  });
  return values;
}

std::string WhyNoBound(const TensorView& result, const TensorView& exact,
                       const std::optional<FloatFormat>& format) {
  if (DTypeKindOf(result.dtype) == DTypeKind::kComplex) return "complex numbers";
  if (DTypeKindOf(result.dtype) != DTypeKind::kFloat) return "integers are exact";
  if (!format) return fmt::format("{} has no analysis", DTypeShortName(result.dtype));
  if (result.dtype == DType::kFloat64) return "nothing is more precise than float64";
  if (exact.dtype != DType::kFloat64) return "the operation has no float64";
  if (result.numel() != exact.numel()) return "the shapes differ";
  return "";
}

// In units in the last place; infinite where one side alone is finite.
double ErrorOf(double result, double exact, double unit, const FloatFormat& format, double bound) {
  if (std::isfinite(result) && std::isfinite(exact)) {
    const double error = std::fabs(result - exact);
    // A device may take numbers below the smallest normal one for zero.
    const bool flushed = format.min_exponent == -126 && error <= format.smallest_normal();
    return flushed ? 0 : error / unit;
  }
  if (std::isnan(result) && std::isnan(exact)) return 0;
  if (result == exact) return 0;
  const bool overflows = std::isinf(result) && std::isfinite(exact) &&
                         std::signbit(result) == std::signbit(exact) &&
                         std::fabs(exact) + (0.5 + bound) * unit > format.largest;
  return overflows ? 0 : kInfinity;
}

}  // namespace

std::string_view CauseText(RoundingCause cause) {
  constexpr std::string_view kTexts[] = {"", "lost upcast", "another formula", "truncated"};
  return kTexts[static_cast<size_t>(cause)];
}

std::string_view KindText(RoundingVerdict::Kind kind) {
  constexpr std::string_view kTexts[] = {"no bound", "pass", "error"};
  return kTexts[static_cast<size_t>(kind)];
}

void FillRounding(const RoundingVerdict& verdict, std::span<const int64_t> shape, DetailsRow* row) {
  DetailsRow& cells = *row;
  cells[kRoundingVerdict] = KindText(verdict.kind);
  cells[kBoundFrom] = verdict.from;
  if (verdict.worst < 0) return;
  std::vector<int64_t> index(shape.size());
  int64_t rest = verdict.worst;
  for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
  cells[kWorstIndex] = ShapeText(index);
  cells[kErrorInRoundings] = fmt::format("{:.4g}", verdict.error);
  cells[kBoundInRoundings] = fmt::format("{:.4g}", verdict.bound);
  cells[kRoundingCause] = verdict.cause != RoundingCause::kUnknown
                              ? std::string(CauseText(verdict.cause))
                              : verdict.no_cause;
}

RoundingJudge::RoundingJudge(const TensorView& result, const TensorView& exact, DType dtype)
    : shape_(result.dims().begin(), result.dims().end()) {
  const std::optional<FloatFormat> own = FormatOf(result.dtype), given = FormatOf(dtype);
  dtype_ = own && given && given->mantissa < own->mantissa ? dtype : result.dtype;
  verdict_.from = WhyNoBound(result, exact, FormatOf(dtype_));
  if (!verdict_.from.empty()) return;
  result_ = Doubles(result), exact_ = Doubles(exact);
  Judge();
  if (!IsBeyond()) result_ = {}, exact_ = {};
}

double RoundingJudge::Bound(size_t i, double unit) const {
  const FloatFormat format = *FormatOf(dtype_);
  double bound = 0.5;
  const double size = std::isfinite(exact_[i]) ? std::fabs(exact_[i]) : 0;
  bound += kLibraryRoundings * kSingleRounding * size / unit;
  if (moved_ == 0) return bound;
  if (IsHalf(format) && !once_) bound += kInnerRounding;
  const double spread = std::sqrt(squares_[i] / moved_);
  return std::isfinite(spread) ? bound + kDeviations * spread / unit : kInfinity;
}

void RoundingJudge::Judge() {
  if (!verdict_.from.empty() && exact_.empty()) return;
  const FloatFormat format = *FormatOf(dtype_);
  RoundingVerdict found{.kind = RoundingVerdict::Kind::kPass, .from = verdict_.from};
  double most = -1;
  for (size_t i = 0; i < exact_.size(); ++i) {
    const auto size = [](double x) { return std::isfinite(x) ? std::fabs(x) : 0; };
    const double unit = UnitInLastPlace(std::max(size(result_[i]), size(exact_[i])), format);
    const double bound = Bound(i, unit);
    const double error = ErrorOf(result_[i], exact_[i], unit, format, bound);
    const bool beyond = error > bound;
    found.beyond += beyond;
    const double excess = std::isinf(bound) ? 0 : error / bound;
    if (!(excess > most)) continue;
    most = excess;
    found.worst = static_cast<int64_t>(i), found.error = error, found.bound = bound;
  }
  found.from = moved_ == 0 || kernels_.empty() ? "one rounding" : kernels_;
  if (found.beyond > 0) found.kind = RoundingVerdict::Kind::kError;
  if (moved_ > 0 && IsHalf(format) && IsTruncated()) {
    found.kind = RoundingVerdict::Kind::kError;
    found.cause = RoundingCause::kTruncated;
    found.bound = std::min(found.bound, 0.5);
  }
  verdict_ = std::move(found);
}

// Numbers that rounding would take away from zero are all cut.
bool RoundingJudge::IsTruncated() const {
  const FloatFormat format = *FormatOf(dtype_);
  std::set<double> cut;
  size_t rounded = 0;
  for (size_t i = 0; i < exact_.size() && cut.size() < 16 * kTruncatedNumbers; ++i) {
    if (!std::isfinite(exact_[i]) || !std::isfinite(result_[i])) continue;
    const double unit = UnitInLastPlace(exact_[i], format);
    const double toward_zero = std::trunc(exact_[i] / unit) * unit;
    if (!(std::fabs(exact_[i] - toward_zero) > 0.55 * unit)) continue;
    if (result_[i] == toward_zero) {
      cut.insert(exact_[i]);
    } else {
      ++rounded;
    }
  }
  return cut.size() >= kTruncatedNumbers && rounded * 10 <= cut.size();
}

Status RoundingJudge::AddMoved(const TensorView& moved) {
  if (exact_.empty()) return Status::Ok();
  const std::vector<double> values = Doubles(moved);
  if (values.size() != exact_.size()) {
    return InvalidArgument()
        .Expected("{} elements"_t(exact_.size()))
        .Found(std::to_string(values.size()));
  }
  if (squares_.empty()) squares_.assign(exact_.size(), 0);
  for (size_t i = 0; i < values.size(); ++i) {
    const double distance = values[i] - exact_[i];
    const bool equal = values[i] == exact_[i] || (std::isnan(values[i]) && std::isnan(exact_[i]));
    if (!equal) squares_[i] += std::isfinite(distance) ? distance * distance : kInfinity;
  }
  ++moved_;
  return Status::Ok();
}

void RoundingJudge::SetKernels(std::string_view text, bool once) {
  once_ = once;
  kernels_ = fmt::format("{}{}", once ? "one rounding; " : "", text);
}

void RoundingJudge::GiveUp(std::string_view why) {
  if (exact_.empty()) return;
  verdict_ = {.from = std::string(why)};
  result_ = {}, exact_ = {}, squares_ = {};
}

Status RoundingJudge::FindCause(const TensorView& result, const TensorView& exact) {
  if (!IsBeyond() || verdict_.cause != RoundingCause::kUnknown) return Status::Ok();
  const std::vector<double> made = Doubles(result), truth = Doubles(exact);
  if (made.size() != exact_.size() || truth.size() != exact_.size()) {
    return InvalidArgument()
        .Expected("{} elements"_t(exact_.size()))
        .Found(std::to_string(made.size()));
  }
  const FloatFormat format = *FormatOf(dtype_);
  int64_t stays = 0, goes = 0;
  for (size_t i = 0; i < exact_.size(); ++i) {
    const double unit = UnitInLastPlace(std::isfinite(exact_[i]) ? exact_[i] : 0, format);
    const double bound = Bound(i, unit);
    if (!(ErrorOf(result_[i], exact_[i], unit, format, bound) > bound)) continue;
    const double before = result_[i] - exact_[i], after = made[i] - truth[i];
    const bool same = std::isfinite(before) ? std::fabs(after - before) <= std::fabs(before) / 2
                                            : !std::isfinite(after);
    ++(same ? stays : goes);
  }
  verdict_.cause = stays >= goes ? RoundingCause::kFormula : RoundingCause::kLostUpcast;
  return Status::Ok();
}

void RoundingJudge::NoCause(std::string_view why) {
  if (IsBeyond() && verdict_.cause == RoundingCause::kUnknown) verdict_.no_cause = why;
}

RoundingJudge* RoundingJudges::Add(std::string_view place, RoundingJudge judge) {
  return &places_.emplace_back(Place{std::string(place), std::move(judge)}).judge;
}

RoundingJudge* RoundingJudges::At(std::string_view place) {
  for (Place& each : places_) {
    if (each.name == place) return &each.judge;
  }
  return nullptr;
}

bool RoundingJudges::IsBeyond() const {
  return std::any_of(places_.begin(), places_.end(),
                     [](const Place& each) { return each.judge.IsBeyond(); });
}

}  // namespace msprobe::accuracy
