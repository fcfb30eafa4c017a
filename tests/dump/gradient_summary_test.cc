#include "engine/dump/write/gradient_summary.h"

#include <gtest/gtest.h>

#include "engine/formats/tensors/sign_archive.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

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
            "param_name,\"(-inf, -1]\",\"(-1, 0]\",\"(0, 1]\",\"(1, inf)\",=0,max,min,norm,shape\n"
            "a/b.weight,0.16666666666666666,0.5,0.16666666666666666,0.16666666666666666,"
            "0.3333333333333333,3.0,-2.0,3.774917217635375,\"[2, 3]\"\n");
  const Result<formats::SignArchive> archive =
      formats::SignArchive::Open(folder.path() + "/rank0/grad_directions_7.npz");
  ASSERT_TRUE(archive.ok()) << archive.status().ToString();
  const Result<formats::SignBits> bits = archive->Read("a/b.weight", 6);
  ASSERT_TRUE(bits.ok()) << bits.status().ToString();
  EXPECT_EQ(bits->data[0], 0b00011000);
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
