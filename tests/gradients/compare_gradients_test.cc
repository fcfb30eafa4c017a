#include "engine/gradients/compare_gradients.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/base/file.h"
#include "engine/formats/tables/table_file.h"
#include "engine/formats/tensors/npy.h"
#include "engine/formats/tensors/sign_archive.h"
#include "engine/gradients/recorded_step.h"
#include "tests/base/english.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::gradients {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Cells = std::vector<std::vector<std::string>>;

Cells ReadTable(const std::string& path) {
  Cells cells;
  const Status read = formats::ReadTableFile(path, [&](const formats::TableLine& line) {
    cells.emplace_back(line.cells.begin(), line.cells.end());
    return true;
  });
  EXPECT_TRUE(read.ok()) << read.message();
  return cells;
}

const std::string kData = std::string(MSPROBE_TEST_DATA) + "/gradients";
const std::string kRecorded = std::string(MSPROBE_RECORDED) + "/gradients";

struct Parameter {
  std::string name;
  std::vector<uint8_t> signs;
  std::string numbers = "1.0,-1.0,2.0";
};

class CompareGradientsTest : public ::testing::Test {
 protected:
  void Table(const std::string& rank_folder, int step, const std::vector<Parameter>& parameters) {
    fs::create_directories(rank_folder);
    std::ofstream csv(fmt::format("{}/grad_summary_{}.csv", rank_folder, step));
    csv << "param_name,max,min,norm,shape\n";
    for (const Parameter& p : parameters)
      csv << fmt::format("{},{},[{}]\n", p.name, p.numbers, p.signs.size());
  }
  void Packed(const std::string& rank_folder, int step, const std::vector<Parameter>& parameters) {
    Table(rank_folder, step, parameters);
    Result<formats::SignWriter> out =
        formats::SignWriter::Create(fmt::format("{}/grad_directions_{}.npz", rank_folder, step));
    ASSERT_TRUE(out.ok());
    for (const Parameter& p : parameters) ASSERT_TRUE(out->Add(p.name, p.signs).ok());
    ASSERT_TRUE(out->Finish().ok());
  }
  void Bytes(const std::string& rank_folder, int step, const std::vector<Parameter>& parameters) {
    Table(rank_folder, step, parameters);
    const std::string folder = fmt::format("{}/step{}", rank_folder, step);
    fs::create_directories(folder);
    for (const Parameter& p : parameters) {
      const int64_t n = static_cast<int64_t>(p.signs.size());
      ASSERT_TRUE(
          formats::WriteNpy(folder + "/" + p.name + ".npy",
                            {.data = p.signs.data(), .dtype = DType::kBool, .ndim = 1, .shape = &n})
              .ok());
    }
  }
  Result<GradientComparison> Compare() { return CompareGradients(target_, golden_, out_); }

  TemporaryFolder folder_;
  const std::string target_ = folder_.path() + "/target", golden_ = folder_.path() + "/golden",
                    out_ = folder_.path() + "/out";
};

TEST_F(CompareGradientsTest, EqualsTheTablesOfMsprobe104CellByCell) {
  const Result<GradientComparison> c =
      CompareGradients(kRecorded + "/target", kRecorded + "/golden", out_);
  ASSERT_TRUE(c.ok()) << c.status().message();
  for (const char* rank : {"/rank0", "/rank1"}) {
    const Cells expected = ReadTable(kData + "/expected" + rank + "/similarities.csv");
    ASSERT_GE(expected.size(), 9u);
    EXPECT_EQ(ReadTable(out_ + rank + "/similarities.csv"), expected);
  }
  ASSERT_TRUE(c->fall);
  EXPECT_EQ(c->fall->step, 3);
  EXPECT_EQ(c->fall->parameter, "b.weight");
  EXPECT_EQ(c->ranks[c->fall_rank].rank, 0);
  EXPECT_EQ(c->first_difference->step, 3);
  EXPECT_TRUE(c->errors.empty());
}

TEST_F(CompareGradientsTest, NormsOfRanksAreThatOfTheirElementsTogether) {
  Packed(target_ + "/rank0", 0, {{"a", {1, 1}, "1.0,-1.0,3.0"}});
  Packed(target_ + "/rank1", 0, {{"a", {1, 1}, "1.0,-1.0,4.0"}});
  for (const char* rank : {"/rank0", "/rank1"}) Packed(golden_ + rank, 0, {{"a", {1, 0}}});
  const Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok());
  EXPECT_DOUBLE_EQ(c->all.At(0, 0).target_norm, 5);
  EXPECT_DOUBLE_EQ(c->all.At(0, 0).golden_norm, std::sqrt(8.0));
  EXPECT_DOUBLE_EQ(c->ranks[1].summary[0].target_norm, 4);
}

