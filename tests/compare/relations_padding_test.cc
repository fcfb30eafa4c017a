// A batch that one run pads more than the other (engine/compare/relations/forms.cc).
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/compare/matrix_runs.h"

namespace msprobe::compare::relations {
namespace {

// Counts the zeros of the last value, as a recorder does.
void CountZeros(DumpBuilder& b, const Matrix& m) {
  const auto zeros = std::count(m.x.begin(), m.x.end(), 0.0F);
  b.dump().counts.push_back({0, 0, 0, zeros});
  b.last().counts = &b.dump().counts.back();
}

// Rows that are masked and go through a layer, which adds a bias to each of them.
Dump Padded(const Matrix& rows, const Matrix& made) {
  DumpBuilder b;
  b.Call("Torch.mul.0.forward");
  Out(b, rows);
  CountZeros(b, rows);
  b.Call("Functional.linear.0.forward");
  In(b, rows);
  CountZeros(b, rows);
  Out(b, made);
  CountZeros(b, made);
  return b.Take();
}

Matrix Longer(Matrix m, const std::vector<float>& by) {
  m.x.insert(m.x.end(), by.begin(), by.end());
  return m;
}

TEST(Padding, APaddedBatchHasTheRowsOfThePartner) {
  const Matrix x = Matrix::Random(6, 1), y = Matrix::Random(6, 2), bias = Matrix::Random(1, 3);
  const std::vector<float> zeros(2 * kColumns, 0.0F);
  std::vector<float> biases = bias.x;
  biases.insert(biases.end(), bias.x.begin(), bias.x.end());
  const auto golden = [&] { return Padded(x, y); };
  const auto longer = [&] { return Padded(Longer(x, zeros), Longer(y, biases)); };
  for (const bool more : {true, false}) {
    const Runs runs(more ? longer() : golden(), more ? golden() : longer());
    for (const CallId call : {0, 1}) {
      EXPECT_EQ(runs.Result(call).strength, Strength::kNear);
      EXPECT_EQ(runs.Result(call).proof, Proof::kPadded);
    }
  }
}

TEST(Padding, RowsThatDifferAmongThemselvesAreNoPadding) {
  const Matrix x = Matrix::Random(6, 1), y = Matrix::Random(6, 2), bias = Matrix::Random(1, 3);
  const std::vector<float> zeros(2 * kColumns, 0.0F);
  std::vector<float> biases = bias.x;
  biases.insert(biases.end(), bias.x.begin(), bias.x.end());
  // One of the further rows is another one.
  std::vector<float> unlike = biases;
  unlike[3] += 0.5F;
  const Runs further(Padded(Longer(x, zeros), Longer(y, unlike)), Padded(x, y));
  EXPECT_EQ(further.Result(1).strength, Strength::kNone);
  // So is one of the partner's.
  Matrix wrong = y;
  wrong.x[9] += 0.5F;
  const Runs partner(Padded(Longer(x, zeros), Longer(wrong, biases)), Padded(x, y));
  EXPECT_EQ(partner.Result(1).strength, Strength::kNone);
  // One further row is always equal to itself: what is not made of padding is another value.
  const Matrix seventh = Matrix::Random(1, 4);
  const Runs single(Padded(Longer(x, seventh.x), Longer(y, bias.x)), Padded(x, y));
  for (const CallId call : {0, 1}) EXPECT_EQ(single.Result(call).strength, Strength::kNone);
}

TEST(Padding, ZerosBesideOtherRowsAreNoPadding) {
  const Matrix x = Matrix::Random(6, 1), y = Matrix::Random(6, 2);
  const std::vector<float> zeros(2 * kColumns, 0.0F);
  Matrix other = x;  // the same moments
  std::swap(other.x[3], other.x[3 + 2 * kColumns]);
  const Runs runs(Padded(Longer(other, zeros), Longer(y, zeros)), Padded(x, y));
  EXPECT_EQ(runs.Result(0).strength, Strength::kNone);
  EXPECT_EQ(runs.Result(1).proof, Proof::kPadded);
}

// Statistics that do not fit the sketch, as a damaged file has them.
TEST(Padding, TheRangeOfTheLongerHoldsThatOfTheShorter) {
  const Matrix x = Matrix::Random(6, 1), y = Matrix::Random(6, 2), bias = Matrix::Random(1, 3);
  const std::vector<float> zeros(2 * kColumns, 0.0F);
  std::vector<float> biases = bias.x;
  biases.insert(biases.end(), bias.x.begin(), bias.x.end());
  Dump golden = Padded(x, y);
  golden.leaves.back().max_value *= 2;
  const Runs runs(Padded(Longer(x, zeros), Longer(y, biases)), std::move(golden));
  EXPECT_EQ(runs.Result(1).strength, Strength::kNone);
}

// Of statistics alone, too: that sums agree says that its elements are there, whatever their order.
TEST(Padding, IsNotDoubtfulWithoutSketches) {
  const auto padded = [](const Matrix& rows) {
    DumpBuilder b;
    b.Call("Torch.mul.0.forward").In(Matrix::Random(rows.rows(), 7).Recorded());
    b.Out(rows.Recorded());
    CountZeros(b, rows);
    return b.Take();
  };
  const Matrix x = Matrix::Random(6, 1);
  const Runs runs(padded(Longer(x, std::vector<float>(2 * kColumns, 0.0F))), padded(x));
  EXPECT_EQ(runs.Result(0).proof, Proof::kPadded);
  EXPECT_FALSE(runs.Result(0).doubtful);
}

}  // namespace
}  // namespace msprobe::compare::relations
