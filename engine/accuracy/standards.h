// Which standard judges the results of an API, and the limits of each: standards.yaml, read once.
//
//   const Standards& standards = Standards::Shipped();
//   const kernels::AccuracyLimits limits = standards.LimitsOf(
//       Rules::kOurs, Standard::kBenchmark, DType::kFloat32, DType::kFloat64);
//   Standard s = standards.OfResult(Rules::k26, "matmul", "torch.float32", false);
#pragma once

#include <array>
#include <limits>
#include <set>
#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/kernels/accuracy.h"
#include "engine/tensor/dtype.h"

namespace msprobe::accuracy {

// Whose decisions: ours, or those of msprobe 1.0, 8 or 26, errors included.
enum class Rules { kOurs, k1, k8, k26 };
inline constexpr int kRulesCount = 4;
// Of "" (ours), "1.0", "8", "26". Errors: kInvalidArgument.
Result<Rules> RulesFromName(std::string_view name);

enum class Standard {
  kBenchmark,     // errors on the device divided by those on the reference device
  kAbsolute,      // no element may fail its limits
  kBinary,        // all elements are equal
  kUlp,           // errors in units of the last place
  kThousandth,    // the share of relative errors below 0.001
  kAccumulative,  // as kAbsolute, and the errors are balanced
  kNone,          // the dtype is not judged
};
// As it stands in the column 比对算法; "" for kNone.
std::string_view AlgorithmName(Standard standard);
std::string_view StandardName(Standard standard);  // "benchmark", ...; "" for kNone

// Of a dtype as a details file spells it.
bool IsFp8(std::string_view dtype);  // "torch.float8_e4m3fn", hifloat8
bool IsLargeFloat(
    std::string_view dtype);  // float64 and complex: the older tools do not judge them

// A number for each dtype of a device's result.
struct DTypeTable {
  double float16 = 0, bfloat16 = 0, float32 = 0, other = 0;
  double Of(std::string_view torch_name) const;
};
// Limits of ratios, in the order of the columns.
struct RatioLimits {
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  double small_value = kNever, rmse = kNever, max_relative = kNever, mean_relative = kNever,
         balance = kNever;
};
// What differs from rules to rules; standards.yaml says what each limit means.
struct RuleLimits {
  DTypeTable small_value, small_atol, absolute_atol, rtol, ratio_floor, accumulative_bound,
      accumulative_balance;
  double ratio_of_zero = 0;  // 0: ratio_floor is used
  std::array<RatioLimits, 3> error;
  RatioLimits warning;
};
struct FirstCheckLimits {
  double cosine = 0, max_abs_error = 0, hundredth_share = 0, thousandth_share = 0,
         ten_thousandth_share = 0, bfloat16_epsilon = 0, dropout_elements = 0, dropout_zeros = 0;
  DTypeTable half_max_error, ulp_counted, input_rounding;
  double input_rounding_bound = 0;
};
struct SecondCheckLimits {
  double thousandth_share = 0, ulp_mean = 0, ulp_share = 0, ulp_share_half = 0, ulp_share_ratio = 0,
         accumulative_small = 0;
};

class Standards {
 public:
  // Those that are part of the program.
  static const Standards& Shipped();
  // A whole file of this form. Errors: kNotFound; kInvalidConfig with path and line.
  static Result<Standards> Read(const std::string& path);
  static Result<Standards> Parse(std::string_view text, const std::string& path);

  // The standard whose metrics a details file of these rules has for a result of the device.
  // `api`: "add", "fft.rfft". kNone: the rules have no metrics for the dtype.
  Standard OfMetrics(Rules rules, std::string_view api, DType device, bool fp8_input) const;
  // The standard that judges the result against the reference device.
  Standard OfResult(Rules rules, std::string_view api, std::string_view device_dtype,
                    bool fp8_input) const;
  bool Lists(Standard standard, Rules rules, std::string_view api) const;
  bool IsWithinOne(std::string_view api) const { return within_one_.contains(api); }
  const RatioLimits& RatiosOf(Rules rules, std::string_view api) const;

  kernels::AccuracyLimits LimitsOf(Rules rules, Standard standard, DType device,
                                   DType golden) const;
  const RuleLimits& LimitsOf(Rules rules) const { return rules_[static_cast<size_t>(rules)]; }
  const FirstCheckLimits& first_check() const { return first_; }
  const SecondCheckLimits& second_check() const { return second_; }

 private:
  friend class StandardsReader;
  using Names = std::set<std::string, std::less<>>;
  Names absolute_, binary_, ulp_, thousandth_, accumulative_, not_in_1_, level_1_, level_2_,
      not_in_26_, within_one_;
  FirstCheckLimits first_;
  SecondCheckLimits second_;
  std::array<RuleLimits, kRulesCount> rules_;
};

}  // namespace msprobe::accuracy