TEST_F(CompareGradientsTest, AFolderOfARankIsComparedWithoutAFolderOfARank) {
  const Result<GradientComparison> c =
      CompareGradients(kRecorded + "/target/rank1", kRecorded + "/golden/rank1", out_);
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_EQ(ReadTable(out_ + "/similarities.csv"),
            ReadTable(kData + "/expected/rank1/similarities.csv"));
  EXPECT_EQ(c->ranks[0].rank, -1);
}

TEST_F(CompareGradientsTest, BothFormsOfDirectionsAreComparedWithEachOther) {
  Packed(target_ + "/rank0", 0, {{"a", {1, 1, 0}}, {"b", {1}}});
  Bytes(golden_ + "/rank0", 0, {{"b", {1}}, {"a", {1, 0, 0}}});
  const Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_EQ(ReadTable(out_ + "/rank0/similarities.csv"),
            (Cells{{"step", "0"}, {"a", "0.6666666666666666"}, {"b", "1.0"}, {"summary", "0.75"}}));
}

TEST_F(CompareGradientsTest, TheStepThatAKilledRunWroteIsLeftOut) {
  for (const std::string& side : {target_, golden_}) {
    for (int step = 0; step < 2; ++step) Packed(side + "/rank0", step, {{"a", {1, 0}}});
  }
  fs::remove(target_ + "/rank0/grad_summary_1.csv");  // the table is written last
  const Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_THAT(c->errors, ::testing::IsEmpty());
  // In the middle of a run a table was lost: that is an error.
  Packed(target_ + "/rank0", 2, {{"a", {1, 0}}});
  Packed(golden_ + "/rank0", 2, {{"a", {1, 0}}});
  const Result<GradientComparison> lost = Compare();
  ASSERT_TRUE(lost.ok());
  EXPECT_THAT(lost->errors, ::testing::Not(::testing::IsEmpty()));
}

// A share of 1 of 64 is no fall, and is the beginning of it all.
TEST_F(CompareGradientsTest, TheFirstDifferenceIsNamedHoweverSmall) {
  const std::vector<uint8_t> same(64, 1);
  std::vector<uint8_t> one = same, half = same;
  one[5] = 0;
  std::fill_n(half.begin(), 32, 0);
  for (const int step : {0, 1, 2, 3}) {
    for (const char* rank : {"/rank0", "/rank1"})
      Packed(golden_ + rank, step, {{"a", same}, {"b", same}, {"c", same}});
    Packed(target_ + "/rank0", step, {{"a", step == 3 ? half : same}, {"b", same}, {"c", same}});
    Packed(target_ + "/rank1", step,
           {{"a", step > 1 ? one : same}, {"b", step > 0 ? one : same}, {"c", same}});
  }
  const Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->fall->step, 3);
  EXPECT_EQ(c->first_difference->step, 1);
  EXPECT_EQ(c->first_difference->parameter, "b");
  EXPECT_EQ(c->first_difference->changed, 1);
  EXPECT_EQ(c->ranks[c->difference_rank].rank, 1);
}

TEST_F(CompareGradientsTest, ShardsOfAParameterAreAddedUpWhereAllRanksAreThere) {
  for (const int step : {0, 1}) {
    Packed(target_ + "/rank0", step, {{"a", {1, 1, 0}}, {"of_rank_0", {1}}});
    Packed(golden_ + "/rank0", step, {{"a", {1, 0, 0}}, {"of_rank_0", {1}}});
  }
  Packed(target_ + "/rank1", 1, {{"a", {1}}});
  Packed(golden_ + "/rank1", 1, {{"a", {1}}});
  const Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(ReadTable(out_ + "/similarities.csv"), (Cells{{"step", "0", "1"},
                                                          {"a", "", "0.75"},
                                                          {"of_rank_0", "1.0", "1.0"},
                                                          {"summary", "1.0", "0.8"}}));
  EXPECT_THAT(EnglishOf(c->notes),
              ElementsAre(HasSubstr("1 cell of the table of all ranks is empty")));
}

TEST_F(CompareGradientsTest, WhatIsMissingOnASideIsOneNoteEach) {
  for (const int step : {0, 1, 2}) Packed(target_ + "/rank0", step, {{"a", {1}}, {"b", {1}}});
  for (const int step : {1, 2, 4}) Packed(golden_ + "/rank0", step, {{"a", {1}}, {"c", {1}}});
  Packed(target_ + "/rank2", 0, {{"a", {1}}});
  const Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(EnglishOf(c->notes),
              ElementsAre("rank 2 only in the target; not compared",
                          "rank 0: step 0 only in the target; not compared",
                          "rank 0: step 4 only in the golden; not compared",
                          "rank 0: only the target has a gradient of b (in step 1); not compared",
                          "rank 0: only the golden has a gradient of c (in step 1); not compared"));
  EXPECT_TRUE(c->errors.empty());
}

