// What each constructor of engine/compare/relations must not prove, and what no other test asks of
// it. A constructor that proves too much also fails where its proofs are checked (matrix_runs.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/relations/values/moments.h"
#include "engine/model/text_arena.h"
#include "tests/base/temporary_folder.h"
#include "tests/compare/matrix_runs.h"

namespace msprobe::compare::relations {
namespace {

using test::Elements;

// Two elements in the rows of each other: the same moments, and other rows.
Matrix Swapped(Matrix m) {
  std::swap(m.x[3], m.x[3 + 5 * kColumns]);
  return m;
}

// What the target's call makes stands at no place of the golden: there another call makes the like.
Runs Elsewhere(const std::function<void(DumpBuilder&)>& mine,
               const std::function<void(DumpBuilder&)>& other) {
  DumpBuilder t, g;
  for (DumpBuilder* b : {&t, &g}) {
    b->Call("Torch.f.0.forward");
    In(*b, Matrix::Random(kRows, 1));
    if (b == &t) mine(t);
  }
  Out(g, Matrix::Random(kRows, 50));
  g.Call("Functional.g.0.forward");
  In(g, Matrix::Random(kRows, 1));
  other(g);
  return {t.Take(), g.Take()};
}

TEST(SameNumbers, ElsewhereAreProvenBySketches) {
  const Matrix x = Matrix::Random(kRows, 2);
  const auto result = [](const Matrix& m) { return [&m](DumpBuilder& b) { Out(b, m); }; };
  const Matrix swapped = Swapped(x);
  const Runs other = Elsewhere(result(swapped), result(x));
  EXPECT_EQ(other.Result(0).strength, Strength::kNone);
  const Matrix turned = x.Take(Reversed());
  const Runs same = Elsewhere(result(turned), result(x));
  EXPECT_EQ(same.Result(0).proof, Proof::kSameNumbers);
  const Runs without =
      Elsewhere(result(x), [&](DumpBuilder& b) { b.Out(test::Recorded(swapped.x, "[4, 16]")); });
  EXPECT_EQ(without.Result(0).strength, Strength::kNone);
}

TEST(NearNumbers, OfFewElementsAgreeByChance) {
  const auto results = [](float factor) {
    return [factor](DumpBuilder& b) {
      for (const float x : {1.0F, 3.0F, 5.0F, 7.0F})
        b.Out(test::Recorded({factor * x, -factor * x / 3}).DType("torch.bfloat16"));
    };
  };
  const Runs runs = Elsewhere(results(1.005F), results(1));
  EXPECT_EQ(runs.Result(0).strength, Strength::kNone);
}

TEST(Masks, OfAnotherNumberAreOtherMasks) {
  const auto mask = [](int zeros, bool factor, int first = 0) {
    return [=](DumpBuilder& b) {
      Elements x(16, factor ? 1.0F : 0.0F);
      for (int i = 0; i < zeros; ++i) x[3 * i + first] = factor ? 0 : 1;
      test::Tensor t = test::Recorded(x);
      b.Out(factor ? t : t.DType("torch.bool").Print("bool"));
      b.dump().counts.push_back({0, 0, 0, factor ? zeros : 16 - zeros});
      b.last().counts = &b.dump().counts.back();
    };
  };
  const Runs same = Elsewhere(mask(3, true), mask(3, false));
  EXPECT_EQ(same.Result(0).proof, Proof::kMask);
  const Runs other = Elsewhere(mask(4, true), mask(3, false));
  EXPECT_EQ(other.Result(0).strength, Strength::kNone);
  // In one coding the elements themselves tell which they are.
  const Runs shifted = Elsewhere(mask(3, true, 1), mask(3, true));
  EXPECT_NE(shifted.Result(0).proof, Proof::kMask);
}

// A product whose columns stand in the order of `rows`, of values that may be wrong.
Dump Product(const Matrix& x, const Matrix& rows, const Matrix& columns, const Matrix& product) {
  DumpBuilder b;
  b.Call("Torch.g.0.forward");
  In(b, rows.Map([](float v) { return 2 * v; }));  // the batch came in that order
  Out(b, rows);
  b.Call("Tensor.matmul.0.forward");
  In(b, x);
  In(b, columns);
  Out(b, product);
  return b.Take();
}

Matrix TimesTransposed(const Matrix& x, const Matrix& rows) {
  Matrix product = x;
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kRows; ++j) {
      float sum = 0;
      for (int k = 0; k < kColumns; ++k) sum += x.x[i * kColumns + k] * rows.x[j * kColumns + k];
      product.x[i * kColumns + j] = sum;
    }
  }
  return product;
}

