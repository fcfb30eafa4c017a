// The columns of the four files of the accuracy pre-check, in their order and spelling.
//
//   row[kRmse];                        // a cell
//   kDetailsTitles[kRmse];             // "均方根误差"
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "engine/base/messages/message.h"

namespace msprobe::accuracy {

// accuracy_checking_details_TIME.csv: a row for each output of a call. An unset cell is one blank.
enum DetailsColumn {
  kApiName,
  kGoldenDtype,
  kDeviceDtype,
  kShape,
  kCosine,
  kMaxAbsError,
  kHundredth,
  kThousandth,
  kTenThousandth,
  kUnequal,
  kBalance,
  kRmse,
  kSmallValue,
  kMaxRelative,
  kMeanRelative,
  kInfNan,
  kRelativeFailures,
  kAbsoluteFailures,
  kMaxUlp,
  kMeanUlp,
  kUlpShare,
  kStatus,
  kMessage,
  kOlderDetailsColumns,  // those of msprobe 1.0 to 26
  kRoundingVerdict = kOlderDetailsColumns,
  kWorstIndex,
  kErrorInRoundings,
  kBoundInRoundings,
  kBoundFrom,
  kRoundingCause,
  kDetailsColumns,
};
inline constexpr std::array<std::string_view, kDetailsColumns> kDetailsTitles = {
    "API Name",
    "Bench Dtype",
    "DEVICE Dtype",
    "Shape",
    "余弦相似度",
    "最大绝对误差",
    "双百指标",
    "双千指标",
    "双万指标",
    "二进制一致错误率",
    "误差均衡性",
    "均方根误差",
    "小值域错误占比",
    "相对误差最大值",
    "相对误差平均值",
    "inf/nan错误率",
    "相对误差错误率",
    "绝对误差错误率",
    "ULP误差最大值",
    "ULP误差平均值",
    "ULP误差大于阈值占比",
    "Status",
    "Message",
    "Rounding Verdict",
    "Worst Index",
    "Error In Roundings",
    "Bound In Roundings",
    "Bound From",
    "Rounding Cause"};
using DetailsRow = std::array<std::string, kDetailsColumns>;

// accuracy_checking_result_TIME.csv: a row for each call. The pre-check's own files spell the first
// title "API name", those of the comparison "API Name".
enum ResultColumn {
  kCall,
  kForward,
  kBackward,
  kResultMessage,
  kOlderResultColumns,  // those of msprobe 1.0 to 26
  kForwardRounding = kOlderResultColumns,
  kBackwardRounding,
  kResultColumns,
};
inline constexpr std::array<std::string_view, kResultColumns> kResultTitles = {
    "API name", "Forward Test Success",     "Backward Test Success",
    "Message",  "Forward Rounding Verdict", "Backward Rounding Verdict"};

// api_precision_compare_details_TIME.csv: a row for each output of a call. A verdict stands after
// its metric.
enum ComparedColumn {
  kComparedName,
  kSmallValueRatio,
  kRmseRatio = kSmallValueRatio + 2,
  kMaxRelativeRatio = kRmseRatio + 2,
  kMeanRelativeRatio = kMaxRelativeRatio + 2,
  kBalanceRatio = kMeanRelativeRatio + 2,
  kComparedInfNan = kBalanceRatio + 2,
  kComparedRelativeFailures = kComparedInfNan + 2,
  kComparedAbsoluteFailures = kComparedRelativeFailures + 2,
  kComparedUnequal = kComparedAbsoluteFailures + 2,
  kComparedMeanUlp = kComparedUnequal + 2,
  kComparedUlpShare,
  kUlpShareRatio,
  kUlpVerdict,
  kComparedThousandth,
  kThousandthVerdict,
  kComparedVerdict,
  kAlgorithm,
  kComparedMessage,
  kComparedColumns,
};
inline constexpr std::array<std::string_view, kComparedColumns> kComparedTitles = {
    "API Name",
    "小值域错误比值",
    "小值域判定结果",
    "均方根误差比值",
    "均方根误差判定结果",
    "相对误差最大值比值",
    "相对误差最大值判定结果",
    "相对误差平均值比值",
    "相对误差平均值判定结果",
    "误差均衡性比值",
    "误差均衡性判定结果",
    "inf/nan错误率",
    "inf/nan判定结果",
    "相对误差错误率",
    "相对误差判定结果",
    "绝对误差错误率",
    "绝对误差判定结果",
    "二进制一致错误率",
    "二进制一致错误率判定结果",
    "ULP误差平均值",
    "ULP误差大于阈值占比",
    "ULP误差大于阈值占比比值",
    "ULP误差判定结果",
    "双千指标",
    "双千指标判定结果",
    "比对结果",
    "比对算法",
    "Message"};
using ComparedRow = std::array<std::string, kComparedColumns>;

// A verdict, as the files spell it. kBlank: there was nothing to judge.
enum class Verdict { kBlank, kPass, kWarning, kError, kSkip };
inline constexpr std::array<std::string_view, 5> kVerdictNames = {" ", "pass", "warning", "error",
                                                                  "SKIP"};
constexpr std::string_view VerdictName(Verdict v) { return kVerdictNames[static_cast<size_t>(v)]; }

}  // namespace msprobe::accuracy