// Before a norm the values' bias is zero by mathematics, too. A sign is not chance.
TEST_F(CompareGradientsTest, SomeValuesOfAJoinedBiasMayPointElsewhereAndNotAll) {
  const std::string name = "attention.in_proj_bias";
  Packed(target_ + "/rank0", 0, {{name, {1, 1, 0, 1, 0, 1}}});
  Packed(golden_ + "/rank0", 0, {{name, {1, 1, 1, 0, 0, 0}}});
  EXPECT_FALSE(Compare()->fall);
  Packed(target_ + "/rank0", 0, {{name, {1, 1, 0, 1, 1, 1}}});
  EXPECT_EQ(Compare()->fall->parameter, name);
}

TEST_F(CompareGradientsTest, TheKeysOfAJoinedBiasAreTheMiddleThird) {
  for (const char* other : {"blocks.0.attn.qkv.bias", "h.0.c_attn.bias"}) {
    Packed(target_ + "/rank0", 0, {{other, {1, 1, 0, 1, 0, 0}}});
    Packed(golden_ + "/rank0", 0, {{other, {1, 1, 1, 0, 0, 0}}});
    EXPECT_FALSE(Compare()->fall);
  }
  const std::string name = "attention.in_proj_bias";
  Packed(target_ + "/rank0", 0, {{name, {1, 1, 0, 1, 0, 0}}});
  Packed(golden_ + "/rank0", 0, {{name, {1, 1, 1, 0, 0, 0}}});
  const Result<GradientComparison> keys = Compare();
  ASSERT_TRUE(keys.ok());
  EXPECT_FALSE(keys->fall);
  EXPECT_THAT(EnglishOf(keys->notes), ElementsAre(HasSubstr("makes them zero: " + name)));
  EXPECT_EQ(keys->first_difference->changed, 2);  // the table and the page have the difference
  Packed(target_ + "/rank0", 0, {{name, {1, 0, 0, 1, 0, 0}}});
  EXPECT_EQ(Compare()->fall->parameter, name);
  Packed(target_ + "/rank0", 0, {{"other_bias", {1, 1, 0, 1, 0, 0}}});
  Packed(golden_ + "/rank0", 0, {{"other_bias", {1, 1, 1, 0, 0, 0}}});
  EXPECT_EQ(Compare()->fall->parameter, "other_bias");
}

TEST_F(CompareGradientsTest, NanIsOneNote) {
  for (const int step : {0, 1}) {
    Packed(target_ + "/rank0", step, {{"a", {0}, "nan,nan,nan"}, {"b", {0}, "nan,nan,nan"}});
    Packed(golden_ + "/rank0", step, {{"a", {0}}, {"b", {0}}});
  }
  const Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(EnglishOf(c->notes),
              ElementsAre("rank 0: NaN in 4 gradients of the target, first of a in step "
                          "0; NaN counts as not positive"));
}

TEST_F(CompareGradientsTest, ADamagedFileIsAnErrorAndTheOthersAreCompared) {
  for (const std::string& side : {target_, golden_}) {
    for (const int step : {0, 1, 2, 3})
      Bytes(side + "/rank0", step, {{"a", {1, 1}}, {"b", {1}}, {"c", {0}}});
  }
  fs::resize_file(target_ + "/rank0/step0/a.npy", 129);
  fs::remove(target_ + "/rank0/step1/b.npy");
  std::ofstream(golden_ + "/rank0/grad_summary_2.csv") << "another,table\n1,2\n";
  const int64_t n = 1;
  const double number = 2;
  ASSERT_TRUE(formats::WriteNpy(golden_ + "/rank0/step3/c.npy",
                                {.data = &number, .dtype = DType::kFloat64, .ndim = 1, .shape = &n})
                  .ok());
  const Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(EnglishOf(c->errors),
              ElementsAre(HasSubstr("step0/a.npy"), HasSubstr("expected a file \"b.npy\""),
                          HasSubstr("grad_summary_2.csv: expected a table of gradients"),
                          HasSubstr("c.npy: expected booleans of shape")));
  EXPECT_EQ(ReadTable(out_ + "/rank0/similarities.csv"),
            (Cells{{"step", "0", "1", "2", "3"},
                   {"b", "1.0", "", "", "1.0"},
                   {"c", "1.0", "1.0", "", ""},
                   {"a", "", "1.0", "", "1.0"},
                   {"summary", "1.0", "1.0", "", "1.0"}}));
}