TEST(Reordered, NeedsThatAllArgumentsAreRelated) {
  const Matrix x = Matrix::Random(kRows, 2), keys = Matrix::Random(kRows, 3);
  const Matrix turned = keys.Take(Reversed()), other = Matrix::Random(kRows, 4);
  const Matrix mine = TimesTransposed(x, turned);
  const auto run = [&](const Matrix& left, const Matrix& product) {
    return Runs(Product(left, turned, Transposed(turned), product),
                Product(x, keys, Transposed(keys), TimesTransposed(x, keys)));
  };
  EXPECT_EQ(run(x, mine).Result(1).proof, Proof::kReordered);
  EXPECT_EQ(run(other, mine).Result(1).strength, Strength::kNone);
  // And that the numbers are the same.
  const Matrix twice = mine.Map([](float v) { return v < 0 ? v : 1.5F * v; });
  EXPECT_EQ(run(x, twice).Result(1).strength, Strength::kNone);
}

TEST(Reordered, WhatHasTheSameEndsWasNotMoved) {
  const Matrix x = Matrix::Random(kRows, 2);
  Matrix other = x.Map([](float v) { return v / 2; });
  const auto [low, high] = std::minmax_element(x.x.begin(), x.x.end());
  for (const auto end : {low, high}) other.x[end - x.x.begin()] = *end;
  const auto moved_from = [&x](const Matrix& taken) {
    const auto run = [&] {
      DumpBuilder b;
      b.Call("Torch.f.0.forward");
      Out(b, x);
      b.Call("Torch.g.0.forward");
      In(b, taken);
      return b.Take();
    };
    const Runs runs(run(), run());
    return runs.target.MovedFrom(runs.target.Takes(1)[0].value);
  };
  EXPECT_NE(moved_from(Transposed(x)), kNoId);
  EXPECT_EQ(moved_from(other), kNoId);
}

TEST(Reordered, NeedsThatWhatWasMovedIsRelated) {
  const Matrix x = Matrix::Random(kRows, 2), keys = Matrix::Random(kRows, 3);
  const auto columns = [&](const Matrix& rows) {
    const Runs runs(Product(x, rows, Transposed(rows), TimesTransposed(x, rows)),
                    Product(x, keys, Transposed(keys), TimesTransposed(x, keys)));
    return runs.relations.of(runs.target.Takes(1)[1].value).strength;
  };
  EXPECT_EQ(columns(keys.Take(Reversed())), Strength::kSame);
  EXPECT_EQ(columns(Swapped(keys)), Strength::kNone);
}

TEST(TransposedWeights, HaveTheSameElements) {
  const Matrix x = Matrix::Random(kRows, 1), w = Matrix::Random(kRows, 2);
  Matrix other = w;  // the same ends, another element between them
  const auto [low, high] = std::minmax_element(w.x.begin(), w.x.end());
  const size_t at = low != w.x.begin() && high != w.x.begin() ? 0 : 1;
  other.x[at] = *high / 2;
  const auto layer = [&x](const char* name, const Matrix& weight) {
    DumpBuilder b;
    b.Call(name);
    In(b, x);
    Out(b, Matrix::Random(kRows, 5));
    b.Parameter("weight", weight.Recorded());
    Sketch(b, weight);
    return b.Take();
  };
  const auto weight = [&](const Matrix& mine) {
    const Runs runs(layer("Module.fc.Conv1D.forward.0", mine),
                    layer("Module.fc.Linear.forward.0", w));
    return runs.relations.of(runs.target.Takes(0)[1].value).proof;
  };
  EXPECT_EQ(weight(Transposed(w)), Proof::kTransposed);
  EXPECT_NE(weight(Transposed(other)), Proof::kTransposed);
}

