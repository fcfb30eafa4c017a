#include "engine/accuracy/row_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace msprobe::accuracy {
namespace {

// What the older tools say of a metric that is missing.
constexpr std::string_view kEmptyMetric = "ERROR: Input data is an empty string";

struct BenchmarkMetric {
  Message (*name)();
  DetailsColumn metric;
  ComparedColumn ratio;
  double RatioLimits::*limit;
};
constexpr BenchmarkMetric kBenchmarkMetrics[] = {
    {[] { return "share of wrong small values"_t; }, kSmallValue, kSmallValueRatio,
     &RatioLimits::small_value},
    {[] { return Message(std::string("RMSE")); }, kRmse, kRmseRatio, &RatioLimits::rmse},
    {[] { return "largest relative error"_t; }, kMaxRelative, kMaxRelativeRatio,
     &RatioLimits::max_relative},
    {[] { return "mean relative error"_t; }, kMeanRelative, kMeanRelativeRatio,
     &RatioLimits::mean_relative},
    {[] { return "error balance"_t; }, kBalance, kBalanceRatio, &RatioLimits::balance},
};

}  // namespace

std::string_view SpelledVerdict(Verdict verdict, Rules rules) {
  const bool upper = rules == Rules::k1 || rules == Rules::k8;
  return verdict == Verdict::kWarning && upper ? "Warning" : VerdictName(verdict);
}

OutputName ParseOutputName(std::string_view name) {
  size_t dots[7];
  size_t count = 0;
  for (size_t at = name.find('.'); at != name.npos; at = name.find('.', at + 1)) {
    if (count == std::size(dots)) return {};
    dots[count++] = at;
  }
  if (count != 5 && count != 6) return {};
  const size_t index = dots[count - 4], direction = dots[count - 3], end = dots[count - 2];
  return {name.substr(0, direction), name.substr(direction + 1, end - direction - 1),
          name.substr(dots[0] + 1, index - dots[0] - 1)};
}

std::string RowJudge::Spell(double value) const {
  if (std::isnan(value)) return "nan";  // without the sign that fmt writes
  return fmt::format("{:.{}f}", value, decimals_);
}

std::string_view RowJudge::NameOf(Verdict verdict) const { return SpelledVerdict(verdict, rules_); }

double RowJudge::Metric(const DetailsTable& table, size_t row, DetailsColumn column) const {
  return table.IsBlank(row, column) ? 0.0 : table.Number(row, column);
}

Standard RowJudge::ChosenFor(const Sides& sides, std::string_view api) const {
  const std::string_view dtype = sides.npu.cell(sides.n, kDeviceDtype);
  // A details file does not say whether an input was fp8: the failures, which only such rows and
  // those of the absolute standard have, stand for it in msprobe 26.
  const bool fp8_input = rules_ == Rules::k26 && !sides.npu.IsBlank(sides.n, kRelativeFailures);
  const Standard standard = standards_.OfResult(rules_, api, dtype, fp8_input);
  if (old() || standard == Standard::kBenchmark) return standard;
  // A file of msprobe 26 has the metrics of the benchmark standard alone, whatever the API.
  bool on_npu = false;
  if (Missing(sides, standard, &on_npu) != kDetailsColumns &&
      Missing(sides, Standard::kBenchmark, &on_npu) == kDetailsColumns) {
    return Standard::kBenchmark;
  }
  return standard;
}

DetailsColumn RowJudge::Missing(const Sides& sides, Standard standard, bool* on_npu) const {
  const auto first_blank = [&](std::initializer_list<DetailsColumn> columns, bool both) {
    for (const DetailsColumn c : columns) {
      *on_npu = sides.npu.IsBlank(sides.n, c);
      if (*on_npu || (both && sides.gpu.IsBlank(sides.g, c))) return c;
    }
    return kDetailsColumns;
  };
  switch (standard) {
    case Standard::kBenchmark:
      return first_blank({kSmallValue, kRmse, kMaxRelative, kMeanRelative, kBalance}, true);
    case Standard::kAbsolute:
      return first_blank({kInfNan, kRelativeFailures, kAbsoluteFailures}, false);
    case Standard::kAccumulative:
      return first_blank({kInfNan, kRelativeFailures, kAbsoluteFailures, kBalance}, false);
    case Standard::kBinary:
      return first_blank({kUnequal}, false);
    case Standard::kThousandth:
      return first_blank({kThousandth}, false);
    case Standard::kUlp:
      return IsFp8(sides.npu.cell(sides.n, kDeviceDtype))
                 ? first_blank({kUlpShare}, false)
                 : first_blank({kMeanUlp, kUlpShare}, true);
    case Standard::kNone:
      break;
  }
  return kDetailsColumns;
}

