// What sketches add to the relations of engine/compare/relations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "engine/compare/relations/values/sketch.h"
#include "engine/kernels/sketch.h"
#include "engine/model/sketch_text.h"
#include "tests/compare/divergence_values.h"
#include "tests/compare/dump_builder.h"
#include "tests/compare/matrix_runs.h"
#include "tests/compare/recorded.h"

namespace msprobe::compare::relations {
namespace {

// A layer and the update of its weight. `transposed`: the run holds the weight so, and what belongs
// to it. `loaded_so`: by mistake, and the layer computes what it can.
Dump LayerOf(bool transposed, float gradient_factor = 1, bool loaded_so = false) {
  const Matrix x = Matrix::Random(kRows, 1), w = Matrix::Random(kRows, 2);
  const Matrix used = loaded_so ? Transposed(w) : w;
  const Matrix gradient =
      Matrix::Random(kRows, 3).Map([&](float v) { return v * gradient_factor; });
  Matrix y = x, after = w;
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      float sum = 0;
      for (int k = 0; k < kColumns; ++k) sum += x.x[i * kColumns + k] * used.x[k * kColumns + j];
      y.x[i * kColumns + j] = sum;
    }
  }
  for (size_t i = 0; i < after.x.size(); ++i) after.x[i] = w.x[i] - 0.1F * gradient.x[i];
  const auto form = [&](const Matrix& m) { return transposed || loaded_so ? Transposed(m) : m; };
  DumpBuilder b;
  b.Call(transposed ? "Torch.addmm.0.forward" : "Functional.linear.0.forward");
  In(b, x);
  In(b, form(w));
  Out(b, y);
  b.dump().weights = {{.name = "w", .fingerprint = b.dump().leaves[1].fingerprint}};
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", form(gradient).Recorded());
  Sketch(b, form(gradient));
  b.Kwarg("weights.w", form(w).Recorded());
  Sketch(b, form(w));
  b.Value("param_groups.0.lr", "float", "0.1");
  b.OutAt("0.weights.w", form(after).Recorded());
  Sketch(b, form(after));
  return b.Take();
}

Runs OneCall(const Matrix& mine, const Matrix& other) {
  DumpBuilder t, g;
  for (auto [b, m] : {std::pair{&t, &mine}, std::pair{&g, &other}}) {
    b->Call("Torch.f.0.forward");
    In(*b, *m);
    Out(*b, m->Map([](float v) { return std::sin(3 * v); }));
  }
  return {t.Take(), g.Take()};
}

TEST(RowSketch, TellsRowsInAnotherOrderFromOtherElements) {
  const Matrix x = Matrix::Random(kRows, 1);
  const Runs reversed = OneCall(x.Take(Reversed()), x);
  EXPECT_EQ(reversed.Result(0).strength, Strength::kSame);
  EXPECT_TRUE(reversed.Result(0).proven);
  EXPECT_FALSE(reversed.Result(0).doubtful);  // the data came so
  Matrix swapped = x;  // the same moments, and two elements in the rows of each other
  std::swap(swapped.x[3], swapped.x[3 + 5 * kColumns]);
  const Runs other = OneCall(swapped, x);
  EXPECT_EQ(other.Result(0).strength, Strength::kNone);
}

TEST(RowSketch, AMatrixMayBeHeldTransposed) {
  for (const bool swap : {false, true}) {
    const Comparison calm = test::MustCompare(LayerOf(swap), LayerOf(!swap));
    EXPECT_EQ(calm.first.pair, -1) << calm.first.why.English();
    const Comparison rounded = test::MustCompare(LayerOf(swap, 1 + 1e-6F), LayerOf(!swap));
    EXPECT_EQ(rounded.first.pair, -1) << rounded.first.why.English();
    EXPECT_GE(test::MustCompare(LayerOf(swap, 1.1F), LayerOf(!swap)).first.pair, 0);
  }
  // Not where it gives something else: it was loaded so by mistake.
  EXPECT_GE(test::MustCompare(LayerOf(false, 1, true), LayerOf(false)).first.pair, 0);
}