TEST_F(CompareGradientsTest, NamesDoNotLeaveTheFolder) {
  for (const std::string& side : {target_, golden_}) {
    Bytes(side + "/rank0", 0, {{"a", {1}}});
    Table(side + "/rank0", 0, {{"../../../a", {1}}, {"..", {1}}, {"/etc/passwd", {1}}});
  }
  const Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->all.parameters().size(), 0u);
  EXPECT_EQ(c->errors.size(), 6u);  // five, and how many more
}

TEST_F(CompareGradientsTest, ManyErrorsAreCounted) {
  std::vector<Parameter> many;
  for (int i = 0; i < 50; ++i) many.push_back({fmt::format("p{}", i), {1}});
  for (const std::string& side : {target_, golden_}) {
    Table(side + "/rank0", 0, many);
    fs::create_directories(side + "/rank0/step0");
  }
  const Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->errors.back(), "rank 0: 95 more errors");
}

TEST_F(CompareGradientsTest, ShapesMustAgree) {
  Packed(target_ + "/rank0", 0, {{"a", {1, 1}}});
  Packed(golden_ + "/rank0", 0, {{"a", {1, 1, 1}}});
  const Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(EnglishOf(c->errors),
              ElementsAre(HasSubstr("expected shape [3] of \"a\" in step 0, as in the "
                                    "golden, found [2]")));
}

TEST_F(CompareGradientsTest, MindSporeIsComparedWithPyTorch) {
  Packed(target_ + "/rank0", 0,
         {{"norm.gamma", {1, 0}}, {"norm.beta", {1, 1}}, {"fc.weight", {1}}, {"x.weight", {0}}});
  Packed(golden_ + "/rank0", 0,
         {{"fc.weight", {1}}, {"norm.weight", {1, 1}}, {"norm.bias", {1, 1}}, {"x.gamma", {0}}});
  Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(c->notes, ElementsAre());
  EXPECT_EQ(ReadTable(out_ + "/rank0/similarities.csv"),
            (Cells{{"step", "0"},
                   {"norm.gamma", "0.5"},
                   {"norm.beta", "1.0"},
                   {"fc.weight", "1.0"},
                   {"x.weight", "1.0"},
                   {"summary", "0.8333333333333334"}}));
  ASSERT_TRUE(c->fall);
  EXPECT_EQ(c->fall->parameter, "norm.gamma");
  ASSERT_TRUE(c->fall_norms);
  EXPECT_EQ(c->fall_norms->golden, 2.0);
}

TEST_F(CompareGradientsTest, APartnerOfTheSameNameComesFirst) {
  Packed(target_ + "/rank0", 0, {{"n.gamma", {1}}, {"n.weight", {1}}});
  Packed(golden_ + "/rank0", 0, {{"n.weight", {1}}});
  const Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(EnglishOf(c->notes),
              ElementsAre(HasSubstr("only the target has a gradient of n.gamma")));
}

TEST(SameShape, AnExtentOfOneDoesNotCount) {
  EXPECT_TRUE(SameShape({4, 2, 1, 3}, {4, 2, 3}));
  EXPECT_TRUE(SameShape({1}, {}));
  EXPECT_FALSE(SameShape({4, 2, 3}, {4, 3, 2}));
}

TEST_F(CompareGradientsTest, NothingInCommonIsAnError) {
  EXPECT_THAT(Compare().status().message(), HasSubstr("the dump_path of a run"));
  Packed(target_ + "/rank0", 0, {{"a", {1}}});
  Packed(golden_ + "/rank1", 0, {{"a", {1}}});
  EXPECT_THAT(Compare().status().message(), HasSubstr("expected a rank that"));
  Packed(golden_ + "/rank0", 1, {{"a", {1}}});
  EXPECT_THAT(Compare().status().message(), HasSubstr("expected a step that"));
  fs::remove(golden_ + "/rank0/grad_directions_1.npz");
  const Status status = Compare().status();
  EXPECT_THAT(status.message(), HasSubstr("found tables only"));
  EXPECT_THAT(status.hint(), HasSubstr("grad_level"));
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(CompareGradientsTest, HeadersOfMindSporeGraphModeAreRead) {
  for (const std::string& side : {target_, golden_}) {
    Bytes(side + "/rank0", 0, {{"a", {1, 0}}});
    std::ofstream(side + "/rank0/grad_summary_0.csv")
        << "\xef\xbb\xbfParam_name,Max,Min,Norm,Shape\na,1.0,0.0,1.0,[np.int64(2)]\n";
  }
  const Result<GradientComparison> c = Compare();
  ASSERT_TRUE(c.ok());
  EXPECT_TRUE(c->errors.empty());
  EXPECT_EQ(c->all.Summary(0).count, 2);
}

}  // namespace
}  // namespace msprobe::gradients