// One step of an optimizer, of a weight that the step before left near; in one run it is held
// transposed.
Dump OptimizedRun(const Matrix& weight, const Matrix& gradient) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward");
  In(b, Matrix::Random(kRows, 1));
  In(b, weight);
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", gradient.Recorded());
  Sketch(b, gradient);
  b.Kwarg("weights.w", weight.Recorded());
  Sketch(b, weight);
  Matrix after = weight;
  for (size_t i = 0; i < after.x.size(); ++i) after.x[i] -= 0.1F * gradient.x[i];
  b.Value("param_groups.0.lr", "float", "0.1");
  b.OutAt("0.weights.w", after.Recorded());
  Sketch(b, after);
  return b.Take();
}

TEST(TransposedWeights, StaySoInTheStepsThatFollow) {
  const Matrix w = Matrix::Random(kRows, 2), gradient = Matrix::Random(kRows, 3);
  const auto proof = [&](const Matrix& mine, bool made) {
    const Dump t = OptimizedRun(mine, Transposed(gradient)), g = OptimizedRun(w, gradient);
    Carried left;
    left.left[ContentKey(t.leaves[1])] = {
        .golden = ContentKey(g.leaves[1]), .error = 1e-8, .bound = 1e-6};
    const Runs runs(OptimizedRun(mine, Transposed(gradient)), OptimizedRun(w, gradient), left);
    const Graph& run = runs.target;
    const Port& port = made ? run.Makes(1)[0] : run.Takes(1)[0];
    return runs.relations.of(port.value).proof;
  };
  for (const bool made : {false, true}) EXPECT_EQ(proof(Transposed(w), made), Proof::kTransposed);
  // Of a weight that is not held so, a transposed gradient is another one.
  const Matrix near = w.Map([](float v) { return v * (1 + 3e-7F); });
  EXPECT_NE(proof(near, false), Proof::kTransposed);
}

test::Tensor NumbersOf(const std::vector<int>& n) {
  return test::Recorded(Elements(n.begin(), n.end())).DType("torch.int64");
}

TEST(Indices, ThatAreMovedAreIndices) {
  const Matrix x = Matrix::Random(kRows, 1);
  const auto run = [](const Matrix& table, const std::vector<int>& index) {
    DumpBuilder b;
    b.Call("Torch.index_select.0.forward");
    In(b, table);
    b.In(NumbersOf(index));
    Out(b, table.Take(index));
    const std::vector<int> which = {2, 0, 3};
    b.Call("Torch.index_select.1.forward").In(NumbersOf(index)).In(NumbersOf(which));
    b.Out(NumbersOf({index[2], index[0], index[3]}));
    return b.Take();
  };
  const Runs runs(run(x.Take(Reversed()), {5, 3, 0, 6}), run(x, {2, 4, 7, 1}));
  EXPECT_EQ(runs.Result(1).proof, Proof::kIndex);
}

// A call that takes one weight, which weights.json names.
Dump Takes(const Elements& weight, const TemporaryFolder* folder = nullptr) {
  constexpr std::string_view kPrint = "AAAAAAAAAAA";
  DumpBuilder b;
  test::Tensor w = test::Recorded(weight);
  if (folder != nullptr) {
    folder->Write("weights.json", R"({"w": {"dtype": "torch.float32", "shape": [16], "fp": ")" +
                                      std::string(kPrint) + "\"}}");
    b.dump().folder = folder->path();
    TextArena arena;
    w = w.Print(std::string(FingerprintText(kPrint, &arena)));
  }
  b.Call("Torch.f.0.forward").In(w);
  return b.Take();
}

