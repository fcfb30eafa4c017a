#include "engine/accuracy/first_check.h"

#include <gmock/gmock.h>

#include <charconv>
#include <cmath>
#include <map>

#include "engine/accuracy/details_table.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/formats/tables/table_file.h"

namespace msprobe::accuracy {
namespace {

using testing::HasSubstr;

struct Tensor {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
  TensorView view() const {
    return {.data = bytes.data(),
            .dtype = dtype,
            .ndim = static_cast<int>(shape.size()),
            .shape = shape.data()};
  }
};

template <typename T>
Tensor Of(DType dtype, const std::vector<T>& values) {
  Tensor t{dtype, {static_cast<int64_t>(values.size())}, {}};
  const auto* p = reinterpret_cast<const uint8_t*>(values.data());
  t.bytes.assign(p, p + values.size() * sizeof(T));
  return t;
}

struct Case {
  std::string name, api;
  Tensor device, golden;
};

// "torch.float32 2x3 0000803f...": "-" stands for no dimension and for no element.
Tensor ParseTensor(std::string_view dtype, std::string_view shape, std::string_view hex) {
  Tensor t{*DTypeFromTorchName(dtype), {}, {}};
  if (shape != "-") {
    for (const std::string_view extent : Split(shape, 'x'))
      t.shape.push_back(std::stoll(std::string(extent)));
  }
  for (size_t i = 0; hex != "-" && i < hex.size(); i += 2) {
    uint8_t byte = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
    t.bytes.push_back(byte);
  }
  return t;
}

std::vector<Case> Cases() {
  const auto file = MappedFile::Open(MSPROBE_TEST_DATA "/accuracy/first_check_cases.txt");
  EXPECT_TRUE(file.ok());
  std::vector<Case> cases;
  for (const std::string_view line : Split(file->bytes(), '\n')) {
    const std::vector<std::string_view> f = Split(line, ' ');
    if (f.size() != 8) continue;
    cases.push_back({std::string(f[0]), std::string(f[1]), ParseTensor(f[2], f[3], f[4]),
                     ParseTensor(f[5], f[6], f[7])});
  }
  return cases;
}

// Equal texts; numbers that NumPy computed in float32 may differ in their last digits.
bool SameCell(const std::string& ours, const std::string& theirs) {
  if (ours == theirs) return true;
  double a = 0, b = 0;
  if (!ParseMetric(ours, &a) || !ParseMetric(theirs, &b)) return false;
  return std::fabs(a - b) <= 2e-6 * std::fabs(b) + 2e-14;
}

// Rows that the Comparator of msprobe 1.0.4, 8.3.3 and 26.2.0 made of the same tensors.
class OlderChecks : public testing::TestWithParam<std::pair<Rules, const char*>> {};
TEST_P(OlderChecks, EqualCellByCell) {
  const auto [rules, name] = GetParam();
  std::map<std::string, std::vector<std::string>> theirs;
  const Status read = formats::ReadTableFile(
      std::string(MSPROBE_TEST_DATA "/accuracy/first_check_") + name + ".csv",
      [&](const formats::TableLine& line) {
        theirs[std::string(line.cells[0])].assign(line.cells.begin(), line.cells.end());
        return true;
      });
  ASSERT_TRUE(read.ok()) << read.ToString();
  const FirstCheck check({.rules = rules});
  int compared = 0;
  for (const Case& c : Cases()) {
    const auto found = theirs.find(c.name);
    if (found == theirs.end()) continue;  // 1.0 raises an exception for an empty tensor
    ++compared;
    const Result<CheckedOutput> out = check.CompareTensors(c.api, c.device.view(), c.golden.view());
    ASSERT_TRUE(out.ok()) << out.status().ToString();
    for (size_t i = kGoldenDtype; i < kOlderDetailsColumns; ++i) {
      EXPECT_TRUE(SameCell(out->row[i], found->second[i]))
          << c.name << ", " << kDetailsTitles[i] << ": ours \"" << out->row[i] << "\", theirs \""
          << found->second[i] << '"';
    }
  }
  EXPECT_GE(compared, 120);
}
INSTANTIATE_TEST_SUITE_P(All, OlderChecks,
                         testing::Values(std::pair(Rules::k1, "1.0"), std::pair(Rules::k8, "8"),
                                         std::pair(Rules::k26, "26")));

CheckedOutput Ours(const char* api, const Tensor& d, const Tensor& g) {
  const Result<CheckedOutput> out = FirstCheck({}).CompareTensors(api, d.view(), g.view());
  EXPECT_TRUE(out.ok()) << out.status().ToString();
  return *out;
}

// The absolute limit of the older tools lets every small gradient pass.
TEST(Ours, SmallValuesAreJudged) {
  const Tensor g = Of<double>(DType::kFloat64, {1e-6, 2e-6, -3e-6, 4e-6});
  const Tensor d = Of<float>(DType::kFloat32, {1.1e-6F, 2.2e-6F, -3.1e-6F, 4.3e-6F});
  EXPECT_EQ(Ours("softmax", d, g).verdict, Verdict::kError);
  EXPECT_EQ(
      FirstCheck({.rules = Rules::k26}).CompareTensors("softmax", d.view(), g.view())->verdict,
      Verdict::kPass);
  const Tensor near = Of<float>(DType::kFloat32, {1e-6F, 2e-6F, -3e-6F, 4e-6F});
  EXPECT_EQ(Ours("softmax", near, g).verdict, Verdict::kPass);
}

// A golden in complex128 has digits that no complex64 has.
TEST(Ours, ComplexNumbersAreJudgedByTheirParts) {
  const FirstCheck check({});
  const std::vector<double> exact = {1.0 / 3, -2.0 / 7, 0, 5};
  const auto device = [&](double error) {
    Tensor t = Of<float>(DType::kComplex64, {static_cast<float>(exact[0] + error),
                                             static_cast<float>(exact[1]), 0, 5});
    t.shape = {2};
    return t;
  };
  Tensor golden = Of<double>(DType::kComplex128, exact);
  golden.shape = {2};
  const auto right = check.CompareTensors("stft", device(0).view(), golden.view());
  ASSERT_TRUE(right.ok());
  EXPECT_EQ(right->verdict, Verdict::kPass);
  EXPECT_EQ(right->row[kDeviceDtype], "torch.complex64");
  EXPECT_EQ(right->row[kShape], "(2,)");
  const auto wrong = check.CompareTensors("stft", device(0.1).view(), golden.view());
  ASSERT_TRUE(wrong.ok());
  EXPECT_EQ(wrong->verdict, Verdict::kError);
}

TEST(Ours, NotFinite) {
  const double inf = INFINITY, nan = NAN;
  const Tensor g = Of<double>(DType::kFloat64, {1, nan, inf, -inf, 5});
  const Tensor same = Of<float>(DType::kFloat32, {1, NAN, INFINITY, -INFINITY, 5});
  EXPECT_EQ(Ours("softmax", same, g).verdict, Verdict::kPass);
  EXPECT_EQ(Ours("relu", same, g).row[kUnequal], "0.00000000000000");
  const Tensor other = Of<float>(DType::kFloat32, {1, 7, INFINITY, -INFINITY, 5});
  const CheckedOutput out = Ours("softmax", other, g);
  EXPECT_EQ(out.verdict, Verdict::kError);
  EXPECT_THAT(out.row[kMessage], HasSubstr("1 elements are NaN or infinite on one side only"));
}

TEST(Ours, Integers) {
  EXPECT_EQ(
      Ours("add", Of<int16_t>(DType::kInt16, {1, 2}), Of<int16_t>(DType::kInt16, {1, 2})).verdict,
      Verdict::kPass);
  // The older tools subtract in the integer dtype itself, where 127 - (-128) is -1.
  const CheckedOutput far = Ours("npu_dynamic_quant", Of<int8_t>(DType::kInt8, {127, 1}),
                                 Of<int8_t>(DType::kInt8, {-128, 1}));
  EXPECT_EQ(far.verdict, Verdict::kError);
  EXPECT_EQ(far.row[kMaxAbsError], "255.00000000000000");
  EXPECT_EQ(Ours("npu_dynamic_quant", Of<uint8_t>(DType::kUInt8, {1, 1}),
                 Of<uint8_t>(DType::kUInt8, {2, 1}))
                .verdict,
            Verdict::kPass);
}

// bfloat16 results that are the rounded golden ones are equal to them.
TEST(Ours, TheGoldenIsRounded) {
  const Tensor g = Of<float>(DType::kFloat32, {1.001F, 3.14159F});
  const Tensor d = Of<uint16_t>(DType::kBFloat16, {0x3f80, 0x4049});
  const CheckedOutput out = Ours("relu", d, g);
  EXPECT_EQ(out.row[kUnequal], "0.00000000000000");
  EXPECT_EQ(out.row[kBalance], "0.00000000000000");
}

// A row of ours has all metrics, but those of the absolute standard only where it judges: msprobe
// 26 takes them for a sign of fp8 inputs.
TEST(Ours, Metrics) {
  const Tensor g = Of<double>(DType::kFloat64, {1, 2, 3}),
               d = Of<float>(DType::kFloat32, {1, 2, 3.5});
  const CheckedOutput benchmark = Ours("softmax", d, g), absolute = Ours("add", d, g);
  for (const DetailsColumn c :
       {kCosine, kMaxAbsError, kHundredth, kThousandth, kTenThousandth, kUnequal, kBalance, kRmse,
        kSmallValue, kMaxRelative, kMeanRelative, kMaxUlp, kMeanUlp, kUlpShare}) {
    EXPECT_FALSE(IsBlankCell(benchmark.row[c])) << kDetailsTitles[c];
    EXPECT_FALSE(IsBlankCell(absolute.row[c])) << kDetailsTitles[c];
  }
  EXPECT_TRUE(IsBlankCell(benchmark.row[kRelativeFailures]));
  EXPECT_EQ(absolute.row[kRelativeFailures], "0.33333333333333");
  EXPECT_EQ(benchmark.row[kShape], "(3,)");
  const FirstCheck fewer({.decimals = 3});
  EXPECT_EQ(fewer.CompareTensors("add", d.view(), g.view())->row[kMaxAbsError], "0.500");
}

// A result in fp8 is the golden, rounded: its relative errors are large, its ULP errors are not.
TEST(Ours, Fp8) {
  const Tensor g = Of<float>(DType::kFloat32, {1.05F, -2.1F, 3.1F, 0.0F});
  const CheckedOutput near =
      Ours("matmul", Of<uint8_t>(DType::kFloat8E4M3FN, {0x38, 0xc0, 0x44, 0}), g);
  EXPECT_EQ(near.verdict, Verdict::kPass) << near.row[kMessage];
  EXPECT_EQ(near.row[kUlpShare], "0.00000000000000");
  const CheckedOutput far =
      Ours("matmul", Of<uint8_t>(DType::kFloat8E4M3FN, {0x3a, 0xc0, 0x44, 0}), g);
  EXPECT_EQ(far.verdict, Verdict::kError);
  EXPECT_THAT(far.row[kMessage], HasSubstr("0.25 of the elements"));
}

// 1 - 1 + 1e-9: the sum of large terms that cancel.
TEST(Ours, WhatCancelsIsAsExactAsItsInputs) {
  const Tensor g = Of<double>(DType::kFloat64, {1e-9, 2e-9}),
               changed = Of<double>(DType::kFloat64, {1.2e-7, 2e-9}),
               d = Of<float>(DType::kFloat32, {1e-7F, -1e-7F});
  const auto explained = [&](const Tensor& device, const Tensor& golden, double largest,
                             int64_t elements, Rules rules = Rules::kOurs) {
    return FirstCheck({.rules = rules})
        .ExplainedByInputs(device.view(), golden.view(), changed.view(), {largest, elements});
  };
  EXPECT_TRUE(explained(d, g, 1, 2));
  EXPECT_FALSE(explained(d, g, 1, 2, Rules::k26));
  // An error that is larger than what the inputs explain.
  EXPECT_FALSE(explained(Of<float>(DType::kFloat32, {1e-5F, 0}), g, 1, 2));
  // A result that jumps: the change is larger than roundings of the inputs; of a sum, those of all.
  EXPECT_FALSE(explained(d, g, 1e-4, 2));
  EXPECT_TRUE(explained(d, g, 1e-4, 200'000));
  // Below the smallest number of a dtype nothing is exact: 2^-24 of float16.
  const Tensor none = Of<uint16_t>(DType::kFloat16, {0, 0});
  const Tensor tiny = Of<double>(DType::kFloat64, {4e-8, -1e-8});
  EXPECT_TRUE(FirstCheck({}).ExplainedByInputs(none.view(), tiny.view(), tiny.view(), {1, 2}));
  // Gradients of half the precision are summed in it, results are not.
  const Tensor one = Of<uint16_t>(DType::kBFloat16, {0x3f80}),
               sum = Of<double>(DType::kFloat64, {1.05}),
               moved = Of<double>(DType::kFloat64, {1.051});
  for (const bool of_gradient : {false, true}) {
    EXPECT_EQ(FirstCheck({}).ExplainedByInputs(one.view(), sum.view(), moved.view(),
                                               {1, 1024, of_gradient}),
              of_gradient);
  }
  EXPECT_FALSE(explained(Of<float>(DType::kFloat32, {NAN, 0}), g, 1, 2));
  EXPECT_FALSE(explained(Of<int32_t>(DType::kInt32, {1, 0}), g, 1, 2));
}

TEST(Ours, Dropout) {
  std::vector<float> half(200, 1.0F), none(200, 1.0F);
  for (size_t i = 0; i < 100; ++i) half[2 * i] = 0;
  const FirstCheck check({});
  const Tensor a = Of<float>(DType::kFloat32, half), b = Of<float>(DType::kFloat32, none);
  EXPECT_EQ(check.CompareDropout(a.view(), a.view())->verdict, Verdict::kPass);
  EXPECT_EQ(check.CompareDropout(a.view(), b.view())->verdict, Verdict::kError);
}

TEST(Combine, WorstOrLast) {
  const Verdict outputs[] = {Verdict::kError, Verdict::kWarning, Verdict::kSkip};
  EXPECT_EQ(FirstCheck({}).Combine(outputs), Verdict::kError);
  EXPECT_EQ(FirstCheck({.rules = Rules::k26}).Combine(outputs), Verdict::kWarning);
  const Verdict skips[] = {Verdict::kSkip};
  EXPECT_EQ(FirstCheck({}).Combine(skips), Verdict::kSkip);
  EXPECT_EQ(FirstCheck({.rules = Rules::k26}).Combine(skips), Verdict::kPass);
  EXPECT_EQ(FirstCheck({}).Combine({}), Verdict::kBlank);
}

}  // namespace
}  // namespace msprobe::accuracy