TEST(RowSketch, OrderThatTheStepChangesIsDoubtful) {
  const Matrix x = Matrix::Random(kRows, 1);
  DumpBuilder t, g;
  t.Call("Torch.f.0.forward");
  In(t, x);
  Out(t, x.Take(Reversed()));
  g.Call("Torch.f.0.forward");
  In(g, x);
  Out(g, x.Take({1, 0, 2, 3, 4, 5, 6, 7}));
  const Runs runs(t.Take(), g.Take());
  EXPECT_EQ(runs.Result(0).strength, Strength::kSame);
  EXPECT_TRUE(runs.Result(0).doubtful);
}

// Two calls that take four rows each. `other`: when another module runs; -1: never.
Dump Dealt(const Matrix& x, const std::vector<int>& first, const std::vector<int>& second,
           int other = -1) {
  DumpBuilder b;
  int call = 0;
  for (const std::vector<int>& rows : {first, second, {}}) {
    if (call == other) {
      b.Call("Torch.g.0.forward").Parent("Module.other.Other.forward.0");
      Out(b, Matrix::Random(kRows, 9));
    }
    if (rows.empty()) break;
    b.Call("Torch.f." + std::to_string(call) + ".forward");
    b.Parent("Module.mine.Net.forward." + std::to_string(call++));
    In(b, x.Take(rows));
    Out(b, x.Take(rows).Map([](float v) { return std::sin(3 * v); }));
  }
  return b.Take();
}

TEST(RowSketch, RowsMayBeDealtToTheCallsInAnotherWay) {
  const Matrix x = Matrix::Random(kRows, 1);
  const Runs runs(Dealt(x, {2, 0, 7, 5}, {1, 3, 4, 6}), Dealt(x, {0, 1, 2, 3}, {4, 5, 6, 7}));
  for (const CallId call : {0, 1}) {
    EXPECT_EQ(runs.Result(call).proof, Proof::kPartOfBatch);
    EXPECT_TRUE(runs.relations.IsPart(runs.target.Makes(call)[0].value));
  }
  // One row twice, another never.
  const Runs other(Dealt(x, {2, 0, 7, 5}, {1, 3, 4, 5}), Dealt(x, {0, 1, 2, 3}, {4, 5, 6, 7}));
  EXPECT_EQ(other.Result(1).strength, Strength::kNone);
}

// Rows that are chosen, by their positions, and written to others. `wrong`: by another operation.
Dump Placed(bool reversed, bool wrong) {
  const std::vector<int> kept = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<int> order = reversed ? Reversed() : kept;
  const Matrix x = Matrix::Random(kRows, 1).Take(order);
  const Matrix y = x.Map([](float v) { return std::sin(3 * v); });
  const Matrix written = Matrix::Random(kRows, wrong ? 2 : 3).Take(order);
  std::vector<float> chosen;
  for (const float row : {1.0F, 2.0F, 4.0F, 6.0F})
    chosen.push_back(20 + (reversed ? 7 - row : row));
  const auto rows = [&] { return test::Recorded(chosen, "[4]").DType("torch.int64"); };
  DumpBuilder b;
  b.Call("Torch.f.0.forward");
  In(b, x);
  Out(b, y);
  b.Call("Tensor.nonzero.0.forward");
  In(b, y);
  b.Out(rows());
  b.Call(wrong ? "Tensor.index_copy.0.forward" : "Tensor.index_add.0.forward");
  In(b, y);
  b.In(rows());
  Out(b, written);
  const test::Tensor sum = test::Recorded(test::Random(kColumns, wrong ? 4 : 5));
  b.Call("Tensor.sum.0.forward");
  In(b, written);
  b.Out(sum);
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", sum);
  return b.Take();
}

TEST(RowSketch, PositionsOfRowsInAnotherOrderAreOtherOnes) {
  const auto first = [](Dump target, Dump golden) {
    return std::string(test::First(test::MustCompare(std::move(target), std::move(golden))));
  };
  EXPECT_EQ(first(Placed(true, false), Placed(false, false)), "none");
  EXPECT_EQ(first(Placed(true, true), Placed(false, false)), "Tensor.index_copy.0.forward");
}

