#include "engine/compare/table/columns.h"

#include <algorithm>
#include <functional>

#include "engine/compare/table/generation_cells.h"

namespace msprobe::compare {
namespace {

using C = GenerationCells;
using G = Generation;
using kernels::Diff;
constexpr Side kTarget = Side::kTarget, kGolden = Side::kGolden;

// A cell that the method writes with these arguments.
template <auto kMethod, auto... kArguments>
CellKind Cell(C& cells) {
  return std::invoke(kMethod, cells, kArguments...);
}

// Where a column is shown.
using Shown = bool (*)(const Comparison&, const TableOptions&);
bool Always(const Comparison&, const TableOptions&) { return true; }
bool InTensors(const Comparison& c, const TableOptions&) { return c.mode == Mode::kTensor; }
bool InStatistics(const Comparison& c, const TableOptions&) { return c.mode == Mode::kStatistics; }
bool InChecksums(const Comparison& c, const TableOptions&) { return c.mode == Mode::kChecksum; }
bool NotInTensors(const Comparison& c, const TableOptions&) { return c.mode != Mode::kTensor; }
bool NotInChecksums(const Comparison& c, const TableOptions&) { return c.mode != Mode::kChecksum; }
bool WithStack(const Comparison& c, const TableOptions& options) {
  return options.stacks && !c.target.stacks.empty();
}
bool WithSource(const Comparison& c, const TableOptions&) {
  return !c.target.stacks.empty() || !c.golden.stacks.empty();
}
template <Dump Comparison::*kDump>
bool Measured(const Comparison& c, const TableOptions&) {
  return std::any_of((c.*kDump).leaves.begin(), (c.*kDump).leaves.end(),
                     [](const Leaf& leaf) { return leaf.has_stats; });
}

struct Generations {
  Generation first, last;
};
constexpr Generations kAll{G::kHooks, G::k26}, kPkl{G::kHooks, G::kPtdbg},
    kFirsts{G::kHooks, G::kPtdbgFirst}, kFirst{G::kPtdbgFirst, G::kPtdbgFirst},
    kFromPtdbg{G::kPtdbg, G::k26}, kPtdbgTo8{G::kPtdbg, G::k8}, kFrom1{G::k1, G::k26},
    kFrom8{G::k8, G::k26}, k26{G::k26, G::k26};

struct Definition {
  std::string_view name;
  Generations in;
  Shown shown;
  CellWriter write;
  // Of torch_npu.hooks and ptdbg_ascend, and of msprobe 1.0 to 8, where they spell cells in another
  // way; null: as `write`.
  CellWriter pkl = nullptr, msprobe8 = nullptr;
};

// In the order of the tables. A column that generations call by different names, or show in
// different cases, has several rows.
constexpr Definition kRows[] = {
    {"NPU Name", kAll, Always, Cell<&C::Name, kTarget>, Cell<&C::OrNanPkl, &C::Name, kTarget>,
     Cell<&C::Name8, kTarget>},
    {"Bench Name", kAll, Always, Cell<&C::Name, kGolden>, Cell<&C::OrNanPkl, &C::Name, kGolden>,
     Cell<&C::Name8, kGolden>},
    {"NPU Tensor Dtype", kPkl, Always, Cell<&C::OrNanPkl, &C::Dtype, kTarget>},
    {"Bench Tensor Dtype", kPkl, Always, Cell<&C::OrNanPkl, &C::Dtype, kGolden>},
    {"NPU Dtype", kFrom1, Always, Cell<&C::Dtype, kTarget>, nullptr,
     Cell<&C::OrNone8, &C::Dtype, kTarget>},
    {"Bench Dtype", kFrom1, Always, Cell<&C::Dtype, kGolden>, nullptr,
     Cell<&C::OrNone8, &C::Dtype, kGolden>},
    {"NPU Tensor Shape", kAll, Always, Cell<&C::ShapeText, kTarget>,
     Cell<&C::OrNanPkl, &C::ShapeText, kTarget>, Cell<&C::OrNone8, &C::ShapeText, kTarget>},
    {"Bench Tensor Shape", kAll, Always, Cell<&C::ShapeText, kGolden>,
     Cell<&C::OrNanPkl, &C::ShapeText, kGolden>, Cell<&C::OrNone8, &C::ShapeText, kGolden>},
    {"NPU Requires_grad", kFrom8, Always, Cell<&C::RequiresGrad, kTarget>},
    {"Bench Requires_grad", kFrom8, Always, Cell<&C::RequiresGrad, kGolden>},
    // The first two generations compare elements only.
    {"Cosine", kFirsts, Always, Cell<&C::MetricPkl, &Diff::cosine>},
    {"RMSE", kFirsts, Always, Cell<&C::MetricPkl, &Diff::rmse>},
    {"MAPE", kFirsts, Always, Cell<&C::MetricPkl, &Diff::mape>},
    {"MaxAbsErr", kFirst, Always, Cell<&C::MetricPkl, &Diff::max_abs_error>},
    {"MaxRelativeErr", kFirst, Always, Cell<&C::MetricPkl, &Diff::max_rel_error>},
    {"Cosine", kFromPtdbg, InTensors, Cell<&C::Metric, &Diff::cosine>,
     Cell<&C::MetricPkl, &Diff::cosine>, Cell<&C::Metric8, &Diff::cosine>},
    {"EucDist", kFrom8, InTensors, Cell<&C::Metric, &Diff::euclidean>, nullptr,
     Cell<&C::Metric8, &Diff::euclidean>},
    {"MaxAbsErr", kFromPtdbg, InTensors, Cell<&C::Metric, &Diff::max_abs_error>,
     Cell<&C::MetricPkl, &Diff::max_abs_error>, Cell<&C::Metric8, &Diff::max_abs_error>},
    {"MaxRelativeErr", kFromPtdbg, InTensors, Cell<&C::Metric, &Diff::max_rel_error>,
     Cell<&C::MetricPkl, &Diff::max_rel_error>, Cell<&C::Metric8, &Diff::max_rel_error>},
    {"One Thousandth Err Ratio", kFromPtdbg, InTensors, Cell<&C::Metric, &Diff::ratio_within_1e3>,
     Cell<&C::MetricPkl, &Diff::ratio_within_1e3>, Cell<&C::Metric8, &Diff::ratio_within_1e3>},
    {"Five Thousandths Err Ratio", kFromPtdbg, InTensors, Cell<&C::Metric, &Diff::ratio_within_5e3>,
     Cell<&C::MetricPkl, &Diff::ratio_within_5e3>, Cell<&C::Metric8, &Diff::ratio_within_5e3>},
    {"Max diff", kFromPtdbg, InStatistics, Cell<&C::Difference, 0>, Cell<&C::DifferencePkl, 0>,
     Cell<&C::Difference8, 0>},
    {"Min diff", kFromPtdbg, InStatistics, Cell<&C::Difference, 1>, Cell<&C::DifferencePkl, 1>,
     Cell<&C::Difference8, 1>},
    {"Mean diff", kFromPtdbg, InStatistics, Cell<&C::Difference, 2>, Cell<&C::DifferencePkl, 2>,
     Cell<&C::Difference8, 2>},
    {"L2norm diff", kFromPtdbg, InStatistics, Cell<&C::Difference, 3>, Cell<&C::DifferencePkl, 3>,
     Cell<&C::Difference8, 3>},
    {"MaxRelativeErr", kFrom1, InStatistics, Cell<&C::Relative, 0>, nullptr,
     Cell<&C::Relative8, 0>},
    {"MinRelativeErr", kFrom1, InStatistics, Cell<&C::Relative, 1>, nullptr,
     Cell<&C::Relative8, 1>},
    {"MeanRelativeErr", kFrom1, InStatistics, Cell<&C::Relative, 2>, nullptr,
     Cell<&C::Relative8, 2>},
    {"NormRelativeErr", kFrom1, InStatistics, Cell<&C::Relative, 3>, nullptr,
     Cell<&C::Relative8, 3>},
    {"NPU max", kFirst, Measured<&Comparison::target>, Cell<&C::StatisticPkl, kTarget, 0>},
    {"NPU min", kFirst, Measured<&Comparison::target>, Cell<&C::StatisticPkl, kTarget, 1>},
    {"NPU mean", kFirst, Measured<&Comparison::target>, Cell<&C::StatisticPkl, kTarget, 2>},
    {"Bench max", kFirst, Measured<&Comparison::golden>, Cell<&C::StatisticPkl, kGolden, 0>},
    {"Bench min", kFirst, Measured<&Comparison::golden>, Cell<&C::StatisticPkl, kGolden, 1>},
    {"Bench mean", kFirst, Measured<&Comparison::golden>, Cell<&C::StatisticPkl, kGolden, 2>},
    {"NPU max", kFromPtdbg, NotInChecksums, Cell<&C::Statistic, kTarget, 0>,
     Cell<&C::StatisticPkl, kTarget, 0>, Cell<&C::Statistic8, kTarget, 0>},
    {"NPU min", kFromPtdbg, NotInChecksums, Cell<&C::Statistic, kTarget, 1>,
     Cell<&C::StatisticPkl, kTarget, 1>, Cell<&C::Statistic8, kTarget, 1>},
    {"NPU mean", kFromPtdbg, NotInChecksums, Cell<&C::Statistic, kTarget, 2>,
     Cell<&C::StatisticPkl, kTarget, 2>, Cell<&C::Statistic8, kTarget, 2>},
    {"NPU l2norm", kFromPtdbg, NotInChecksums, Cell<&C::Statistic, kTarget, 3>,
     Cell<&C::StatisticPkl, kTarget, 3>, Cell<&C::Statistic8, kTarget, 3>},
    {"Bench max", kFromPtdbg, NotInChecksums, Cell<&C::Statistic, kGolden, 0>,
     Cell<&C::StatisticPkl, kGolden, 0>, Cell<&C::Statistic8, kGolden, 0>},
    {"Bench min", kFromPtdbg, NotInChecksums, Cell<&C::Statistic, kGolden, 1>,
     Cell<&C::StatisticPkl, kGolden, 1>, Cell<&C::Statistic8, kGolden, 1>},
    {"Bench mean", kFromPtdbg, NotInChecksums, Cell<&C::Statistic, kGolden, 2>,
     Cell<&C::StatisticPkl, kGolden, 2>, Cell<&C::Statistic8, kGolden, 2>},
    {"Bench l2norm", kFromPtdbg, NotInChecksums, Cell<&C::Statistic, kGolden, 3>,
     Cell<&C::StatisticPkl, kGolden, 3>, Cell<&C::Statistic8, kGolden, 3>},
    {"NPU MD5", kFromPtdbg, InChecksums, Cell<&C::Checksum, kTarget>,
     Cell<&C::OrNanPkl, &C::Checksum, kTarget>, Cell<&C::Checksum8, kTarget>},
    {"BENCH MD5", kFromPtdbg, InChecksums, Cell<&C::Checksum, kGolden>,
     Cell<&C::OrNanPkl, &C::Checksum, kGolden>, Cell<&C::Checksum8, kGolden>},
    {"Requires_grad Consistent", kFrom8, Always, Cell<&C::RequiresGradConsistent>},
    {"Accuracy Reached or Not", kPtdbgTo8, InTensors, Cell<&C::Word8>, Cell<&C::WordPkl>},
    {"Result", kPtdbgTo8, NotInTensors, Cell<&C::Word8>, Cell<&C::WordPkl>},
    {"Result", k26, Always, Cell<&C::Result>},
    {"Err_message", kFirst, Always, Cell<&C::MessageOfGeneration>},
    {"Err_message", kPtdbgTo8, NotInChecksums, Cell<&C::MessageOfGeneration>},
    {"Err_message", k26, Always, Cell<&C::ErrMessage>},
    {"NPU_Stack_Info", kFromPtdbg, WithStack, Cell<&C::Stack>},
    {"Data_name", kFrom1, InTensors, Cell<&C::DataName>, nullptr, Cell<&C::DataName8>},
};

// Ours, which follow in the tables of all generations.
constexpr Definition kOurRows[] = {
    {"Class", kAll, Always, Cell<&C::Class>},
    {"Verdict", kAll, Always, Cell<&C::VerdictOfRow>},
    {"Match", kAll, Always, Cell<&C::MatchOfRow>},
    {"Confidence", kAll, Always, Cell<&C::Confidence>},
    {"Severity", kAll, Always, Cell<&C::Severity>},
    {"Reason", kAll, Always, Cell<&C::ReasonOfRow>},
    {"NPU NaN", kAll, Always, Cell<&C::Elements, kTarget, &ElementCounts::nan>},
    {"NPU +Inf", kAll, Always, Cell<&C::Elements, kTarget, &ElementCounts::pos_inf>},
    {"NPU -Inf", kAll, Always, Cell<&C::Elements, kTarget, &ElementCounts::neg_inf>},
    {"Bench NaN", kAll, Always, Cell<&C::Elements, kGolden, &ElementCounts::nan>},
    {"Bench +Inf", kAll, Always, Cell<&C::Elements, kGolden, &ElementCounts::pos_inf>},
    {"Bench -Inf", kAll, Always, Cell<&C::Elements, kGolden, &ElementCounts::neg_inf>},
    {"RMSE", kFromPtdbg, InTensors, Cell<&C::OurMetric, &Diff::rmse>},
    {"MAPE", kFromPtdbg, InTensors, Cell<&C::OurMetric, &Diff::mape>},
    {"Relative L2", kAll, InTensors, Cell<&C::OurMetric, &Diff::relative_l2>},
    {"Max ULP", kAll, InTensors, Cell<&C::OurCount, &Diff::max_ulp>},
    {"Matched Non-finite", kAll, InTensors, Cell<&C::OurCount, &Diff::nonfinite_matched>},
    {"Mismatched Non-finite", kAll, InTensors, Cell<&C::OurCount, &Diff::nonfinite_mismatch>},
    {"First Position", kAll, InTensors, Cell<&C::Position, &Diff::first_index>},
    {"Worst Position", kAll, InTensors, Cell<&C::Position, &Diff::worst_index>},
    {"NPU at Worst", kAll, InTensors, Cell<&C::WorstValue, &Diff::worst_target>},
    {"Bench at Worst", kAll, InTensors, Cell<&C::WorstValue, &Diff::worst_golden>},
    {"Source Line", kAll, WithSource, Cell<&C::SourceLine>},
};

}  // namespace

std::vector<Column> ColumnsOf(const Comparison& c, const TableOptions& options) {
  std::vector<Column> columns;
  const Generation generation = options.generation;
  const auto append = [&](const Definition& row, bool ours) {
    if (generation < row.in.first || generation > row.in.last || !row.shown(c, options)) return;
    const CellWriter other = IsPklTable(generation) ? row.pkl
                             : generation != G::k26 ? row.msprobe8
                                                    : nullptr;
    columns.push_back({row.name, ours, other ? other : row.write});
  };
  for (const Definition& row : kRows) append(row, false);
  for (const Definition& row : kOurRows) append(row, true);
  return columns;
}

}  // namespace msprobe::compare
