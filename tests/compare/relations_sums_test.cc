// Numbers that are made of parts of a batch: losses (engine/compare/relations/parts.cc).
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/compare/matrix_runs.h"

namespace msprobe::compare::relations {
namespace {

// Two calls that take four rows each, and the loss of each of them. `scaled`: the second one is a
// term with a weight of its own.
Dump Losses(const Matrix& x, const std::vector<int>& first, const std::vector<int>& second,
            bool scaled = false) {
  DumpBuilder b;
  int call = 0;
  for (const std::vector<int>& rows : {first, second}) {
    const std::string number = std::to_string(call++);
    const Matrix squares = x.Take(rows).Map([](float v) { return v * v; });
    const float sum = std::accumulate(squares.x.begin(), squares.x.end(), 0.0F);
    b.Call("Tensor.square." + number + ".forward");
    In(b, x.Take(rows));
    Out(b, squares);
    b.Call("Tensor.sum." + number + ".forward");
    In(b, squares);
    b.Out(test::Recorded({sum}, "[]"));
    const bool other = scaled && call == 2;
    b.Call(other ? "Tensor.__rmul__.0.forward" : "Tensor.__truediv__." + number + ".forward");
    b.In(test::Recorded({sum}, "[]")).Value("1", "float", "4.0");
    b.Out(test::Recorded({other ? 4 * sum : sum / 4}, "[]"));
  }
  return b.Take();
}

TEST(Sums, OfPartsThatWereDealtInAnotherWayAddUp) {
  const Matrix x = Matrix::Random(kRows, 1);
  const std::vector<int> front = {0, 1, 2, 3}, back = {4, 5, 6, 7}, even = {0, 2, 4, 6},
                         odd = {1, 3, 5, 7};
  const Runs runs(Losses(x, even, odd), Losses(x, front, back));
  for (const CallId call : {1, 2, 4, 5}) {
    EXPECT_EQ(runs.Result(call).strength, Strength::kNear);
    EXPECT_EQ(runs.Result(call).proof, Proof::kPartOfBatch);
  }
  // One row twice, another never.
  const Runs twice(Losses(x, even, {1, 3, 5, 6}), Losses(x, front, back));
  for (const CallId call : {1, 4}) EXPECT_EQ(twice.Result(call).strength, Strength::kNone);
  // Two terms of one loss, whose rows were chosen otherwise.
  const Runs terms(Losses(x, even, odd, true), Losses(x, front, back, true));
  for (const CallId call : {1, 4}) EXPECT_EQ(terms.Result(call).strength, Strength::kNone);
}

}  // namespace
}  // namespace msprobe::compare::relations