// Two calls each of which takes rows of its own. `exchanged`: a row of each result is in the other.
Dump RowsOfTwo(bool exchanged) {
  const Matrix x = Matrix::Random(kRows, 1);
  const auto f = [](float v) { return std::sin(3 * v); };
  DumpBuilder b;
  const std::vector<int> given[] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  const std::vector<int> mixed[] = {{4, 1, 2, 3}, {0, 5, 6, 7}};
  for (int call = 0; call < 2; ++call) {
    b.Call("Torch.f." + std::to_string(call) + ".forward");
    b.Parent("Module.mine.Net.forward." + std::to_string(call));
    In(b, x.Take(given[call]));
    Out(b, x.Take((exchanged ? mixed : given)[call]).Map(f));
  }
  return b.Take();
}

TEST(RowSketch, OfWholeValuesACallMakesNoParts) {
  const Runs runs(RowsOfTwo(true), RowsOfTwo(false));
  EXPECT_EQ(runs.Result(0).strength, Strength::kNone);
  EXPECT_EQ(runs.Result(1).strength, Strength::kNone);
}

// A layer that takes four rows at a time, and gives back the gradient of its weight. `twice`: the
// last row counts twice.
Dump DealtToALayer(const std::vector<int>& first, const std::vector<int>& second,
                   bool twice = false) {
  const Matrix x = Matrix::Random(kRows, 1), w = Matrix::Random(kRows, 2);
  DumpBuilder b;
  int call = 0;
  for (const std::vector<int>& rows : {first, second}) {
    Matrix given = x.Take(rows), gradient = w.Map([](float) { return 0.0F; });
    for (int row = 0; row < given.rows(); ++row) {
      for (int i = 0; i < kRows * kColumns; ++i) {
        const float product = given.x[row * kColumns + i / kColumns] *
                              std::sin(given.x[row * kColumns + i % kColumns]);
        gradient.x[i] += twice && row + 1 == given.rows() ? 2 * product : product;
      }
    }
    const std::string name = "Functional.linear." + std::to_string(call);
    const std::string module = "Module.mine.Net.forward." + std::to_string(call++);
    b.Call(name + ".forward").Parent(module);
    In(b, given);
    In(b, w);
    Out(b, given.Map([](float v) { return 2 * v; }));
    b.Call(module);
    In(b, given);
    Out(b, given.Map([](float v) { return 2 * v; }));
    b.Parameter("weight", w.Recorded());
    b.Call(name + ".backward").Parent(module);
    In(b, given.Map([](float v) { return std::sin(v); }));
    Out(b, given.Map([](float v) { return std::cos(v); }));
    Out(b, gradient);
  }
  return b.Take();
}

TEST(RowSketch, GradientsOfAWeightAddUpHoweverRowsAreDealt) {
  const auto gradient = [](const Runs& runs, CallId backward) {
    return runs.relations.of(runs.target.Makes(backward)[1].value);
  };
  const Runs dealt(DealtToALayer({2, 0, 7, 5}, {1, 3, 4, 6}),
                   DealtToALayer({0, 1, 2, 3}, {4, 5, 6, 7}));
  EXPECT_EQ(gradient(dealt, 2).proof, Proof::kPartOfBatch);
  EXPECT_EQ(gradient(dealt, 5).proof, Proof::kPartOfBatch);
  const Runs wrong(DealtToALayer({2, 0, 7, 5}, {1, 3, 4, 6}, true),
                   DealtToALayer({0, 1, 2, 3}, {4, 5, 6, 7}));
  EXPECT_EQ(gradient(wrong, 5).strength, Strength::kNone);
}

TEST(RowSketch, AModuleIsTheSameInBothRunsWhereverOtherOnesRun) {
  const Matrix x = Matrix::Random(kRows, 1);
  const Comparison c = test::MustCompare(Dealt(x, {2, 0, 7, 5}, {1, 3, 4, 6}, /*other=*/2),
                                         Dealt(x, {0, 1, 2, 3}, {4, 5, 6, 7}, /*other=*/0));
  EXPECT_EQ(c.first.pair, -1) << c.first.why.English();
}

TEST(RowSketch, OneCallMayDivideItsRowsInAnotherWay) {
  const Matrix x = Matrix::Random(kRows, 1);
  const auto run = [&x](const std::vector<int>& first, const std::vector<int>& second) {
    DumpBuilder b;
    b.Call("Tensor.chunk.0.forward");
    In(b, x);
    Out(b, x.Take(first));
    Out(b, x.Take(second));
    return b.Take();
  };
  const Runs runs(run({0, 2, 4, 6}, {1, 3, 5, 7}), run({0, 1, 2, 3}, {4, 5, 6, 7}));
  for (const Port& port : runs.target.Makes(0)) EXPECT_TRUE(runs.relations.IsPart(port.value));
}

