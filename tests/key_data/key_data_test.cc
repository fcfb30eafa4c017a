#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/file.h"
#include "engine/formats/tables/table_file.h"
#include "engine/formats/tensors/npy.h"
#include "engine/key_data/key_data_compare.h"
#include "engine/key_data/key_data_writer.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::key_data {
namespace {

struct Numbers {
  std::vector<float> values;
  std::vector<int64_t> shape;
  TensorView view() const {
    return {.data = values.data(), .ndim = static_cast<int>(shape.size()), .shape = shape.data()};
  }
};

class KeyDataTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& below) const { return temporary_.path() + "/" + below; }
  const TemporaryFolder temporary_;
  const Numbers two_{{1, -3, 2, 0}, {2, 2}};
};

TEST_F(KeyDataTest, WritesTheLayoutOfMsprobe26) {
  KeyDataWriter writer(Path("a"));
  EXPECT_EQ(writer.NextMicroStep("loss"), 0);
  ASSERT_TRUE(writer.Save("loss", KeyForm::kTensor, {{"", two_.view()}}, 3, 0).ok());
  EXPECT_EQ(writer.NextMicroStep("loss"), 1);
  writer.Step();
  EXPECT_EQ(writer.NextMicroStep("loss"), 0);
  ASSERT_TRUE(
      writer.Save("../x", KeyForm::kList, {{"0", two_.view()}, {"1", two_.view()}}, 0, std::nullopt)
          .ok());
  EXPECT_EQ(ReadWhole(Path("a/data/loss/step0/rank3/micro_step0/loss.json")), R"({
    "data": {
        "max": 2.0,
        "min": -3.0,
        "mean": 0.0,
        "norm": 3.7416573867739413,
        "shape": [
            2,
            2
        ]
    }
})");
  const Result<formats::TensorFile> read =
      formats::ReadNpy(Path("a/data/.._x/step1/rank0/.._x.1.npy"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->shape, two_.shape);
  const std::string list = ReadWhole(Path("a/data/.._x/step1/rank0/.._x.json"));
  EXPECT_EQ(list.substr(0, 38), "{\n    \"data\": [\n        {\n            ");
}

TEST_F(KeyDataTest, ComparesElements) {
  const Numbers other{{1, -3.0001F, 2, 0.5F}, {2, 2}};
  const KeyDifference found = CompareKeyValues(two_.view(), other.view());
  EXPECT_EQ(found.same, 50);
  EXPECT_EQ(found.first_mismatch, 1);
  EXPECT_EQ(found.max_abs_error, 0.5);
  EXPECT_EQ(found.max_rel_error, 1);
  EXPECT_EQ(found.within_thousandth, 75);
  EXPECT_EQ(found.within_hundredth, 75);
  EXPECT_FALSE(CompareKeyValues(two_.view(), two_.view()).first_mismatch);
}

TEST_F(KeyDataTest, OfDifferentShapesThePartThatBothHave) {
  const Numbers wide{{1, -3, 9, 2, 0, 9}, {2, 3}}, flat{{1, -3, 2}, {3}};
  EXPECT_EQ(CompareKeyValues(two_.view(), wide.view()).same, 100);
  EXPECT_EQ(CompareKeyValues(two_.view(), flat.view()).same, 100);
  EXPECT_EQ(CompareKeyValues(two_.view(), Numbers{{}, {0}}.view()).same, 100);
}

TEST_F(KeyDataTest, NanEqualsNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const Numbers odd{{nan, inf, 2}, {3}};
  const KeyDifference found = CompareKeyValues(odd.view(), odd.view());
  EXPECT_EQ(found.first_mismatch, 0);
  EXPECT_TRUE(std::isnan(found.max_abs_error) && std::isnan(found.max_rel_error));
  EXPECT_NEAR(found.same, 200.0 / 3, 1e-9);
}

TEST_F(KeyDataTest, ATableForEachKey) {
  for (const char* run : {"a", "b"}) {
    KeyDataWriter writer(Path(run));
    ASSERT_TRUE(writer.Save("loss", KeyForm::kTensor, {{"", two_.view()}}, 0, 1).ok());
    ASSERT_TRUE(writer.Save("loss", KeyForm::kTensor, {{"", two_.view()}}, 0, 0).ok());
    ASSERT_TRUE(writer.Save("parts", KeyForm::kDict, {{"x", two_.view()}}, 0, 0).ok());
    if (*run == 'b') continue;
    ASSERT_TRUE(writer.Save("only", KeyForm::kTensor, {{"", two_.view()}}, 0, 0).ok());
  }
  temporary_.Write("b/data/parts/step0/rank0/micro_step0/parts.x.npy", "broken");
  const Result<KeyDataComparison> found = CompareKeyData(Path("a"), Path("b"), Path("out"));
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->keys, 3);
  EXPECT_EQ(found->values, 2);
  EXPECT_EQ(found->unequal, 0);
  EXPECT_EQ(found->only_one, 1);
  EXPECT_EQ(found->errors.size(), 1u);
  std::vector<std::string> rows;
  ASSERT_TRUE(formats::ReadTableFile(Path("out/loss.xlsx"), [&](const formats::TableLine& line) {
                std::string row;
                for (const std::string_view cell : line.cells) row.append(cell).append(" ");
                rows.push_back(row);
                return true;
              }).ok());
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].substr(0, 31), "step rank micro_step id shape1 ");
  EXPECT_EQ(rows[1], "0 0 0 0 [2, 2] [2, 2] 100  0 0 100 100 ");
  EXPECT_EQ(rows[2].substr(0, 6), "0 0 1 ");
}

TEST_F(KeyDataTest, ARunWithoutDataIsAnError) {
  const Result<KeyDataComparison> found = CompareKeyData(Path("a"), Path("b"), Path("out"));
  EXPECT_EQ(found.status().code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace msprobe::key_data
