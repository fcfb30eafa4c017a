#include "engine/operator_dumps/batch_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/file.h"
#include "engine/formats/tensors/npy.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::operator_dumps {
namespace {

using testing::HasSubstr;

void Save(const std::string& folder, const std::string& name, const std::vector<float>& values) {
  ASSERT_TRUE(MakeDirectories(folder).ok());
  const int64_t shape[] = {static_cast<int64_t>(values.size())};
  ASSERT_TRUE(formats::WriteNpy(
                  JoinPath(folder, name),
                  {.data = values.data(), .dtype = DType::kFloat32, .ndim = 1, .shape = shape})
                  .ok());
}

const BatchRow& RowOf(const BatchComparison& both, const std::string& target) {
  for (const BatchRow& row : both.rows) {
    if (row.target == target) return row;
  }
  ADD_FAILURE() << "no row of " << target;
  return both.rows[0];
}

TEST(BatchCompare, PairsByNameAndSaysWhatIsMissing) {
  const TemporaryFolder folder;
  const std::string npu = folder.path() + "/npu", golden = folder.path() + "/golden";
  // By position, "b" of the golden would pair with "a" of the target.
  Save(npu, "Add.a.1.1.1697617551412398.output.0.npy", {1, 2});
  Save(npu, "Add.b.2.1.1697617551412399.output.0.npy", {3, 4});
  Save(golden, "Add.b.9.4.1597617551412399.output.0.npy", {3, 5});
  Save(golden, "Mul.c.9.4.1597617551412399.output.0.npy", {1});
  // Executed twice on one side, once on the other.
  Save(npu, "Sub.d.1.1.1697617551412401.output.0.npy", {2});
  Save(npu, "Sub.d.7.1.1697617551412400.output.0.npy", {1});
  Save(golden, "Sub.d.1.1.1597617551412401.output.0.npy", {1});
  const auto both = CompareOperatorFolders(npu, golden);
  ASSERT_TRUE(both.ok()) << both.status().ToString();
  ASSERT_EQ(both->rows.size(), 5u);
  EXPECT_EQ(RowOf(*both, "Add.a.1.1.1697617551412398.output.0.npy").message,
            "only in the target folder");
  const BatchRow& b = RowOf(*both, "Add.b.2.1.1697617551412399.output.0.npy");
  EXPECT_EQ(b.golden, "Add.b.9.4.1597617551412399.output.0.npy");
  EXPECT_EQ(b.max_abs_error, 1);
  EXPECT_EQ(b.max_rel_error, 0.2);
  EXPECT_FALSE(b.equal);
  EXPECT_TRUE(RowOf(*both, "Sub.d.7.1.1697617551412400.output.0.npy").equal);
  EXPECT_EQ(RowOf(*both, "Sub.d.1.1.1697617551412401.output.0.npy").golden, "");
  EXPECT_EQ(both->rows.back().golden, "Mul.c.9.4.1597617551412399.output.0.npy");
  EXPECT_EQ(both->unequal, 1);
  EXPECT_EQ(both->unpaired, 3);
}

TEST(BatchCompare, NothingIsEqualThatIsNot) {
  const TemporaryFolder folder;
  const std::string npu = folder.path() + "/npu", golden = folder.path() + "/golden";
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  Save(npu, "nan.npy", {1, nan});
  Save(golden, "nan.npy", {1, nan});
  Save(npu, "inf.npy", {1, inf});
  Save(golden, "inf.npy", {1, inf});
  Save(npu, "one_inf.npy", {1, inf});
  Save(golden, "one_inf.npy", {1, 2});
  Save(npu, "shape.npy", {1, 2});
  Save(golden, "shape.npy", {1, 2, 3});
  Save(npu, "empty.npy", {});
  Save(golden, "empty.npy", {});
  Save(npu, "damaged.npy", {1});
  ASSERT_TRUE(WriteFileAtomically(golden + "/damaged.npy", "\x93NUMPY\x01\x00").ok());
  ASSERT_TRUE(WriteFileAtomically(golden + "/notes.txt", "hello").ok());
  const auto both = CompareOperatorFolders(npu, golden);
  ASSERT_TRUE(both.ok()) << both.status().ToString();
  EXPECT_TRUE(std::isnan(RowOf(*both, "nan.npy").max_abs_error));
  EXPECT_EQ(RowOf(*both, "inf.npy").max_abs_error, 0);
  EXPECT_TRUE(std::isnan(RowOf(*both, "one_inf.npy").max_abs_error));
  EXPECT_THAT(RowOf(*both, "shape.npy").message, HasSubstr("float32 [2] against float32 [3]"));
  EXPECT_TRUE(RowOf(*both, "empty.npy").equal);
  EXPECT_THAT(RowOf(*both, "damaged.npy").message, HasSubstr("golden: "));
  EXPECT_EQ(both->unequal, 2);  // nan, one_inf
  EXPECT_EQ(both->not_compared, 2);
  EXPECT_THAT(both->left_out, testing::ElementsAre(golden + "/notes.txt"));
  EXPECT_THAT(CompareOperatorFolders(npu, folder.path() + "/none").status().message(),
              HasSubstr("none"));
}

}  // namespace
}  // namespace msprobe::operator_dumps