TEST(RowSketch, WhatAllPartsTakeDoesNotHideThatTheyAreParts) {
  const Matrix mask = Matrix::Random(1, 3), x = Matrix::Random(kRows, 1);
  DumpBuilder t, g;
  const auto call = [&mask](DumpBuilder& b, int number, const Matrix& rows) {
    b.Call("Torch.f." + std::to_string(number) + ".forward");
    In(b, mask);
    In(b, rows);
    Out(b, rows.Map([](float v) { return std::sin(3 * v); }));
  };
  call(t, 0, x);
  call(g, 0, x.Take({0, 1, 2, 3}));
  call(g, 1, x.Take({4, 5, 6, 7}));
  const Runs runs(t.Take(), g.Take());
  EXPECT_EQ(runs.Result(0).proof, Proof::kPartOfBatch);
}

TEST(RowSketch, AValueAndItsRestAddUpToOneByChance) {
  const Matrix x = Matrix::Random(4, 1), y = Matrix::Random(4, 2);
  const auto run = [](const Matrix& m) {
    const Matrix rest = m.Map([](float v) { return 1 - v; });
    DumpBuilder b;
    int call = 0;
    for (const Matrix* each : {&m, &rest}) {
      b.Call("Torch.f." + std::to_string(call++) + ".forward");
      In(b, *each);
    }
    return b.Take();
  };
  const Runs runs(run(x), run(y));
  EXPECT_EQ(runs.relations.of(runs.target.Takes(0)[0].value).strength, Strength::kNone);
}

TEST(RowSketch, PiecesOfAWeightLieSideBySide) {
  const Matrix a = Matrix::Random(4, 1);
  const int64_t wide[] = {4, 8}, half[] = {4, 4};
  std::vector<float> left, right;
  for (int i = 0; i < 4; ++i) {
    left.insert(left.end(), a.x.begin() + 8 * i, a.x.begin() + 8 * i + 4);
    right.insert(right.end(), a.x.begin() + 8 * i + 4, a.x.begin() + 8 * i + 8);
  }
  const auto sketch = [](const std::vector<float>& x, const int64_t* extents) {
    const TensorView view{.data = x.data(), .dtype = DType::kFloat32, .ndim = 2, .shape = extents};
    return RowSketch{extents[0], extents[1], kernels::ComputeSketch(view).value()};
  };
  const std::vector<RowSketch> whole = {sketch(a.x, wide)};
  const std::vector<RowSketch> parts = {sketch(left, half), sketch(right, half)};
  const std::vector<RowSketch> exchanged = {parts[1], parts[0]};
  EXPECT_LT(DistanceSideBySide(parts, whole, 1), 1e-6);
  EXPECT_GT(DistanceSideBySide(exchanged, whole, 1), 0.1);
}

TEST(RowSketch, SumsThatOverflowAreFarApart) {
  constexpr double kHuge = 1.7e308;
  const RowSketch a{8, 8, {.rows = 1, .wave = {kHuge, 0}, .squares = 1}},
      b{8, 8, {.rows = 1, .wave = {-kHuge, kHuge}, .squares = 1}};
  EXPECT_EQ(DistanceOf(a, b, 1).in_order, test::kInf);
  const std::vector<RowSketch> many = {a, a, b}, two = {b, b};
  EXPECT_EQ(DistanceOfSums(many, two, 1), test::kInf);
}

// Row i of the result is row index[i] of the table.
Dump Selected(const Matrix& table, const std::vector<int>& index) {
  DumpBuilder b;
  b.Call("Torch.index_select.0.forward");
  In(b, table);
  test::Tensor numbers;
  double sum = 0, squares = 0;
  std::string text;
  for (const int i : index) sum += i, squares += i * i, text += std::to_string(i);
  numbers.max = *std::max_element(index.begin(), index.end());
  numbers.min = *std::min_element(index.begin(), index.end());
  numbers.mean = sum / static_cast<double>(index.size()), numbers.norm = std::sqrt(squares);
  b.In(numbers.Shape("[" + std::to_string(index.size()) + "]").DType("torch.int64").Print(text));
  Out(b, table.Take(index));
  return b.Take();
}

