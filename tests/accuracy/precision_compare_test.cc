#include "engine/accuracy/precision_compare.h"

#include <gmock/gmock.h>

#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/formats/tables/table_file.h"

namespace msprobe::accuracy {
namespace {

using testing::HasSubstr;
using Rows = std::vector<std::vector<std::string>>;

std::string Data(const std::string& name) { return MSPROBE_TEST_DATA "/accuracy/" + name; }

Rows RowsOf(std::string_view text) {
  Rows rows;
  EXPECT_TRUE(formats::ReadCsv(text, "table", [&](const formats::TableLine& line) {
                rows.emplace_back(line.cells.begin(), line.cells.end());
                return true;
              }).ok());
  return rows;
}

DetailsTable Table(const std::string& name) {
  Result<DetailsTable> table = DetailsTable::Read(Data(name));
  EXPECT_TRUE(table.ok()) << table.status().ToString();
  return std::move(*table);
}

PrecisionComparison Compare(Rules rules) {
  const DetailsTable npu = Table("npu_details.csv"), gpu = Table("gpu_details.csv");
  Result<PrecisionComparison> c = ComparePrecision(npu, gpu, {.rules = rules});
  EXPECT_TRUE(c.ok()) << c.status().ToString();
  return std::move(*c);
}

// Every cell of what the older tools wrote about the same two files. We add a row for each output
// that one side alone has, and say in words what 1.0 reports as an exception of Python.
class OlderTools : public testing::TestWithParam<std::pair<Rules, const char*>> {};
TEST_P(OlderTools, EqualCellByCell) {
  const auto [rules, name] = GetParam();
  const PrecisionComparison c = Compare(rules);
  const struct {
    std::string file;
    const CheckCsv& ours;
  } files[] = {{std::string("compared_details_") + name + ".csv", c.details},
               {std::string("compared_result_") + name + ".csv", c.result}};
  for (const auto& f : files) {
    const Result<MappedFile> file = MappedFile::Open(Data(f.file));
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(f.ours.text().starts_with("\xef\xbb\xbf"));
    Rows theirs = RowsOf(file->bytes()), ours;
    for (std::vector<std::string>& row : RowsOf(f.ours.text())) {
      if (!row.back().starts_with("not in the ")) ours.push_back(std::move(row));
    }
    for (std::vector<std::string>& row : theirs) {
      if (row.back().starts_with("cannot access local variable"))
        row.back() = "This data type does not support benchmark compare.";
    }
    ASSERT_EQ(ours.size(), theirs.size()) << f.file;
    for (size_t i = 0; i < ours.size(); ++i)
      EXPECT_EQ(ours[i], theirs[i]) << f.file << " row " << i + 1;
  }
}
INSTANTIATE_TEST_SUITE_P(All, OlderTools,
                         testing::Values(std::pair(Rules::k1, "1.0"), std::pair(Rules::k8, "8"),
                                         std::pair(Rules::k26, "26")));

const ComparedOutput& Output(const PrecisionComparison& c, std::string_view name) {
  for (const ComparedOutput& output : c.outputs) {
    if (output.name == name) return output;
  }
  ADD_FAILURE() << name;
  return c.outputs[0];
}

TEST(Ours, NoRowVanishes) {
  const PrecisionComparison c = Compare(Rules::kOurs);
  EXPECT_EQ(c.outputs.size(), Table("npu_details.csv").rows() + 1);
  EXPECT_EQ(c.only_npu, 1);
  EXPECT_EQ(c.only_gpu, 1);
  EXPECT_THAT(Output(c, "Torch.only_gpu.0.forward.output.0").message, HasSubstr("-npu"));
  EXPECT_THAT(Output(c, "Torch.only_npu.0.forward.output.0").message, HasSubstr("-gpu"));
  EXPECT_EQ(c.passes + c.warnings + c.errors + c.skips, static_cast<int64_t>(c.calls.size()));
}

TEST(Ours, Verdicts) {
  const PrecisionComparison c = Compare(Rules::kOurs);
  const auto expect = [&](std::string_view name, Verdict verdict, Standard standard) {
    const ComparedOutput& output = Output(c, name);
    EXPECT_EQ(VerdictName(output.verdict.verdict), VerdictName(verdict)) << name << output.message;
    EXPECT_EQ(AlgorithmName(output.verdict.standard), AlgorithmName(standard)) << name;
  };
  expect("Functional.relu.1.forward.output.0", Verdict::kError, Standard::kBinary);
  expect("Tensor.add.0.backward.output.0", Verdict::kError, Standard::kAbsolute);
  // An API of the absolute standard whose file has only the metrics of the benchmark standard.
  expect("Torch.mul.1.forward.output.0", Verdict::kPass, Standard::kBenchmark);
  expect("Functional.linear.0.backward.output.0", Verdict::kError, Standard::kUlp);
  expect("Functional.conv2d.1.forward.output.0", Verdict::kError, Standard::kThousandth);
  // The reference has no metrics: not 0, but nothing to compare with.
  expect("Torch.einsum.0.forward.output.0", Verdict::kSkip, Standard::kNone);
  EXPECT_THAT(Output(c, "Torch.einsum.0.forward.output.0").message, HasSubstr("reference's"));
  // The first check found another shape.
  expect("Torch.blank.0.forward.output.0", Verdict::kError, Standard::kNone);
  // After the reference's 1e-7 stand 1e-3: the floor of the older tools hides a part of that.
  EXPECT_GT(Output(c, "Functional.gelu.0.backward.output.0").verdict.worst_ratio, 9000);
}

constexpr std::string_view kHeader =
    "API Name,Bench Dtype,DEVICE Dtype,Shape,余弦相似度,最大绝对误差,双百指标,双千指标,双万指标,"
    "二进制一致错误率,误差均衡性,均方根误差,小值域错误占比,相对误差最大值,相对误差平均值,inf/"
    "nan错误率,相对误差错误率,绝对误差错误率,ULP误差最大值,ULP误差平均值,ULP误差大于阈值占比,"
    "Status,"
    "Message\r\n";
std::string BenchmarkRow(const std::string& name, const std::string& rmse, const std::string& mean,
                         const std::string& dtype = "torch.float32") {
  return name + ",torch.float64," + dtype + ",\"(2,)\", , , , , , ,0.0," + rmse + ",0," + mean +
         "," + mean + ", , , , , , ,pass,\r\n";
}
DetailsTable Parsed(const std::string& rows) {
  Result<DetailsTable> table = DetailsTable::Parse(std::string(kHeader) + rows, "details.csv");
  EXPECT_TRUE(table.ok()) << table.status().ToString();
  return std::move(*table);
}

// The RMSE is in the unit of the values, and the floor of its ratio follows their size.
TEST(Ours, SmallGradientsAreJudged) {
  const std::string name = "Torch.exp.0.backward.output.0";
  const DetailsTable npu = Parsed(BenchmarkRow(name, "1e-9", "1e-3"));
  const DetailsTable gpu = Parsed(BenchmarkRow(name, "1e-13", "1e-7"));
  const auto verdict = [&](Rules rules) {
    const Result<PrecisionComparison> c = ComparePrecision(npu, gpu, {.rules = rules});
    return c->outputs[0].verdict.verdict;
  };
  EXPECT_EQ(verdict(Rules::kOurs), Verdict::kError);
}

TEST(Ours, OneCallIsOneRow) {
  const std::string a = BenchmarkRow("Torch.exp.0.forward.output.0", "0", "0");
  const std::string b = BenchmarkRow("Torch.exp.1.forward.output.0", "0", "0");
  const std::string c = BenchmarkRow("Torch.exp.0.backward.output.0", "0", "0");
  const DetailsTable npu = Parsed(a + b + c);
  const Result<PrecisionComparison> compared = ComparePrecision(npu, Parsed(a + b + c));
  ASSERT_EQ(compared->calls.size(), 2u);
  EXPECT_EQ(compared->calls[0].backward, Verdict::kPass);
  EXPECT_EQ(compared->calls[1].backward, Verdict::kBlank);
}

// The reason of an error is an error: a warning with a larger ratio does not take its place.
TEST(Reason, OfTheWorstVerdict) {
  std::string titles, npu = "Functional.softmax.0.forward.output.0", gpu = npu;
  for (const std::string_view title : kDetailsTitles) titles += std::string(title) + ",";
  titles.back() = '\n';
  for (size_t c = kApiName + 1; c < kDetailsColumns; ++c) {
    const bool is_rmse = c == kRmse, is_largest = c == kMaxRelative;
    const bool is_metric = c >= kBalance && c <= kMeanRelative;
    npu += c == kDeviceDtype ? ",torch.float32"
           : is_rmse         ? ",3"
           : is_largest      ? ",9"
           : is_metric       ? ",1"
                             : ", ";
    gpu += c == kDeviceDtype ? ",torch.float32" : is_metric ? ",1" : ", ";
  }
  const Result<DetailsTable> a = DetailsTable::Parse(titles + npu + "\n", "a");
  const Result<DetailsTable> b = DetailsTable::Parse(titles + gpu + "\n", "b");
  ASSERT_TRUE(a.ok() && b.ok()) << a.status().ToString();
  const Result<PrecisionComparison> c = ComparePrecision(*a, *b, {.rules = Rules::k1});
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  EXPECT_EQ(c->outputs[0].verdict.verdict, Verdict::kError) << c->outputs[0].message;
  EXPECT_EQ(c->outputs[0].verdict.reason, "the RMSE is 3 times the reference's, limit 2");
}

TEST(Details, WrongFiles) {
  const std::string row = BenchmarkRow("Torch.exp.0.forward.output.0", "0", "0");
  const auto message = [](const std::string& text) {
    const Result<DetailsTable> table = DetailsTable::Parse(text, "d.csv");
    return table.ok() ? "no error" : table.status().message();
  };
  const std::string header(kHeader);
  EXPECT_THAT(message(header + row + row), HasSubstr("again in row 3"));
  EXPECT_THAT(message(header + row.substr(0, 40)), HasSubstr("23 cells in row 2"));
  EXPECT_THAT(message("API Name,Shape\na,b\n"), HasSubstr("a column DEVICE Dtype"));
  EXPECT_THAT(message(""), HasSubstr("found no row"));
  EXPECT_THAT(message(header + BenchmarkRow("a", "many", "0")),
              HasSubstr("a number in row 2, column 均方根误差"));
  EXPECT_THAT(message(header + "\"not closed,"), HasSubstr("closing quote"));
  EXPECT_EQ(message(header + BenchmarkRow("a", "inf", "nan")), "no error");
  const DetailsTable npu = Parsed(row);
  EXPECT_FALSE(ComparePrecision(npu, Parsed(BenchmarkRow("b", "0", "0"))).ok());
}

// Each error says what to type next: the file that was meant, if it is there.
TEST(Details, WrongFilesNameTheRightOne) {
  const std::string folder = testing::TempDir() + "/wrong_details";
  const std::string details = folder + "/accuracy_checking_details_7.csv";
  const std::string result = folder + "/accuracy_checking_result_7.csv";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFileAtomically(details, std::string(kHeader)).ok());
  ASSERT_TRUE(WriteFileAtomically(result, "API name,Forward Test Success\na,pass\n").ok());
  const auto hint = [](const std::string& path) {
    return DetailsTable::Read(path).status().hint();
  };
  EXPECT_EQ(hint(folder), "did you mean " + details + "?");
  EXPECT_EQ(hint(result), "did you mean " + details + "?");
  EXPECT_THAT(hint(folder + "/nosuch.csv"), HasSubstr("msprobe run_ut -api_info dump.json"));
  EXPECT_THAT(DetailsTable::Parse(std::string(kHeader) + "a,b", "d.csv").status().hint(),
              HasSubstr("msprobe run_ut"));
  EXPECT_NE(Standards::Read(folder + "/nosuch.yaml").status().hint(), "");
  EXPECT_NE(Standards::Read(result).status().hint(), "");
}

TEST(Names, OfOutputs) {
  const OutputName name = ParseOutputName("Torch.fft.rfft.0.backward.output.1");
  EXPECT_EQ(name.api, "fft.rfft");
  EXPECT_EQ(name.call, "Torch.fft.rfft.0");
  EXPECT_EQ(name.direction, "backward");
  EXPECT_EQ(ParseOutputName("Tensor.add.0.forward.output.0").api, "add");
  EXPECT_EQ(ParseOutputName("add.0.forward").call, "");
  EXPECT_EQ(ParseOutputName("a.b.c.d.e.0.forward.output.0").call, "");
}

TEST(Standards, GenerationsChoose) {
  const Standards& s = Standards::Shipped();
  const auto of = [&](Rules rules, const char* api, const char* dtype) {
    return s.OfResult(rules, api, dtype, false);
  };
  EXPECT_EQ(of(Rules::k1, "conv2d", "torch.int64"), Standard::kThousandth);
  EXPECT_EQ(of(Rules::k8, "conv2d", "torch.int64"), Standard::kBinary);
  EXPECT_EQ(of(Rules::k26, "conv2d", "torch.float32"), Standard::kBenchmark);
  EXPECT_EQ(of(Rules::k26, "matmul", "torch.float8_e4m3fn"), Standard::kUlp);
  EXPECT_EQ(of(Rules::k1, "histc", "torch.float32"), Standard::kBenchmark);
  EXPECT_EQ(of(Rules::k8, "histc", "torch.float32"), Standard::kBinary);
  EXPECT_EQ(of(Rules::kOurs, "transpose", "torch.float32"), Standard::kBinary);
  EXPECT_EQ(of(Rules::kOurs, "abs", "torch.float32"), Standard::kBinary);
  EXPECT_EQ(of(Rules::kOurs, "abs", "torch.complex64"), Standard::kBenchmark);
  EXPECT_EQ(s.RatiosOf(Rules::kOurs, "gelu").rmse, 1.2);
  EXPECT_EQ(s.RatiosOf(Rules::k26, "gelu").rmse, 2);
  EXPECT_EQ(s.RatiosOf(Rules::k8, "matmul").rmse, 2);
  const kernels::AccuracyLimits old =
      s.LimitsOf(Rules::k26, Standard::kBenchmark, DType::kBFloat16, DType::kFloat32);
  EXPECT_EQ(old.small_atol, 1e-16);
  EXPECT_EQ(old.golden_as, DType::kFloat32);
  const kernels::AccuracyLimits ours =
      s.LimitsOf(Rules::kOurs, Standard::kBenchmark, DType::kBFloat16, DType::kFloat32);
  EXPECT_EQ(ours.small_atol, 0x1p-16);
  EXPECT_EQ(ours.golden_as, DType::kBFloat16);
}

}  // namespace
}  // namespace msprobe::accuracy
