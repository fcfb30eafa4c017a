#include "engine/dump/write/gradient_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "engine/formats/tensors/sign_archive.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

using ::testing::EndsWith;

const float kValues[] = {-2, -0.5, 0, 1, 3, 0};
const int64_t kShape[] = {2, 3};
const TensorView kView{.data = kValues, .ndim = 2, .shape = kShape};

TEST(GradientSummary, OneTableAndDirectionsBesideIt) {
  const TemporaryFolder folder;
  GradientRules rules{.level = GradLevel::kL2};
  GradientSummary summary(rules, folder.path() + "/rank0", 7);
  ASSERT_TRUE(summary.Takes(kView));
  ASSERT_TRUE(summary.Add("a/b.weight", kView).ok());
  ASSERT_TRUE(summary.Finish().ok());
  EXPECT_EQ(ReadWhole(summary.path()),
            "param_name,\"(-inf, -1]\",\"(-1, 0]\",\"(0, 1]\",\"(1, inf)\",=0,max,min,norm,shape,"
            "dtype\n"
            "a/b.weight,0.16666666666666666,0.5,0.16666666666666666,0.16666666666666666,"
            "0.3333333333333333,3.0,-2.0,3.774917217635375,\"[2, 3]\",float32\n");
  const Result<formats::SignArchive> archive =
      formats::SignArchive::Open(folder.path() + "/rank0/grad_directions_7.npz");
  ASSERT_TRUE(archive.ok()) << archive.status().ToString();
  const Result<formats::SignBits> bits = archive->Read("a/b.weight", 6);
  ASSERT_TRUE(bits.ok()) << bits.status().ToString();
  EXPECT_EQ(bits->data[0], 0b00011000);
}

// The rounding in a gradient is that of the pass, whatever dtype holds it.
TEST(GradientSummary, TheDTypeIsThatOfThePass) {
  std::vector<float> values(100);
  const int64_t shape[] = {100};
  const TensorView view{.data = values.data(), .ndim = 1, .shape = shape};
  const auto fill = [&](uint32_t kept) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::bit_cast<float>((0x3F800000u + 123457u * static_cast<uint32_t>(i)) & kept);
  };
  fill(0xFFFF0000);
  EXPECT_EQ(NarrowDTypeOf(view), DType::kBFloat16);
  fill(0xFFFFE000);
  EXPECT_EQ(NarrowDTypeOf(view), DType::kFloat16);
  fill(0xFFFFFFFF);
  EXPECT_EQ(NarrowDTypeOf(view), std::nullopt);
  EXPECT_EQ(NarrowDTypeOf(kView), std::nullopt) << "too few to tell";
  const TemporaryFolder folder;
  const GradientRules rules;
  const auto text = [&](int64_t step, std::optional<DType> autocast) {
    GradientSummary summary(rules, folder.path(), step, autocast);
    EXPECT_TRUE(summary.Add("a", kView).ok());
    EXPECT_TRUE(summary.Finish().ok());
    return ReadWhole(summary.path());
  };
  EXPECT_THAT(text(0, std::nullopt), EndsWith(",float32\n"));
  EXPECT_THAT(text(1, DType::kBFloat16), EndsWith(",bfloat16\n"));
}

TEST(GradientSummary, DirectionsAreOfOrderedNumbers) {
  GradientRules rules;
  const TensorView complex{.data = kValues, .dtype = DType::kComplex64, .ndim = 1, .shape = kShape};
  EXPECT_FALSE(GradientSummary(rules, "", 0).Takes(complex));
  rules.level = GradLevel::kL0;
  EXPECT_TRUE(GradientSummary(rules, "", 0).Takes(complex));
}

TEST(GradientSummary, AFolderThatCannotBeMadeIsAnError) {
  const TemporaryFolder folder;
  const GradientRules rules;
  GradientSummary summary(rules, folder.Write("file", ""), 0);
  EXPECT_FALSE(summary.Add("a", kView).ok());
  EXPECT_FALSE(summary.Finish().ok());
}

}  // namespace
}  // namespace msprobe::dump