RowJudge::Ratio RowJudge::RatioOf(const Sides& sides, DetailsColumn column, double floor,
                                  std::string* message) const {
  const double n = Metric(sides.npu, sides.n, column), g = Metric(sides.gpu, sides.g, column);
  if (!std::isfinite(n) || !std::isfinite(g)) {
    const bool same = (std::isnan(n) && std::isnan(g)) || n == g;
    *message +=
        fmt::format("{}{}\n", kDetailsTitles[column], same ? "同为同号inf或nan" : "inf或nan不一致");
    return {std::numeric_limits<double>::quiet_NaN(), same};
  }
  const double of_zero = standards_.LimitsOf(rules_).ratio_of_zero;
  if (of_zero > 0) return {g != 0 ? std::fabs(n / g) : n == 0 ? 1.0 : of_zero, true};
  return {std::fabs(n) / std::max(std::fabs(g), floor), true};
}

// The floor is a relative error. A RMSE is in the unit of the values: the floor is scaled by the
// size of the values, which is about RMSE / mean relative error.
double RowJudge::RmseFloor(const Sides& sides, double floor) const {
  if (old()) return floor;
  double size = 0;
  for (const bool npu : {true, false}) {
    const DetailsTable& table = npu ? sides.npu : sides.gpu;
    const size_t row = npu ? sides.n : sides.g;
    const double rmse = table.Number(row, kRmse), mean = table.Number(row, kMeanRelative);
    if (rmse > 0 && mean > 0) size = std::max(size, rmse / mean);
  }
  return size > 0 && size < 1 ? floor * size : floor;
}

void RowJudge::Benchmark(const Sides& sides, std::string_view api, ComparedRow* row,
                         RowVerdict* result) {
  const std::string_view dtype = sides.npu.cell(sides.n, kDeviceDtype);
  const RatioLimits& error = standards_.RatiosOf(rules_, api);
  const RatioLimits& warning = standards_.LimitsOf(rules_).warning;
  const double floor = standards_.LimitsOf(rules_).ratio_floor.Of(dtype);
  std::string& message = (*row)[kComparedMessage];
  std::string reasons;
  double of_reason = 0;  // the ratio that result->reason names
  result->verdict = Verdict::kPass;
  for (const BenchmarkMetric& m : kBenchmarkMetrics) {
    const Ratio ratio =
        RatioOf(sides, m.metric, m.metric == kRmse ? RmseFloor(sides, floor) : floor, &message);
    // msprobe 1.0 does not look at infinities of the balance.
    const bool consistent = ratio.consistent || (m.metric == kBalance && rules_ == Rules::k1);
    const Verdict v = !consistent || ratio.value > error.*m.limit ? Verdict::kError
                      : ratio.value > warning.*m.limit            ? Verdict::kWarning
                                                                  : Verdict::kPass;
    (*row)[m.ratio] = Spell(ratio.value);
    (*row)[m.ratio + 1] = NameOf(v);
    if (m.metric == kBalance) continue;  // shown, not judged
    if (v != Verdict::kPass) {
      reasons += fmt::format("{}: {}超过阈值\n", v == Verdict::kError ? "ERROR" : "WARNING",
                             kComparedTitles[m.ratio]);
    }
    if (v > result->verdict ||
        (v != Verdict::kPass && v == result->verdict && ratio.value > of_reason)) {
      of_reason = consistent ? ratio.value : std::numeric_limits<double>::infinity();
      const RatioLimits& limits = v == Verdict::kError ? error : warning;
      result->reason = !consistent ? "the {} is NaN or infinite on one side"_t(m.name())
                                   : "the {} is {:.3g} times the reference's, limit {:g}"_t(
                                         m.name(), ratio.value, limits.*m.limit);
    }
    result->verdict = std::max(result->verdict, v);
    if (ratio.value > result->worst_ratio) result->worst_ratio = ratio.value;
  }
  message += reasons;
}

