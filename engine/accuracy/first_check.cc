#include "engine/accuracy/first_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/accuracy/rounding_steps.h"
#include "engine/base/text.h"
#include "engine/kernels/diff.h"

namespace msprobe::accuracy {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// What the older tools take for zero: the epsilon of float64.
constexpr double kAlmostZero = DTypeEpsilon(DType::kFloat64);

enum class Group { kFloat, kComplex, kBool, kInteger, kNone };

// Dtypes of one group are compared. The older tools know fewer integers.
Group GroupOf(DType dtype, Rules rules) {
  switch (DTypeKindOf(dtype)) {
    case DTypeKind::kFloat:
      return Group::kFloat;
    case DTypeKind::kComplex:
      return rules == Rules::kOurs ? Group::kComplex : Group::kNone;
    case DTypeKind::kBool:
      return Group::kBool;
    case DTypeKind::kSigned:
    case DTypeKind::kUnsigned:
      break;
  }
  if (dtype == DType::kUInt8) return Group::kBool;
  const bool common = dtype == DType::kInt32 || dtype == DType::kInt64 ||
                      (dtype == DType::kInt8 && rules == Rules::k26);
  return common || rules == Rules::kOurs ? Group::kInteger : Group::kNone;
}

// Complex numbers as what they consist of: floats, with a last dimension of real and imaginary
// parts.
class Parts {
 public:
  explicit Parts(const TensorView& view) : view_(view) {
    shape_.assign(view.dims().begin(), view.dims().end());
    strides_ = view.strides == nullptr
                   ? ContiguousStrides(view.dims())
                   : std::vector<int64_t>(view.strides, view.strides + view.ndim);
    for (int64_t& stride : strides_) stride *= 2;
    shape_.push_back(2);
    strides_.push_back(1);
    view_.dtype = view.dtype == DType::kComplex128  ? DType::kFloat64
                  : view.dtype == DType::kComplex64 ? DType::kFloat32
                                                    : DType::kFloat16;
    ++view_.ndim;
    view_.shape = shape_.data();
    view_.strides = strides_.data();
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  const TensorView& view() const { return view_; }

 private:
  TensorView view_;
  std::vector<int64_t> shape_, strides_;
};

// "(2, 3)", "(2,)", "()", as Python prints a tuple.
std::string TupleText(std::span<const int64_t> shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i)
    text += fmt::format("{}{}", i > 0 ? ", " : "", shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}
std::string TorchSize(std::span<const int64_t> shape) {
  return "torch.Size(" + ShapeText(shape) + ")";
}

double Share(int64_t part, int64_t all) {
  return static_cast<double>(part) / static_cast<double>(all);
}

// Without a tensor's numbers that are no numbers: NaN where the older tools' NumPy would give NaN.
double OldMaxError(const kernels::Accuracy& a) {
  return a.nan_errors > 0 ? kNaN : a.infinite_errors > 0 ? HUGE_VAL : a.max_error;
}

// sqrt of the mean over all elements of the normal pairs' squared errors, times a factor that makes
// it about their mean; the small numbers in it are those of the older tools.
double Rmse(const kernels::Accuracy& a) {
  const double n = static_cast<double>(a.count), left_out = static_cast<double>(a.count - a.normal);
  return std::sqrt(a.squared_errors / n * (n / (n - left_out + 0.0001) + 0.0001));
}

}  // namespace

FirstCheck::FirstCheck(const FirstCheckOptions& options)
    : options_(options),
      standards_(options.standards ? *options.standards : Standards::Shipped()) {}

// `single`: NumPy computed this number in float32 and printed it as such.
std::string FirstCheck::Spell(double value, bool single) const {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (!single) return fmt::format("{:.{}f}", value, options_.decimals);
  std::string text;
  AppendPythonFloat32(&text, value);
  return text;
}

void FirstCheck::FillMetrics(const kernels::Accuracy& a, Standard standard, std::string_view api,
                             bool single, CheckedOutput* out) const {
  DetailsRow& row = out->row;
  const bool is_all = !old();
  const auto share_or_zero = [&](int64_t part, int64_t all) {
    return all == 0 ? std::string("0") : Spell(Share(part, all));
  };
  const bool first = options_.rules == Rules::k1;
  if (is_all || standard == Standard::kBinary) {
    // The older tools do not round the golden, and to them NaN differs from NaN.
    row[kUnequal] = Spell(Share(old() ? a.inexact + a.both_nan : a.unequal, a.count));
  }
  if (is_all || standard == Standard::kBenchmark || standard == Standard::kAccumulative)
    row[kBalance] = Spell(Share(std::abs(a.above - a.below), a.count));
  if (is_all || standard == Standard::kBenchmark) {
    row[kRmse] = Spell(Rmse(a));
    row[kSmallValue] = share_or_zero(a.small_failures, a.small);
    row[kMaxRelative] = a.normal == 0 ? "0" : Spell(a.max_relative, single);
    row[kMeanRelative] =
        a.normal == 0 ? "0" : Spell(a.sum_relative / static_cast<double>(a.normal), single);
  }
  if (standard == Standard::kAbsolute || standard == Standard::kAccumulative) {
    row[kInfNan] =
        share_or_zero(old() ? a.unclipped_failures : a.nonfinite_failures, a.count - a.finite);
    row[kRelativeFailures] = share_or_zero(a.relative_failures, a.normal);
    row[kAbsoluteFailures] = share_or_zero(a.small_failures, a.small);
  }
  if (is_all || standard == Standard::kUlp) {
    double most = a.max_ulp,
           mean =
               a.sum_ulp / static_cast<double>(is_all ? std::max<int64_t>(a.finite, 1) : a.count);
    int64_t above = a.ulp_above;
    if (is_all) {
      above += a.count - a.finite - a.both_nan - a.same_infinity;
    } else if (a.nan_errors > 0 || a.infinite_golden > 0) {
      most = mean = kNaN;
    } else if (a.infinite_errors > 0) {
      most = mean = HUGE_VAL;
      above += a.infinite_errors;
    }
    const bool single_ulp = single && row[kDeviceDtype] != "torch.float32";
    row[kMaxUlp] = Spell(most, single_ulp);
    row[kMeanUlp] = Spell(mean, single_ulp);
    row[kUlpShare] = Spell(Share(above, a.count));
  }
  const int64_t matched = is_all ? a.both_nan + a.same_infinity : 0;
  if (is_all || standard == Standard::kThousandth ||
      (first && standards_.Lists(Standard::kThousandth, options_.rules, api)))
    row[kThousandth] = Spell(Share(a.within_1e3 + matched, a.count));
}

// The steps of msprobe 1.0 to 26, in their words; the first one that decides ends them.
void FirstCheck::JudgeOld(const kernels::Accuracy& a, std::string_view dtype, bool single,
                          CheckedOutput* out) const {
  const FirstCheckLimits& limits = standards_.first_check();
  DetailsRow& row = out->row;
  std::string& message = row[kMessage];
  const auto end = [&](Verdict verdict, std::string_view why) {
    message += why;
    out->verdict = verdict;
  };
  constexpr std::string_view kSkipRest = ", skip other check and set to SPACE.\n";
  const bool nonfinite = a.count > a.finite;
  double cosine = a.Cosine();
  bool similar = cosine > limits.cosine;
  if (a.count == 1) {
    message +=
        "All the data in device dump data is scalar. Please refer to other compare algorithms.";
    similar = true;
  } else if (!nonfinite && a.max_device <= kAlmostZero && a.max_golden <= kAlmostZero) {
    message += "All the data in device and bench outputs are zero.";
    similar = true;
  } else if (!nonfinite && (a.max_device <= kAlmostZero || a.max_golden <= kAlmostZero)) {
    message += fmt::format("All the data is zero in {} dump data.",
                           a.max_device <= kAlmostZero ? "device" : "bench");
    similar = false;
  } else {
    if (nonfinite) {
      message += "Dump data has NaN when comparing with Cosine Similarity.";
      cosine = kNaN;
      similar = options_.rules == Rules::k26;
    }
    row[kCosine] = Spell(cosine);
  }
  message += "\n";
  if (!similar) {
    end(Verdict::kError, "Cosine similarity is less than 0.99, consider as error");
    message += kSkipRest;
    return;
  }
  const double most = OldMaxError(a);
  row[kMaxAbsError] = Spell(most, single);
  if (most < limits.max_abs_error) {
    end(Verdict::kPass, "Max abs error is less than 0.001, consider as pass");
    message += kSkipRest;
    return;
  }
  const bool half = dtype == "torch.float16" || dtype == "torch.bfloat16";
  const double hundredth = Share(a.within_1e2, a.count), thousandth = Share(a.within_1e3, a.count),
               ten_thousandth = Share(a.within_1e4, a.count);
  if (half) {
    row[kHundredth] = Spell(hundredth);
    if (!(hundredth > limits.hundredth_share)) {
      end(Verdict::kError, "Relative error is greater than 0.01, consider as error");
      message += kSkipRest;
      return;
    }
  }
  row[kThousandth] = Spell(thousandth);
  const bool good = thousandth > limits.thousandth_share;
  if (half) {
    good ? end(Verdict::kPass, "Relative error is less than 0.001, consider as pass")
         : end(Verdict::kWarning, "Relative error is greater than 0.001, consider as warning");
    message += kSkipRest;
    return;
  }
  row[kTenThousandth] = Spell(ten_thousandth);
  if (!good) {
    end(Verdict::kError, "Relative error is greater than 0.001, consider as error");
    message += kSkipRest;
  } else if (!(ten_thousandth > limits.ten_thousandth_share)) {
    end(Verdict::kWarning, "Relative error is greater than 0.0001, consider as warning");
    message += kSkipRest;
  } else {
    end(Verdict::kPass, "Relative error is less than 0.0001, consider as pass.\n");
  }
}

// All metrics are filled in, whatever decides.
void FirstCheck::JudgeOurs(const kernels::Accuracy& a, std::string_view dtype,
                           CheckedOutput* out) const {
  const FirstCheckLimits& limits = standards_.first_check();
  DetailsRow& row = out->row;
  const int64_t matched = a.both_nan + a.same_infinity;
  const double hundredth = Share(a.within_1e2 + matched, a.count),
               thousandth = Share(a.within_1e3 + matched, a.count),
               ten_thousandth = Share(a.within_1e4 + matched, a.count);
  const double cosine = a.Cosine();
  if (!std::isnan(cosine)) row[kCosine] = Spell(cosine);
  row[kMaxAbsError] = Spell(a.max_error);
  row[kHundredth] = Spell(hundredth);
  row[kThousandth] = Spell(thousandth);
  row[kTenThousandth] = Spell(ten_thousandth);
  const auto end = [&](Verdict verdict, std::string why) {
    row[kMessage] = std::move(why);
    out->verdict = verdict;
  };
  if (a.nonfinite_failures > 0) {
    return end(Verdict::kError,
               fmt::format("{} elements are NaN or infinite on one side only, or of "
                           "different signs",
                           a.nonfinite_failures));
  }
  if (a.count > 1 && cosine <= limits.cosine)
    return end(Verdict::kError,
               fmt::format("cosine {:.6g} is not above {}", cosine, limits.cosine));
  if (dtype.starts_with("torch.float8")) {
    // Their relative errors are those of the rounding.
    const double share = Share(a.ulp_above, a.count),
                 limit = standards_.second_check().ulp_share_half;
    if (share < limit) return end(Verdict::kPass, "");
    return end(Verdict::kError,
               fmt::format("{:.6g} of the elements are more than 1 ULP away, not less than {}",
                           share, limit));
  }
  // Small gradients are judged like large ones.
  const double most = std::max(limits.max_abs_error * std::min(1.0, a.max_golden),
                               limits.half_max_error.Of(dtype) * a.max_golden);
  if (a.max_error == 0 || a.max_error < most) {
    return end(Verdict::kPass,
               a.max_error == 0
                   ? ""
                   : fmt::format("max abs error {:.3g} is below {:.3g}", a.max_error, most));
  }
  const bool half = dtype == "torch.float16" || dtype == "torch.bfloat16";
  const auto below = [&](double share, double limit, double error) {
    return fmt::format(
        "relative errors are below {} in {:.6g} of the elements, not in more than {}", error, share,
        limit);
  };
  if (half && !(hundredth > limits.hundredth_share))
    return end(Verdict::kError, below(hundredth, limits.hundredth_share, 0.01));
  if (!(thousandth > limits.thousandth_share)) {
    return end(half ? Verdict::kWarning : Verdict::kError,
               below(thousandth, limits.thousandth_share, 0.001));
  }
  if (!half && !(ten_thousandth > limits.ten_thousandth_share))
    return end(Verdict::kWarning, below(ten_thousandth, limits.ten_thousandth_share, 0.0001));
  end(Verdict::kPass, "");
}

// Integers, bools and fp8 numbers: the share of unequal elements.
Result<CheckedOutput> FirstCheck::CompareExactly(std::string_view api, const TensorView& device,
                                                 const TensorView& golden, CheckedOutput out,
                                                 ThreadPool* pool) const {
  MSPROBE_ASSIGN_OR_RETURN(const kernels::Diff diff, kernels::ComputeDiff(device, golden, pool));
  DetailsRow& row = out.row;
  std::string_view dtype = DTypeShortName(golden.dtype);
  if (options_.rules == Rules::k26 || !old()) {
    const bool within_one = standards_.IsWithinOne(api) || options_.within_one.contains(api);
    if (within_one) {
      const bool good = diff.max_abs_error <= 1;
      row[kMaxAbsError] = Spell(diff.max_abs_error);
      row[kMessage] = fmt::format(
          "Quantization type: Max abs error is {:.2f}, {} 1, consider as {}.\n", diff.max_abs_error,
          good ? "less than or equal to" : "greater than", good ? "pass" : "error");
      out.verdict = good ? Verdict::kPass : Verdict::kError;
      if (!old()) row[kUnequal] = Spell(Share(diff.unequal, diff.count));
      return out;
    }
    row[kMessage] = fmt::format("Current {} data, only perform binary comparison.", dtype);
  } else {
    row[kMessage] = fmt::format(
        "Compare algorithm is not supported for {} data. Only judged by Error Rate.\n", dtype);
  }
  row[kUnequal] = Spell(Share(diff.unequal, diff.count));
  out.verdict = diff.unequal == 0 ? Verdict::kPass : Verdict::kError;
  return out;
}

Result<CheckedOutput> FirstCheck::CompareTensors(std::string_view api, const TensorView& device,
                                                 const TensorView& golden, ThreadPool* pool,
                                                 bool fp8_input) const {
  CheckedOutput out;
  out.row.fill(" ");
  DetailsRow& row = out.row;
  row[kGoldenDtype] = DTypeTorchName(golden.dtype);
  row[kDeviceDtype] = DTypeTorchName(device.dtype);
  row[kShape] = TupleText(device.dims());
  row[kMessage].clear();
  const auto finish = [&]() {
    row[kStatus] = options_.rules == Rules::k26 || !old() || out.verdict != Verdict::kWarning
                       ? VerdictName(out.verdict)
                       : "Warning";
    return out;
  };
  const auto end = [&](Verdict verdict, std::string message) {
    out.verdict = verdict;
    row[kMessage] = std::move(message);
    return finish();
  };
  if (!std::ranges::equal(device.dims(), golden.dims())) {
    return end(Verdict::kError, fmt::format("The shape of bench{} and npu{} not equal.",
                                            TorchSize(golden.dims()), TorchSize(device.dims())));
  }
  const Group group = GroupOf(golden.dtype, options_.rules);
  if (group == Group::kNone || group != GroupOf(device.dtype, options_.rules)) {
    return end(Verdict::kError,
               fmt::format("Bench out dtype is {} but npu output dtype is {}, cannot compare.",
                           DTypeShortName(golden.dtype), DTypeShortName(device.dtype)));
  }
  if (golden.numel() == 0) {
    return end(options_.rules == Rules::k26 || !old() ? Verdict::kSkip : Verdict::kError,
               "There is not bench calculation result.");
  }
  if (group == Group::kComplex) {
    MSPROBE_ASSIGN_OR_RETURN(CheckedOutput parts,
                             CompareTensors(api, Parts(device).view(), Parts(golden).view(), pool));
    for (const size_t column : {kGoldenDtype, kDeviceDtype, kShape})
      parts.row[column] = row[column];
    return parts;
  }
  if (group != Group::kFloat || !kernels::HasAccuracy(device.dtype) ||
      !kernels::HasAccuracy(golden.dtype)) {
    MSPROBE_ASSIGN_OR_RETURN(out, CompareExactly(api, device, golden, std::move(out), pool));
    return finish();
  }
  const Standard standard = standards_.OfMetrics(options_.rules, api, device.dtype, fp8_input);
  MSPROBE_ASSIGN_OR_RETURN(
      const kernels::Accuracy a,
      kernels::ComputeAccuracy(
          device, golden, standards_.LimitsOf(options_.rules, standard, device.dtype, golden.dtype),
          pool));
  const std::string_view dtype = row[kDeviceDtype];
  // NumPy keeps float32 where both sides, widened, are float32.
  const bool single = old() && golden.dtype != DType::kFloat64 && device.dtype != DType::kFloat64;
  if (standard != Standard::kNone) {
    FillMetrics(a, standard, api, single, &out);
  } else if (options_.rules != Rules::k1) {
    row[kMessage] =
        fmt::format("The data type {} is not supported for new precision standard.", dtype);
  }
  old() ? JudgeOld(a, dtype, single, &out) : JudgeOurs(a, dtype, &out);
  return finish();
}

Result<CheckedOutput> FirstCheck::CompareDropout(const TensorView& device,
                                                 const TensorView& golden) const {
  if (device.numel() != golden.numel()) {
    return WithoutComparing(Verdict::kError,
                            fmt::format("The shape of bench{} and npu{} not equal.",
                                        TorchSize(golden.dims()), TorchSize(device.dims())));
  }
  CheckedOutput out = WithoutComparing(Verdict::kPass, "");
  out.row[kGoldenDtype] = DTypeTorchName(golden.dtype);
  out.row[kDeviceDtype] = DTypeTorchName(device.dtype);
  out.row[kShape] = TupleText(device.dims());
  const FirstCheckLimits& limits = standards_.first_check();
  const int64_t count = golden.numel();
  if (static_cast<double>(count) < limits.dropout_elements || count == 0) {
    out.row[kMessage] = fmt::format("random values; {} elements are too few to judge", count);
    return out;
  }
  // The difference from itself counts a tensor's zeros.
  MSPROBE_ASSIGN_OR_RETURN(const kernels::Diff of_golden, kernels::ComputeDiff(golden, golden));
  MSPROBE_ASSIGN_OR_RETURN(const kernels::Diff of_device, kernels::ComputeDiff(device, device));
  const double difference =
      std::fabs(Share(of_golden.golden_zero, count) - Share(of_device.golden_zero, count));
  const bool good = difference < limits.dropout_zeros;
  out.verdict = good ? Verdict::kPass : Verdict::kError;
  out.row[kStatus] = VerdictName(out.verdict);
  out.row[kMessage] = fmt::format("random values; the shares of zeros differ by {:.4f}, {} {}",
                                  difference, good ? "below" : "not below", limits.dropout_zeros);
  return out;
}

CheckedOutput FirstCheck::CompareValues(std::string_view type, bool equal) const {
  CheckedOutput out = WithoutComparing(equal ? Verdict::kPass : Verdict::kError, "");
  out.row[kGoldenDtype] = out.row[kDeviceDtype] = type;
  if (equal) out.row[kUnequal] = "0";
  return out;
}

CheckedOutput FirstCheck::WithoutComparing(Verdict verdict, std::string_view message) const {
  CheckedOutput out;
  out.row.fill(" ");
  out.verdict = verdict;
  out.row[kStatus] = VerdictName(verdict);
  out.row[kMessage] = message;
  return out;
}

CheckedOutput FirstCheck::WithoutGolden(bool on_device) const {
  return WithoutComparing(Verdict::kSkip, old()       ? "Bench output is None, skip this test."
                                          : on_device ? "the golden has no such output"
                                                      : "there is no gradient of this argument");
}

bool FirstCheck::ExplainedByInputs(const TensorView& device, const TensorView& golden,
                                   const TensorView& changed, const InputSizes& inputs) const {
  const std::optional<FloatFormat> format = FormatOf(device.dtype);
  if (old() || !format || device.numel() == 0) return false;
  const Result<kernels::Diff> error = kernels::ComputeDiff(device, golden);
  const Result<kernels::Diff> change = kernels::ComputeDiff(changed, golden);
  if (!error.ok() || !change.ok() || error->nonfinite_target + change->nonfinite_target > 0)
    return false;
  const FirstCheckLimits& limits = standards_.first_check();
  const double terms = std::sqrt(
      std::max(1.0, static_cast<double>(inputs.elements) / static_cast<double>(device.numel())));
  const bool half = device.dtype == DType::kFloat16 || device.dtype == DType::kBFloat16;
  const double factor = limits.input_rounding.Of(DTypeTorchName(device.dtype)) *
                        (half && inputs.of_gradient ? terms : 1);
  const double bound =
      limits.input_rounding_bound * (format->epsilon() * inputs.largest + format->smallest());
  return error->max_abs_error <= factor * change->max_abs_error + 2 * format->smallest() &&
         change->max_abs_error <= bound * terms;
}

Verdict FirstCheck::Combine(std::span<const Verdict> outputs) const {
  if (outputs.empty()) return Verdict::kBlank;
  Verdict found = Verdict::kPass;
  if (old()) {
    for (const Verdict v : outputs) {
      if (v == Verdict::kError || v == Verdict::kWarning) found = v;
    }
    return found;
  }
  bool all_skipped = true;
  for (const Verdict v : outputs) {
    if (v == Verdict::kSkip) continue;
    all_skipped = false;
    found = std::max(found, v);
  }
  return all_skipped ? Verdict::kSkip : found;
}

}  // namespace msprobe::accuracy