TEST(MovedAlike, AWeightMayBeAsFarAsTheNoiseOfItsGradientMovesIt) {
  const TemporaryFolder folder;
  const Elements before = test::Random(16, 1),
                 moved = test::Map(before, [](float v) { return 0.9F * v; });
  Carried left;
  left.unseen["w"] = {.noise = 1e-6, .before = MomentsOf(Takes(before), 0)};
  const auto weight = [&](float factor) {
    const Elements mine = test::Map(moved, [factor](float v) { return factor * v; });
    const Runs runs(Takes(mine, &folder), Takes(moved), left);
    return runs.relations.of(runs.target.Takes(0)[0].value);
  };
  EXPECT_EQ(weight(1.0001F).proof, Proof::kMovedAlike);
  EXPECT_EQ(weight(1.0001F).strength, Strength::kNear);
  EXPECT_EQ(weight(1.3F).strength, Strength::kNone);
}

TEST(LeftSo, OnlyWhereTheGoldenHasWhatWasLeft) {
  const Elements mine = test::Random(16, 1), other = test::Random(16, 2);
  const Dump dump = Takes(mine);
  Carried left;
  left.left[ContentKey(dump.leaves[0])] = {.golden = 12345, .error = 1e-7, .bound = 1e-6};
  const Runs runs(Takes(mine), Takes(other), left);
  EXPECT_NE(runs.relations.of(runs.target.Takes(0)[0].value).proof, Proof::kLeftSo);
}

TEST(LeftSo, InTheOrderInWhichItWasLeft) {
  const Elements mine = test::Random(16, 1), other = test::Random(16, 2);
  const Dump t = Takes(mine), g = Takes(other);
  for (const bool in_order : {true, false}) {
    Carried left;
    left.left[ContentKey(t.leaves[0])] = {
        .golden = ContentKey(g.leaves[0]), .error = 1e-7, .bound = 1e-6, .in_order = in_order};
    const Runs runs(Takes(mine), Takes(other), left);
    const Relation& r = runs.relations.of(runs.target.Takes(0)[0].value);
    EXPECT_EQ(r.proof, Proof::kLeftSo);
    EXPECT_EQ(r.strength, in_order ? Strength::kNear : Strength::kSame);
  }
}

TEST(BeganSo, AWeightThatIsNearBeforeAnyCallTakesIt) {
  const TemporaryFolder folder;
  const Elements weight = test::Random(16, 1);
  const auto began = [&](float factor) {
    const Elements mine = test::Map(weight, [factor](float v) { return factor * v; });
    const Runs runs(Takes(mine, &folder), Takes(weight));
    return runs.relations.of(runs.target.Takes(0)[0].value);
  };
  EXPECT_EQ(began(1 + 2e-7F).proof, Proof::kBeganSo);
  EXPECT_EQ(began(1 + 2e-7F).strength, Strength::kNear);
  EXPECT_EQ(began(1.01F).strength, Strength::kNone);
}

// The number by which the golden's result is to be multiplied.
double FactorOf(const Matrix& mine, const Matrix& other, bool sketches) {
  DumpBuilder t, g;
  for (const auto& [b, m] : {std::pair{&t, &mine}, std::pair{&g, &other}}) {
    b->Call("Torch.f.0.forward").In(test::Recorded(test::Random(16, 1)));
    if (sketches)
      Out(*b, *m);
    else
      b->Out(m->Recorded());
  }
  return Runs(t.Take(), g.Take()).Result(0).factor;
}

TEST(SoManyTimes, IsSaidOfTheSameElementsAlone) {
  const Matrix x = Matrix::Random(kRows, 2), other = Matrix::Random(kRows, 3);
  const auto twice = [](const Matrix& m) { return m.Map([](float v) { return 2 * v; }); };
  for (const bool sketches : {true, false}) {
    EXPECT_NEAR(FactorOf(twice(x), x, sketches), 2, 1e-6);
    EXPECT_EQ(FactorOf(twice(other), x, sketches), 0);
  }
  EXPECT_EQ(FactorOf(twice(Swapped(x)), x, true), 0);
}

}  // namespace
}  // namespace msprobe::compare::relations