TEST(RowSketch, IndicesNameTheRowsOfATableInAnotherOrder) {
  const Matrix x = Matrix::Random(kRows, 1);
  const Runs runs(Selected(x.Take(Reversed()), {5, 3, 0}), Selected(x, {2, 4, 7}));
  EXPECT_EQ(runs.Result(0).strength, Strength::kEqual);
  const ValueId index = runs.target.Takes(0)[1].value;
  EXPECT_EQ(runs.relations.of(index).proof, Proof::kIndex);
  const Runs other(Selected(x.Take(Reversed()), {5, 3, 1}), Selected(x, {2, 4, 7}));
  EXPECT_EQ(other.relations.of(other.target.Takes(0)[1].value).strength, Strength::kNone);
}

TEST(RowSketch, AnIndexThatIsTakenByAWrongOneIsNotRight) {
  const Matrix x = Matrix::Random(kRows, 1);
  const auto run = [](const Matrix& table, const std::vector<int>& index, int wrong) {
    DumpBuilder b;
    const auto numbers = [](const std::vector<int>& n) {
      test::Tensor t = test::Recorded(std::vector<float>(n.begin(), n.end()));
      return t.DType("torch.int64");
    };
    b.Call("Torch.index_select.0.forward");
    In(b, table);
    b.In(numbers(index));
    Out(b, table.Take(index));
    const std::vector<int> which = {wrong, 0, 3};
    b.Call("Torch.index_select.1.forward").In(numbers(index)).In(numbers(which));
    b.Out(numbers({index[which[0]], index[which[1]], index[which[2]]}));
    return b.Take();
  };
  const Runs runs(run(x.Take(Reversed()), {5, 3, 0, 6}, 2), run(x, {2, 4, 7, 1}, 1));
  EXPECT_EQ(runs.relations.of(runs.target.Takes(0)[1].value).proof, Proof::kIndex);
  EXPECT_EQ(runs.Result(1).strength, Strength::kNone);
}

TEST(RowSketch, AnIndexThatAWrongValueMakesIsNotRight) {
  const Matrix x = Matrix::Random(kRows, 1), scores = Matrix::Random(1, 2);
  const auto run = [&scores](const Matrix& table, const std::vector<int>& index, float factor) {
    const Matrix scaled = scores.Map([factor](float v) { return factor * v; });
    const test::Tensor numbers =
        test::Recorded(std::vector<float>(index.begin(), index.end())).DType("torch.int64");
    DumpBuilder b;
    b.Call("Tensor.argsort.0.forward");
    In(b, scaled);
    b.Out(numbers);
    b.Call("Torch.index_select.0.forward");
    In(b, table);
    b.In(numbers);
    Out(b, table.Take(index));
    return b.Take();
  };
  const Runs right(run(x.Take(Reversed()), {5, 3, 0}, 1), run(x, {2, 4, 7}, 1));
  EXPECT_EQ(right.Result(0).proof, Proof::kIndex);
  const Runs wrong(run(x.Take(Reversed()), {5, 3, 0}, 2), run(x, {2, 4, 7}, 1));
  EXPECT_EQ(wrong.Result(0).strength, Strength::kNone);
}

// A weight that two calls take; an operation takes the sum of its gradients, or something else.
Dump Unscaled(bool sum) {
  const Matrix weight = Matrix::Random(kRows, 60);
  const Matrix parts[] = {Matrix::Random(kRows, 61), Matrix::Random(kRows, 62)};
  Matrix whole = parts[0];
  for (size_t i = 0; i < whole.x.size(); ++i) whole.x[i] += sum ? parts[1].x[i] : 1;
  DumpBuilder b;
  for (unsigned n = 0; n < 2; ++n) {
    b.Call("Functional.linear." + std::to_string(n) + ".forward");
    In(b, Matrix::Random(kRows, 63 + n));
    In(b, weight);
    Out(b, Matrix::Random(kRows, 65 + n));
    b.Call("Functional.linear." + std::to_string(n) + ".backward");
    In(b, Matrix::Random(kRows, 67 + n));
    Out(b, Matrix::Random(kRows, 69 + n));
    Out(b, parts[n]);
  }
  b.Call("Tensor.div_.0.forward");
  In(b, whole);
  Out(b, whole.Map([](float v) { return v / 64; }));
  return b.Take();
}

