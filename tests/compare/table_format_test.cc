#include "engine/compare/table/table_format.h"

#include <gmock/gmock.h>

#include <map>
#include <string>

#include "engine/compare/model/value_text.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::kInf;
using test::kNaN;
using test::MustCompare;
using test::Numbers;
using test::OneOutput;
using test::Tensor;
using ::testing::ElementsAre;

std::vector<std::string> OldNames(const TableFormat& format) {
  std::vector<std::string> names;
  for (const Column& c : format.columns()) {
    if (!c.ours) names.emplace_back(c.name);
  }
  return names;
}

// Row `i` as column name -> text.
std::map<std::string, std::string> RowOf(const TableFormat& format, size_t i) {
  TableRow row;
  format.Fill(i, &row);
  std::map<std::string, std::string> out;
  for (size_t c = 0; c < row.cells.size(); ++c) {
    out[std::string(format.columns()[c].name)] = row.TextOf(row.cells[c]);
  }
  return out;
}

// One call whose output is `target` on one side and `golden` on the other.
Comparison Outputs(const Tensor& target, const Tensor& golden) {
  return MustCompare(OneOutput(target), OneOutput(golden));
}

TEST(TableFormat, StatisticsColumnsAreTheOldOnesInOrder) {
  DumpBuilder t, g;
  t.Call("Torch.f.0.forward").Out(Numbers(1, 0, 1, 1)).At("train.py", 3, "y = f(x)");
  g.Call("Torch.f.0.forward").Out(Numbers(1, 0, 1, 1));
  const Comparison c = MustCompare(t.Take(), g.Take());
  EXPECT_THAT(
      OldNames(TableFormat(c)),
      ElementsAre("NPU Name", "Bench Name", "NPU Dtype", "Bench Dtype", "NPU Tensor Shape",
                  "Bench Tensor Shape", "NPU Requires_grad", "Bench Requires_grad", "Max diff",
                  "Min diff", "Mean diff", "L2norm diff", "MaxRelativeErr", "MinRelativeErr",
                  "MeanRelativeErr", "NormRelativeErr", "NPU max", "NPU min", "NPU mean",
                  "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm",
                  "Requires_grad Consistent", "Result", "Err_message", "NPU_Stack_Info"));
}

TEST(TableFormat, OldColumnsComeBeforeOurs) {
  const Comparison c = Outputs(Numbers(1, 0, 1, 1), Numbers(1, 0, 1, 1));
  const TableFormat format(c);
  bool ours = false;
  for (const Column& column : format.columns()) {
    EXPECT_TRUE(column.ours || !ours) << column.name;
    ours = ours || column.ours;
  }
  EXPECT_TRUE(ours);
}

TEST(TableFormat, NoStackColumnWithoutStacks) {
  const Comparison c = Outputs(Numbers(1, 0, 1, 1), Numbers(1, 0, 1, 1));
  EXPECT_THAT(OldNames(TableFormat(c)), ::testing::Not(::testing::Contains("NPU_Stack_Info")));
}

TEST(TableFormat, NumbersAreDifferencesAndPercent) {
  const Comparison c = Outputs(Numbers(3, -1, 0, 3), Numbers(2, -1, 0.5, 2));
  auto row = RowOf(TableFormat(c), 0);
  EXPECT_EQ(row["Max diff"], "1.0");
  EXPECT_EQ(row["MaxRelativeErr"], "50.0%");
  EXPECT_EQ(row["Min diff"], "0") << "the same text";
  EXPECT_EQ(row["MinRelativeErr"], "0");
  EXPECT_EQ(row["Mean diff"], "-0.5");
  EXPECT_EQ(row["MeanRelativeErr"], "100.0%");
  EXPECT_EQ(row["NPU max"], "3.0");
}

TEST(TableFormat, GoldenZeroHasNoRelativeError) {
  const Comparison c = Outputs(Numbers(1, -0.0, 0, 1), Numbers(0, 0, 0, 1));
  auto row = RowOf(TableFormat(c), 0);
  EXPECT_EQ(row["MaxRelativeErr"], "inf");
  EXPECT_EQ(row["MinRelativeErr"], "0.0%") << "-0 is 0";
}

TEST(TableFormat, NonFiniteCells) {
  const Comparison c = Outputs(Numbers(kNaN, -kInf, kInf, kInf), Numbers(1, -1, -kInf, kInf));
  auto row = RowOf(TableFormat(c), 0);
  EXPECT_EQ(row["NPU max"], "Nan");
  EXPECT_EQ(row["Max diff"], "Nan");
  EXPECT_EQ(row["MaxRelativeErr"], "Nan");
  EXPECT_EQ(row["NPU min"], " -inf");
  EXPECT_EQ(row["Min diff"], "-inf");
  EXPECT_EQ(row["Mean diff"], "inf");
  EXPECT_EQ(row["NPU l2norm"], " inf");
  EXPECT_EQ(row["L2norm diff"], "0") << "the same infinity";
}