void RowJudge::Failures(const Sides& sides, bool balanced, ComparedRow* row, RowVerdict* result) {
  const struct {
    DetailsColumn metric;
    ComparedColumn column;
    Message::Format<1> reason;
  } failures[] = {{kInfNan, kComparedInfNan,
                   "{:.3g} of the elements are NaN or infinite on one side, limit 0"_t},
                  {kRelativeFailures, kComparedRelativeFailures,
                   "{:.3g} of the normal values have too large a relative error, limit 0"_t},
                  {kAbsoluteFailures, kComparedAbsoluteFailures,
                   "{:.3g} of the small values have too large an absolute error, limit 0"_t}};
  // msprobe 8 and 26 forgot the line ends of the absolute standard, and doubled those of the
  // accumulative one.
  const std::string_view end = !old() || rules_ == Rules::k1 ? "\n" : balanced ? "\n\n" : "";
  std::string& message = (*row)[kComparedMessage];
  result->verdict = Verdict::kPass;
  const auto fail = [&](std::string_view title, Message reason) {
    result->verdict = Verdict::kError;
    message += fmt::format("ERROR: {}超过阈值{}", title, end);
    result->reason = Message::Joined({std::move(result->reason), std::move(reason)}, "; ");
  };
  for (const auto& f : failures) {
    const double share = sides.npu.Number(sides.n, f.metric);
    (*row)[f.column] = Spell(share);
    (*row)[f.column + 1] = NameOf(share == 0 ? Verdict::kPass : Verdict::kError);
    if (share != 0) fail(kDetailsTitles[f.metric], f.reason(share));
  }
  if (balanced) {
    const std::string_view dtype = sides.npu.cell(sides.n, kDeviceDtype);
    const double balance = sides.npu.Number(sides.n, kBalance);
    const double limit = standards_.LimitsOf(rules_).accumulative_balance.Of(dtype);
    const bool good = balance <= limit;
    (*row)[kBalanceRatio] = Spell(balance);
    (*row)[kBalanceRatio + 1] = NameOf(good ? Verdict::kPass : Verdict::kError);
    if (!good) {
      fail(kDetailsTitles[kBalance], "the error balance is {:.3g}, limit {:g}"_t(balance, limit));
    }
    if (old() && message.ends_with("\n\n")) message.pop_back();
  }
}

void RowJudge::Ulp(const Sides& sides, ComparedRow* row, RowVerdict* result) {
  const SecondCheckLimits& limits = standards_.second_check();
  const std::string_view dtype = sides.npu.cell(sides.n, kDeviceDtype);
  const double mean = Metric(sides.npu, sides.n, kMeanUlp);
  const double share = Metric(sides.npu, sides.n, kUlpShare);
  (*row)[kComparedUlpShare] = Spell(share);
  std::string& message = (*row)[kComparedMessage];
  bool consistent = true, good = share < limits.ulp_share_half;
  if (!IsFp8(dtype)) {
    const Ratio of_means = RatioOf(sides, kMeanUlp, 1, &message);  // for its infinities
    const Ratio ratio =
        RatioOf(sides, kUlpShare, standards_.LimitsOf(rules_).ratio_floor.Of(dtype), &message);
    (*row)[kComparedMeanUlp] = Spell(mean);
    (*row)[kUlpShareRatio] = Spell(ratio.value);
    consistent = of_means.consistent && ratio.consistent;
    // msprobe 1.0 judges float32 by the limit of the other dtypes.
    if (dtype == "torch.float32" && rules_ != Rules::k1)
      good = mean < limits.ulp_mean || share < limits.ulp_share;
    good = good || ratio.value < limits.ulp_share_ratio;
  }
  const Verdict verdict = consistent && good ? Verdict::kPass : Verdict::kError;
  // msprobe 1.0 is silent where only the infinities differ.
  if (verdict == Verdict::kError && (consistent || rules_ != Rules::k1))
    message += "ERROR: ULP误差不满足标准\n";
  // msprobe 8 and 26 leave the cell blank where only the infinities differ.
  if (consistent || !old() || rules_ == Rules::k1) (*row)[kUlpVerdict] = NameOf(verdict);
  result->verdict = verdict;
  if (verdict == Verdict::kError) {
    const double limit = dtype == "torch.float32" ? limits.ulp_share : limits.ulp_share_half;
    result->reason = Message::Joined(
        {"{:.3g} of the elements have a large ULP error, limit {:g}"_t(share, limit),
         "{:.3g} on the reference"_t(Metric(sides.gpu, sides.g, kUlpShare))},
        "; ");
  }
}