TEST(Sums, AnOperationMayTakeTheSumOfTheGradientsOfAWeight) {
  for (const bool sum : {true, false}) {
    const Runs runs(Unscaled(sum), Unscaled(sum));
    const auto last = static_cast<CallId>(runs.target.calls.size()) - 1;
    EXPECT_EQ(runs.target.PartsOf(runs.target.Takes(last)[0].value).size(), sum ? 2U : 0U);
  }
}

// Two parts of a batch in another order: a large one, and a small one that is wrong by `factor`.
TEST(RowSketch, ALargePartDoesNotHideASmallOne) {
  const Matrix large = Matrix::Random(4, 1).Map([](float v) { return 1000 * v; });
  const Matrix small = Matrix::Random(4, 2);
  const auto run = [](const Matrix& first, const Matrix& second) {
    DumpBuilder b;
    int call = 0;
    for (const Matrix* each : {&first, &second}) {
      b.Call("Torch.f." + std::to_string(call++) + ".forward");
      In(b, *each);
    }
    return b.Take();
  };
  const auto taken = [](const Runs& runs, CallId call) {
    return runs.relations.of(runs.target.Takes(call)[0].value).strength;
  };
  const Runs right(run(small, large), run(large, small));
  EXPECT_GE(taken(right, 0), Strength::kNear);
  const Matrix wrong = small.Map([](float v) { return v * 1.0001F; });
  EXPECT_EQ(taken(Runs(run(wrong, large), run(large, small)), 0), Strength::kNone);
}

// A product with the transpose of rows, which nobody records: its columns are in their order.
TEST(RowSketch, ColumnsInTheOrderOfRowsThatWereMoved) {
  const Matrix x = Matrix::Random(kRows, 1), keys = Matrix::Random(kRows, 2);
  const auto run = [&](const std::vector<int>& order, bool transposed) {
    const Matrix rows = keys.Take(order);
    Matrix columns = rows;
    for (int i = 0; i < kRows && transposed; ++i) {
      for (int j = 0; j < kColumns; ++j) columns.x[j * kColumns + i] = rows.x[i * kColumns + j];
    }
    Matrix product = x;
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) {
        float sum = 0;
        for (int k = 0; k < kColumns; ++k)
          sum += x.x[i * kColumns + k] * columns.x[k * kColumns + j];
        product.x[i * kColumns + j] = sum;
      }
    }
    DumpBuilder b;
    b.Call("Torch.g.0.forward");
    In(b, keys.Take(order).Map([](float v) { return 2 * v; }));
    Out(b, rows);
    b.Call("Tensor.matmul.0.forward");
    In(b, x);
    In(b, columns);
    Out(b, product);
    return b.Take();
  };
  const std::vector<int> own = {0, 1, 2, 3, 4, 5, 6, 7};
  const Runs reordered(run(Reversed(), true), run(own, true));
  EXPECT_EQ(reordered.Result(1).strength, Strength::kSame);
  EXPECT_FALSE(reordered.Result(1).doubtful);
  const Runs forgotten(run(own, false), run(own, true));
  EXPECT_EQ(forgotten.Result(1).strength, Strength::kNone);
}

// Queries and keys of one weight, or of two with biases between them.
TEST(Pieces, OfAWeightHaveOtherParametersBetweenThem) {
  const Matrix weight = Matrix::Random(kRows, 1), x = Matrix::Random(kRows, 2),
               bias = Matrix::Random(2, 3);
  const auto call = [&x](DumpBuilder& b, const std::string& name, const Matrix& w,
                         const std::vector<float>& add) {
    b.Call("Module." + name + ".Linear.forward.0");
    In(b, x);
    Out(b, x.Map([&w](float v) { return v * w.x[0]; }));
    b.Parameter("weight", w.Recorded());
    Sketch(b, w);
    b.Parameter("bias", test::Recorded(add));
  };
  DumpBuilder t, g;
  call(t, "q", weight.Take({0, 1, 2, 3}), bias.Take({0}).x);
  call(t, "k", weight.Take({4, 5, 6, 7}), bias.Take({1}).x);
  call(g, "qk", weight, bias.x);
  const Runs runs(t.Take(), g.Take());
  for (const CallId id : {0, 1}) {
    for (const Port& port : runs.target.Takes(id)) {
      if (runs.target.dump.leaves[port.leaf].slot == Slot::kParameter &&
          runs.target.values[port.value].shape.extents().size() == 2) {
        EXPECT_EQ(runs.relations.of(port.value).proof, Proof::kPieceOfWeight);
      }
    }
  }
}

