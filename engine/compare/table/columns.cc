#include "engine/compare/table/columns.h"

#include <algorithm>

namespace msprobe::compare {
namespace {

using Id = ColumnId;

constexpr Column kIdentity[] = {
    {Id::kTargetName, "NPU Name", false},
    {Id::kGoldenName, "Bench Name", false},
    {Id::kTargetDtype, "NPU Dtype", false},
    {Id::kGoldenDtype, "Bench Dtype", false},
    {Id::kTargetShape, "NPU Tensor Shape", false},
    {Id::kGoldenShape, "Bench Tensor Shape", false},
    {Id::kTargetRequiresGrad, "NPU Requires_grad", false},
    {Id::kGoldenRequiresGrad, "Bench Requires_grad", false},
};
// The tables of torch_npu.hooks and ptdbg_ascend begin with these.
constexpr Column kPklIdentity[] = {
    {Id::kTargetName, "NPU Name", false},          {Id::kGoldenName, "Bench Name", false},
    {Id::kTargetDtype, "NPU Tensor Dtype", false}, {Id::kGoldenDtype, "Bench Tensor Dtype", false},
    {Id::kTargetShape, "NPU Tensor Shape", false}, {Id::kGoldenShape, "Bench Tensor Shape", false},
};
constexpr Column kHooksMetrics[] = {
    {Id::kCosine, "Cosine", false},
    {Id::kRmse, "RMSE", false},
    {Id::kMape, "MAPE", false},
};
constexpr Column kTensorMetrics[] = {
    {Id::kCosine, "Cosine", false},
    {Id::kEuclidean, "EucDist", false},
    {Id::kMaxAbsError, "MaxAbsErr", false},
    {Id::kMaxRelativeError, "MaxRelativeErr", false},
    {Id::kOneThousandth, "One Thousandth Err Ratio", false},
    {Id::kFiveThousandths, "Five Thousandths Err Ratio", false},
};
constexpr Column kStatisticsMetrics[] = {
    {Id::kMaxDiff, "Max diff", false},        {Id::kMinDiff, "Min diff", false},
    {Id::kMeanDiff, "Mean diff", false},      {Id::kNormDiff, "L2norm diff", false},
    {Id::kMaxRel, "MaxRelativeErr", false},   {Id::kMinRel, "MinRelativeErr", false},
    {Id::kMeanRel, "MeanRelativeErr", false}, {Id::kNormRel, "NormRelativeErr", false},
};
constexpr Column kStatistics[] = {
    {Id::kTargetMax, "NPU max", false},     {Id::kTargetMin, "NPU min", false},
    {Id::kTargetMean, "NPU mean", false},   {Id::kTargetNorm, "NPU l2norm", false},
    {Id::kGoldenMax, "Bench max", false},   {Id::kGoldenMin, "Bench min", false},
    {Id::kGoldenMean, "Bench mean", false}, {Id::kGoldenNorm, "Bench l2norm", false},
};
constexpr Column kChecksums[] = {
    {Id::kTargetChecksum, "NPU MD5", false},
    {Id::kGoldenChecksum, "BENCH MD5", false},
};
constexpr Column kVerdict26[] = {
    {Id::kRequiresGradConsistent, "Requires_grad Consistent", false},
    {Id::kResult, "Result", false},
    {Id::kErrMessage, "Err_message", false},
};
constexpr Column kOurVerdict[] = {
    {Id::kClass, "Class", true},
    {Id::kVerdict, "Verdict", true},
    {Id::kMatch, "Match", true},
    {Id::kConfidence, "Confidence", true},
    {Id::kSeverity, "Severity", true},
    {Id::kReason, "Reason", true},
    {Id::kTargetNan, "NPU NaN", true},
    {Id::kTargetPosInf, "NPU +Inf", true},
    {Id::kTargetNegInf, "NPU -Inf", true},
    {Id::kGoldenNan, "Bench NaN", true},
    {Id::kGoldenPosInf, "Bench +Inf", true},
    {Id::kGoldenNegInf, "Bench -Inf", true},
};
constexpr Column kOurTensorMetrics[] = {
    {Id::kRmse, "RMSE", true},
    {Id::kMape, "MAPE", true},
    {Id::kRelativeL2, "Relative L2", true},
    {Id::kMaxUlp, "Max ULP", true},
    {Id::kNonFiniteMatched, "Matched Non-finite", true},
    {Id::kNonFiniteMismatch, "Mismatched Non-finite", true},
    {Id::kFirstPosition, "First Position", true},
    {Id::kWorstPosition, "Worst Position", true},
    {Id::kWorstTarget, "NPU at Worst", true},
    {Id::kWorstGolden, "Bench at Worst", true},
};

template <size_t kSize>
void Append(std::vector<Column>* columns, const Column (&more)[kSize]) {
  columns->insert(columns->end(), more, more + kSize);
}

bool HasStatistics(const Dump& dump) {
  return std::any_of(dump.leaves.begin(), dump.leaves.end(),
                     [](const Leaf& leaf) { return leaf.has_stats; });
}

void AppendErrors(const Comparison& c, Generation generation, std::vector<Column>* columns) {
  if (generation == Generation::kPtdbg && c.mode != Mode::kTensor) {
    if (c.mode == Mode::kStatistics)
      columns->insert(columns->end(), kStatisticsMetrics, kStatisticsMetrics + 4);
    return;
  }
  for (const Column& column : kTensorMetrics) {
    if (column.id == Id::kEuclidean) continue;
    const bool ratio = column.id == Id::kOneThousandth || column.id == Id::kFiveThousandths;
    if (ratio && generation == Generation::kPtdbgFirst) continue;
    columns->push_back(column);
    if (column.id == Id::kCosine && generation == Generation::kPtdbgFirst)
      columns->insert(columns->end(), kHooksMetrics + 1, kHooksMetrics + 3);
  }
}

std::vector<Column> PklTableColumns(const Comparison& c, const TableOptions& options) {
  std::vector<Column> columns;
  Append(&columns, kPklIdentity);
  if (options.generation == Generation::kHooks) {
    Append(&columns, kHooksMetrics);
    return columns;
  }
  AppendErrors(c, options.generation, &columns);
  if (options.generation == Generation::kPtdbgFirst) {
    if (HasStatistics(c.target)) columns.insert(columns.end(), kStatistics, kStatistics + 3);
    if (HasStatistics(c.golden)) columns.insert(columns.end(), kStatistics + 4, kStatistics + 7);
    columns.push_back(kVerdict26[2]);
    return columns;
  }
  c.mode == Mode::kChecksum ? Append(&columns, kChecksums) : Append(&columns, kStatistics);
  columns.push_back(
      {Id::kResult, c.mode == Mode::kTensor ? "Accuracy Reached or Not" : "Result", false});
  if (c.mode != Mode::kChecksum) columns.push_back(kVerdict26[2]);
  if (options.stacks && !c.target.stacks.empty())
    columns.push_back({Id::kStack, "NPU_Stack_Info", false});
  return columns;
}

std::vector<Column> GenerationColumns(const Comparison& c, const TableOptions& options) {
  if (IsPklTable(options.generation)) return PklTableColumns(c, options);
  const bool first = options.generation <= Generation::k1_2;
  std::vector<Column> columns;
  Append(&columns, kIdentity);
  if (first) columns.resize(columns.size() - 2);  // without requires_grad
  if (c.mode == Mode::kTensor) {
    Append(&columns, kTensorMetrics);
    if (first) std::erase_if(columns, [](const Column& x) { return x.id == Id::kEuclidean; });
  }
  if (c.mode == Mode::kStatistics) Append(&columns, kStatisticsMetrics);
  if (c.mode == Mode::kChecksum) {
    Append(&columns, kChecksums);
  } else {
    Append(&columns, kStatistics);
  }
  if (!first) columns.push_back(kVerdict26[0]);
  columns.push_back(
      {Id::kResult, c.mode == Mode::kTensor ? "Accuracy Reached or Not" : "Result", false});
  if (c.mode != Mode::kChecksum) columns.push_back(kVerdict26[2]);
  if (options.stacks && !c.target.stacks.empty()) {
    columns.push_back({Id::kStack, "NPU_Stack_Info", false});
  }
  if (c.mode == Mode::kTensor) columns.push_back({Id::kDataName, "Data_name", false});
  return columns;
}

std::vector<Column> Columns26(const Comparison& c, const TableOptions& options) {
  std::vector<Column> columns;
  Append(&columns, kIdentity);
  if (c.mode == Mode::kTensor) Append(&columns, kTensorMetrics);
  if (c.mode == Mode::kStatistics) Append(&columns, kStatisticsMetrics);
  if (c.mode != Mode::kChecksum) Append(&columns, kStatistics);
  if (c.mode == Mode::kChecksum) Append(&columns, kChecksums);
  Append(&columns, kVerdict26);
  if (options.stacks && !c.target.stacks.empty()) {
    columns.push_back({Id::kStack, "NPU_Stack_Info", false});
  }
  if (c.mode == Mode::kTensor) columns.push_back({Id::kDataName, "Data_name", false});
  return columns;
}

}  // namespace

std::vector<Column> ColumnsOf(const Comparison& c, const TableOptions& options) {
  std::vector<Column> columns =
      options.generation == Generation::k26 ? Columns26(c, options) : GenerationColumns(c, options);
  Append(&columns, kOurVerdict);
  if (c.mode == Mode::kTensor) Append(&columns, kOurTensorMetrics);
  if (!c.target.stacks.empty() || !c.golden.stacks.empty()) {
    columns.push_back({Id::kSourceLine, "Source Line", true});
  }
  // RMSE and MAPE are columns of torch_npu.hooks and ptdbg_ascend 0.1, and ours: each is shown
  // once.
  std::vector<Column> once;
  for (const Column& column : columns) {
    const auto same = [&](const Column& other) { return other.id == column.id; };
    if (std::none_of(once.begin(), once.end(), same)) once.push_back(column);
  }
  return once;
}

}  // namespace msprobe::compare