RowVerdict RowJudge::JudgeBy(const Sides& sides, Standard standard, std::string_view api,
                             ComparedRow* row) {
  RowVerdict result{.standard = standard};
  std::string& message = (*row)[kComparedMessage];
  message.clear();
  const auto copied = [&](DetailsColumn metric, ComparedColumn column, bool good,
                          std::string_view reason) {
    (*row)[column] = sides.npu.cell(sides.n, metric);
    result.verdict = good ? Verdict::kPass : Verdict::kError;
    (*row)[column + 1] = NameOf(result.verdict);
    if (!good) message += fmt::format("ERROR: {}{}\n", kDetailsTitles[metric], reason);
  };
  switch (standard) {
    case Standard::kBenchmark:
      Benchmark(sides, api, row, &result);
      break;
    case Standard::kAbsolute:
    case Standard::kAccumulative:
      Failures(sides, standard == Standard::kAccumulative, row, &result);
      break;
    case Standard::kUlp:
      Ulp(sides, row, &result);
      break;
    case Standard::kBinary:
      copied(kUnequal, kComparedUnequal, sides.npu.Number(sides.n, kUnequal) == 0, "超过阈值");
      if (result.verdict == Verdict::kError) {
        result.reason = "{:.3g} of the elements differ from the golden ones, limit 0"_t(
            sides.npu.Number(sides.n, kUnequal));
      }
      break;
    case Standard::kThousandth:
      copied(kThousandth, kComparedThousandth,
             sides.npu.Number(sides.n, kThousandth) >= standards_.second_check().thousandth_share,
             "不达标");
      if (result.verdict == Verdict::kError) {
        result.reason = "{:.6g} of the elements have a relative error below 0.001, limit {:g}"_t(
            sides.npu.Number(sides.n, kThousandth), standards_.second_check().thousandth_share);
      }
      break;
    case Standard::kNone:
      break;
  }
  (*row)[kComparedVerdict] = NameOf(result.verdict);
  (*row)[kAlgorithm] = AlgorithmName(standard);
  return result;
}

RowVerdict RowJudge::Judge(const DetailsTable& npu, size_t row_of_npu, const DetailsTable& gpu,
                           size_t row_of_gpu, ComparedRow* row) {
  const Sides sides{npu, row_of_npu, gpu, row_of_gpu};
  for (size_t c = kSmallValueRatio; c < kComparedColumns; ++c) (*row)[c] = " ";
  const auto without_judging = [&](Verdict verdict, std::string_view message, bool failed = false) {
    (*row)[kComparedVerdict] = NameOf(verdict);
    (*row)[kComparedMessage] = message;
    return RowVerdict{.verdict = verdict, .failed = failed};
  };
  const std::string_view dtype = npu.cell(row_of_npu, kDeviceDtype);
  const std::string_view message = npu.cell(row_of_npu, kMessage);
  const bool empty = npu.cell(row_of_npu, kShape) == "(0,)";
  if (IsBlankCell(dtype) || (rules_ != Rules::k1 && (empty || (old() && IsLargeFloat(dtype))))) {
    const bool first_error = !old() && npu.cell(row_of_npu, kStatus) == "error";
    return without_judging(first_error ? Verdict::kError : Verdict::kSkip, message);
  }
  const std::string_view api = ParseOutputName(npu.cell(row_of_npu, kApiName)).api;
  const Standard standard = ChosenFor(sides, api);
  if (standard == Standard::kNone)
    return without_judging(Verdict::kSkip, "This data type does not support benchmark compare.",
                           true);
  bool on_npu = false;
  const DetailsColumn missing = Missing(sides, standard, &on_npu);
  if (missing != kDetailsColumns) {
    // msprobe 26 takes a blank for 0 in these two standards.
    const bool as_zero = standard == Standard::kBenchmark || standard == Standard::kUlp;
    if (old() && (rules_ != Rules::k26 || !as_zero))
      return without_judging(Verdict::kSkip, kEmptyMetric, true);
    if (!old()) {
      // What the first check found wrong, a shape for instance, has no metrics.
      if (on_npu && npu.cell(row_of_npu, kStatus) == "error")
        return without_judging(Verdict::kError, message);
      return without_judging(Verdict::kSkip,
                             fmt::format("{} is not in the {} file", kDetailsTitles[missing],
                                         on_npu ? "device's" : "reference's"));
    }
  }
  RowVerdict result = JudgeBy(sides, standard, api, row);
  if (rules_ == Rules::k1 && standard == Standard::kBinary && result.verdict == Verdict::kError &&
      api == "topk") {
    (*row)[kComparedMessage] += kTopkHint;
  }
  return result;
}

}  // namespace msprobe::accuracy