// What an optimizer takes of a weight, or of its two halves; the second half is wrong by `factor`.
Dump Stepped(bool halves, float factor) {
  const Matrix weight = Matrix::Random(kRows, 1), gradient = Matrix::Random(kRows, 2);
  const auto half = [](const Matrix& m, int n) {
    return m.Take(n == 0 ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{4, 5, 6, 7});
  };
  const auto add = [](DumpBuilder& b, const std::string& name, const Matrix& w) {
    b.Kwarg(name, w.Recorded());
    Sketch(b, w);
  };
  DumpBuilder b;
  for (int n = 0; n < (halves ? 2 : 1); ++n) {
    b.Call("Module." + std::string(!halves ? "qk" : n == 0 ? "q" : "k") + ".Linear.forward.0");
    In(b, Matrix::Random(kRows, 3));
    Out(b, Matrix::Random(kRows, 4 + n));
    const Matrix own = halves ? half(weight, n) : weight;
    b.Parameter("weight", own.Recorded());
    Sketch(b, own);
  }
  b.Call("Optimizer.SGD.step.0.forward");
  for (int n = 0; n < (halves ? 2 : 1); ++n) {
    const std::string name = std::string(!halves ? "qk" : n == 0 ? "q" : "k") + ".weight";
    const Matrix own = halves ? half(gradient, n) : gradient;
    add(b, "gradients." + name, n == 0 ? own : own.Map([factor](float v) { return v * factor; }));
    add(b, "weights." + name, halves ? half(weight, n) : weight);
  }
  return b.Take();
}

TEST(Pieces, OfAWeightHaveGradientsThatArePieces) {
  for (const float factor : {1.0F, 2.0F}) {
    const Runs runs(Stepped(true, factor), Stepped(false, 1));
    for (CallId id = 2; id < static_cast<CallId>(runs.target.calls.size()); ++id) {
      const ValueId gradient = runs.target.Takes(id)[0].value;
      EXPECT_EQ(runs.relations.IsRight(gradient), factor == 1) << id;
    }
  }
}

// Large and small rows, of which each part of the golden has some, and each part of the target one
// kind; the rounding of the large ones is more than the small ones are.
TEST(RowSketch, OfASmallPartNothingIsKnownBesideTheRoundingOfALargeOne) {
  const Matrix large = Matrix::Random(4, 1).Map([](float v) { return 1000 * v; });
  const Matrix small = Matrix::Random(4, 2).Map([](float v) { return v / 1000; });
  const auto with = [](const Matrix& a, const Matrix& b) {
    Matrix all = a;
    all.x.insert(all.x.end(), b.x.begin(), b.x.end());
    return all;
  };
  const auto run = [](const Matrix& first, const Matrix& second) {
    DumpBuilder b;
    int call = 0;
    for (const Matrix* each : {&first, &second}) {
      b.Call("Torch.f." + std::to_string(call++) + ".forward");
      b.In(each->Recorded().DType("torch.bfloat16"));
      Sketch(b, *each);
    }
    return b.Take();
  };
  const Runs runs(run(large.Map([](float v) { return v * (1 + 0x1p-8F); }), small),
                  run(with(large.Take({0, 1}), small.Take({0, 1})),
                      with(large.Take({2, 3}), small.Take({2, 3}))));
  const auto taken = [&](CallId call) {
    return runs.relations.of(runs.target.Takes(call)[0].value);
  };
  for (const CallId call : {0, 1}) EXPECT_EQ(taken(call).proof, Proof::kPartOfBatch);
  EXPECT_FALSE(taken(0).unknown);
  EXPECT_TRUE(taken(1).unknown);
}

}  // namespace
}  // namespace msprobe::compare::relations