TEST(TableFormat, NaNNeverEqualsNaN) {
  const Comparison c = Outputs(Numbers(kNaN, kNaN, kNaN, kNaN), Numbers(kNaN, kNaN, kNaN, kNaN));
  auto row = RowOf(TableFormat(c), 0);
  EXPECT_EQ(row["Max diff"], "Nan");
  EXPECT_EQ(row["Result"], "unknown");
  EXPECT_NE(row["Err_message"].find("NaN on both sides"), std::string::npos) << row["Err_message"];
}

TEST(TableFormat, RowsWithoutPartnerShowTheirSideAndAreNoPass) {
  DumpBuilder t, g;
  t.Call("Torch.f.0.forward")
      .In(Numbers(1, 0, 1, 1))
      .In(Numbers(5, 0, 1, 1))
      .Out(Numbers(1, 0, 1, 1));
  g.Call("Torch.f.0.forward").In(Numbers(1, 0, 1, 1)).Out(Numbers(1, 0, 1, 1));
  g.Call("Torch.norm.0.forward").Out(Numbers(7, 0, 1, 1));
  const Comparison c = MustCompare(t.Take(), g.Take());
  const TableFormat format(c);
  std::map<std::string, std::string> target_only, golden_only;
  for (size_t i = 0; i < format.rows(); ++i) {
    auto row = RowOf(format, i);
    if (row["Bench Name"] == "N/A") target_only = row;
    if (row["NPU Name"] == "N/A") golden_only = row;
  }
  EXPECT_EQ(target_only["NPU Name"], "Torch.f.0.forward.input.1");
  EXPECT_EQ(target_only["NPU max"], "5.0");
  EXPECT_EQ(target_only["Max diff"], "N/A");
  EXPECT_EQ(target_only["Result"], "unmatched");
  EXPECT_EQ(golden_only["Bench Name"], "Torch.norm.0.forward.output.0");
  EXPECT_EQ(golden_only["Bench max"], "7.0");
  EXPECT_EQ(golden_only["NPU max"], "N/A");
  EXPECT_EQ(golden_only["Result"], "unmatched");
  EXPECT_EQ(golden_only["Match"], "golden only");
}

TEST(TableFormat, StackStandsOnTheFirstRowOfACall) {
  DumpBuilder t, g;
  t.Call("Torch.f.0.forward")
      .In(Numbers(1, 0, 1, 1))
      .Out(Numbers(1, 0, 1, 1))
      .At("it's.py", 3, "y = f(\"x\")");
  g.Call("Torch.f.0.forward").In(Numbers(1, 0, 1, 1)).Out(Numbers(1, 0, 1, 1));
  const Comparison c = MustCompare(t.Take(), g.Take());
  const TableFormat format(c);
  EXPECT_EQ(RowOf(format, 0)["NPU_Stack_Info"],
            R"(['File it\'s.py, line 3, in forward, \n y = f("x")'])");
  EXPECT_EQ(RowOf(format, 1)["NPU_Stack_Info"], "N/A");
  EXPECT_EQ(RowOf(format, 1)["Source Line"], "it's.py:3 in forward: y = f(\"x\")");
}

TEST(TableFormat, TextFromADumpIsMarkedAsText) {
  DumpBuilder t, g;
  t.Call("Torch.f.0.forward").Value("s", "str", "=1+1");
  t.last().max = "=1+1";
  g.Call("Torch.f.0.forward").Value("s", "str", "-1");
  g.last().max = "-1";
  const Comparison c = MustCompare(t.Take(), g.Take());
  const TableFormat format(c);
  TableRow row;
  format.Fill(0, &row);
  for (size_t i = 0; i < row.cells.size(); ++i) {
    const Column& column = format.columns()[i];
    if (column.name == "NPU Name" || column.name == "NPU max") {
      EXPECT_EQ(row.cells[i].kind, CellKind::kText) << column.name;
    }
  }
}

TEST(ValueText, PythonLists) {
  const auto list = [](std::vector<std::string_view> items) {
    std::string out;
    AppendPythonList(&out, items);
    return out;
  };
  EXPECT_EQ(list({}), "[]");
  EXPECT_EQ(list({"a", "b"}), "['a', 'b']");
  EXPECT_EQ(list({"it's"}), "[\"it's\"]");
  EXPECT_EQ(list({"it's \"q\""}), R"(['it\'s "q"'])");
  EXPECT_EQ(list({"a\n\t\\\x01"}), R"(['a\n\t\\\x01'])");
}

TEST(ValueText, RoundsAsPythonDoes) {
  const auto rounded = [](double v, int decimals) {
    std::string out;
    AppendPythonFloat(&out, Rounded(v, decimals));
    return out;
  };
  EXPECT_EQ(rounded(0.123456789012345, 12), "0.123456789012");
  EXPECT_EQ(rounded(0.99990349, 6), "0.999903");
  EXPECT_EQ(rounded(1, 12), "1.0");
  EXPECT_EQ(rounded(1e300, 12), "1e+300");
  EXPECT_EQ(rounded(3e-13, 12), "0.0");
}

}  // namespace
}  // namespace msprobe::compare
