// Orders: of rows that a call sorts, of the units of weights, of backward passes; and sizes that
// follow what arrives.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/text_arena.h"
#include "tests/base/temporary_folder.h"
#include "tests/compare/by_relations.h"
#include "tests/compare/matrix_runs.h"

namespace msprobe::compare::relations {
namespace {

using test::DumpBuilder;
using test::Elements;
using test::FirstOf;
using test::Map;
using test::Random;
using test::Recorded;
using test::Sum;
using test::Times;

test::Tensor Integers(const Elements& x) { return Recorded(x).DType("torch.int64"); }

// Rows that belong to keys, added up in their order. `turned`: the data came in the opposite order.
Dump Sorted(bool descending, bool turned) {
  Elements keys = Random(kRows, 1);
  Matrix x = Matrix::Random(kRows, 2);
  if (turned) {
    std::reverse(keys.begin(), keys.end());
    x = x.Take(Reversed());
  }
  std::vector<int> order(kRows);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(
      order, [&](int i, int j) { return descending ? keys[i] > keys[j] : keys[i] < keys[j]; });
  const Elements places(order.begin(), order.end());
  const Matrix taken = x.Take(order);
  Matrix sums = taken;
  for (size_t i = kColumns; i < sums.x.size(); ++i) sums.x[i] += sums.x[i - kColumns];
  DumpBuilder b;
  b.Call("Tensor.argsort.0.forward").In(Recorded(keys));
  b.Value("descending", "bool", descending ? "True" : "False").Out(Integers(places));
  b.Call("Torch.index_select.0.forward");
  In(b, x);
  b.In(Integers(places));
  Out(b, taken);
  b.Call("Torch.cumsum.0.forward");
  In(b, taken);
  Out(b, sums);
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", sums.Recorded());
  Sketch(b, sums);
  return b.Take();
}

TEST(Orders, ACallThatSortsFromTheOtherEndIsNamed) {
  EXPECT_EQ(FirstOf(Sorted(true, false), Sorted(false, false)), "Tensor.argsort.0.forward");
  EXPECT_EQ(FirstOf(Sorted(false, true), Sorted(false, false)), "none");
}

// Each of two batches goes backward alone, and what it gives is clipped; the biases a and b have
// one gradient, but for roundings, which are others with another `seed`. `wrong`: that of the first
// batch is too large.
Dump ClippedPasses(const std::vector<int>& order, unsigned seed, bool wrong) {
  DumpBuilder b;
  Elements sum(16, 0.0F);
  const auto rounded = [&seed](const Elements& x) {
    return Sum(x, Random(static_cast<int>(x.size()), seed++), 1e-7F);
  };
  for (size_t n = 0; n < order.size(); ++n) {
    const std::string number = std::to_string(n);
    const auto batch = static_cast<unsigned>(10 * (order[n] + 1));
    const float factor = wrong && order[n] == 0 ? 1.5F : 1;
    const Elements gradient = rounded(Times(Random(16, batch), factor));
    b.Call("Functional.linear." + number + ".forward").In(Recorded(Random(16, batch + 1)));
    b.In(Recorded(Random(16, 8))).Out(Recorded(Random(16, batch + 2)));
    b.Call("Functional.linear." + number + ".backward").In(Recorded(Random(16, batch + 3)));
    b.Out(Recorded(Random(16, batch + 4))).Out(Recorded(gradient));
    b.Call("Optimizer.clip_grad_norm_." + number + ".forward");
    for (const char* name : {"a", "b"}) {
      const Elements own = *name == 'a' ? gradient : rounded(gradient);
      b.Kwarg(std::string("gradients.") + name, Recorded(own));
      b.OutAt(std::string("0.gradients.") + name, Recorded(rounded(Times(own, 0.5F))));
    }
    sum = Sum(sum, Times(gradient, 0.5F));
  }
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.a", Recorded(sum));
  return b.Take();
}

TEST(Orders, PassesThatClipTheirGradientsMayStandInAnotherOrder) {
  for (unsigned seed = 100; seed < 2000; seed += 100) {
    EXPECT_EQ(FirstOf(ClippedPasses({1, 0}, seed, false), ClippedPasses({0, 1}, 50, false)), "none")
        << seed;
  }
  EXPECT_NE(FirstOf(ClippedPasses({1, 0}, 100, true), ClippedPasses({0, 1}, 50, false)), "none");
}

TEST(Orders, GradientsThatAreEqualButForRoundingsAreAllFound) {
  for (unsigned seed = 100; seed < 2000; seed += 100) {
    const Runs runs(ClippedPasses({1, 0}, seed, false), ClippedPasses({0, 1}, 50, false));
    for (CallId id = 0; id < static_cast<CallId>(runs.golden.calls.size()); ++id) {
      if (!runs.golden.calls[id].IsOfParameters()) continue;
      for (const Port& made : runs.golden.Makes(id))
        EXPECT_TRUE(runs.relations.Has(made.value)) << seed << " " << id;
    }
  }
}

// A call that only passes on what arrives, or makes something of it.
Dump PassedOn(bool on) {
  DumpBuilder b;
  b.Call("Torch.f.0.forward").In(Recorded(Random(16, 1))).Out(Recorded(Random(16, on ? 1 : 2)));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(Random(16, on ? 1 : 2)));
  return b.Take();
}

TEST(Orders, WhatArrivesAndIsPassedOnHasNoMaker) {
  EXPECT_EQ(FirstOf(PassedOn(true), PassedOn(false)), "Torch.f.0.forward");
}

// Two sums whose terms cancel: each is off by a rounding of its terms, which is much of the sum.
Dump Cancelled(const std::vector<int>& order, float off) {
  DumpBuilder b;
  for (size_t n = 0; n < order.size(); ++n) {
    const auto seed = static_cast<unsigned>(10 * (order[n] + 1));
    const Matrix half = Matrix::Random(4, seed);
    Matrix x = half;
    const Matrix small = Matrix::Random(4, seed + 1);
    for (size_t i = 0; i < half.x.size(); ++i) x.x.push_back(0.01F * small.x[i] - half.x[i]);
    Elements sums(kColumns, 0.0F);
    for (size_t i = 0; i < x.x.size(); ++i) sums[i % kColumns] += x.x[i];
    sums = Sum(sums, Random(kColumns, seed + 3), off);
    b.Call("Tensor.sum." + std::to_string(n) + ".forward");
    In(b, x);
    b.Out(Recorded(sums));
    b.Call("Optimizer.SGD.step." + std::to_string(n) + ".forward");
    b.Kwarg("gradients.w", Recorded(sums));
  }
  return b.Take();
}

TEST(Orders, SumsWhoseTermsCancelAreFoundElsewhere) {
  const Runs runs(Cancelled({1, 0}, 1e-6F), Cancelled({0, 1}, 0));
  for (const CallId call : {0, 2}) {
    EXPECT_EQ(runs.Result(call).strength, Strength::kNear) << call;
    EXPECT_EQ(runs.Result(call).proof, Proof::kNearNumbers) << call;
  }
}

// A weight whose rows are units, and what a step makes of it. `began`: the order of the units;
// `gradient`: that of their gradients; `folder`: of weights.json, which names the weight.
Dump Units(const std::vector<int>& began, const std::vector<int>& gradient,
           const TemporaryFolder* folder = nullptr) {
  constexpr std::string_view kPrint = "AAAAAAAAAAA";
  const Matrix w = Matrix::Random(kRows, 1).Take(began),
               g = Matrix::Random(kRows, 2).Take(gradient);
  Matrix after = w;
  for (size_t i = 0; i < after.x.size(); ++i) after.x[i] -= 0.1F * g.x[i];
  DumpBuilder b;
  test::Tensor weight = w.Recorded();
  if (folder != nullptr) {
    folder->Write("weights.json", R"({"w": {"dtype": "torch.float32", "shape": [8, 8], "fp": ")" +
                                      std::string(kPrint) + "\"}}");
    b.dump().folder = folder->path();
    TextArena arena;
    weight = weight.Print(std::string(FingerprintText(kPrint, &arena)));
  }
  b.Call("Torch.mul.0.forward").In(weight);
  Sketch(b, w);
  b.Value("other", "int", "2");
  Out(b, w.Map([](float v) { return 2 * v; }));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", g.Recorded());
  Sketch(b, g);
  b.Kwarg("weights.w", weight);
  Sketch(b, w);
  b.Value("param_groups.0.lr", "float", "0.1").OutAt("0.weights.w", after.Recorded());
  Sketch(b, after);
  return b.Take();
}

TEST(Orders, TheUnitsOfAWeightMayBeNumberedAnew) {
  const TemporaryFolder folder;
  const std::vector<int> own = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(FirstOf(Units(Reversed(), Reversed(), &folder), Units(own, own)), "none");
  // Their gradients alone may not.
  EXPECT_NE(FirstOf(Units(own, Reversed(), &folder), Units(own, own)), "none");
}

// Rows of two tables are numbered together: by an argument that is the number of rows of one. With
// more empty rows the numbers are other ones. `other`: the argument is another one for no reason.
Dump Numbered(int padded, bool other) {
  Elements x = Random(4 * 8, 1), rows(8);
  x.resize(x.size() + static_cast<size_t>(4 * padded), 0.0F);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>((i * 5 + 3) % 8);
  const int size = 8 + padded + (other ? 1 : 0);
  const std::string shape = "[" + std::to_string(8 + padded) + ", 4]";
  const Elements numbers = Times(rows, static_cast<float>(size));
  DumpBuilder b;
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, const char*>>{
           {"torch", "2.13.0"}, {"device", "cpu"}, {"threads", "1"}, {"deterministic", "False"}})
    b.dump().provenance.emplace_back(key, value);
  b.Call("Torch.cos.0.forward").In(Recorded(Random(16, 3))).Out(Recorded(Random(16, 4)));
  b.Call("Torch.f.0.forward").In(Recorded(x, shape)).Out(Recorded(Random(32, 2)));
  b.Call("Torch.where.0.forward").In(Recorded(Random(8, 5))).Out(Integers(rows));
  b.Call("Tensor.mul.0.forward").In(Integers(rows)).Value("1", "int", std::to_string(size));
  b.last().has_stats = true;
  b.last().max_value = size;
  b.Out(Integers(numbers));
  b.Call("Torch.g.0.forward").In(Integers(numbers)).Out(Recorded(Random(16, 6)));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(Random(16, 6)));
  return b.Take();
}

TEST(Sizes, ThatFollowWhatArrivesAreNoOtherArguments) {
  EXPECT_EQ(FirstOf(Numbered(2, false), Numbered(0, false)), "none");
  EXPECT_EQ(FirstOf(Numbered(0, true), Numbered(0, false)), "Tensor.mul.0.forward");
}

// Rows that are moved on, and added to rows that stay: bfloat16 would explain more than that
// changes.
Dump MovedOn(int by) {
  const Matrix x = Matrix::Random(kRows, 1);
  const Matrix small = Matrix::Random(kRows, 2).Map([](float v) { return v / 512; });
  std::vector<int> rows(kRows);
  for (int i = 0; i < kRows; ++i) rows[i] = (i + by) % kRows;
  const Matrix moved = small.Take(rows);
  Matrix sum = x;
  for (size_t i = 0; i < sum.x.size(); ++i) sum.x[i] += moved.x[i];
  DumpBuilder b;
  const auto record = [&b](const Matrix& m, bool goes_in) {
    const test::Tensor recorded = m.Recorded().DType("torch.bfloat16");
    goes_in ? b.In(recorded) : b.Out(recorded);
    Sketch(b, m);
  };
  b.Call("Torch.roll.0.forward");
  record(small, true);
  b.Value("shifts", "int", std::to_string(by));
  record(moved, false);
  b.Call("Tensor.__add__.0.forward");
  record(x, true);
  record(moved, true);
  record(sum, false);
  b.Call("Optimizer.SGD.step.0.forward");
  b.Kwarg("gradients.w", sum.Recorded().DType("torch.bfloat16"));
  Sketch(b, sum);
  return b.Take();
}

TEST(Orders, RowsThatWereMovedDoNotMeetThoseThatWereNot) {
  EXPECT_EQ(Runs(MovedOn(1), MovedOn(3)).Result(1).strength, Strength::kNone);
  EXPECT_EQ(FirstOf(MovedOn(1), MovedOn(3)), "Torch.roll.0.forward");
  EXPECT_EQ(FirstOf(MovedOn(1), MovedOn(1)), "none");
}

// Measurements of which some are missing, and what is made of the others.
Dump WithMissing(const Matrix& given) {
  constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();
  const auto is_large = [](float v) { return v > 1; };
  const Matrix x = given.Map([&](float v) { return is_large(v) ? kMissing : v; });
  test::Tensor unknown = x.Recorded();
  unknown.max = unknown.min = unknown.mean = unknown.norm = kMissing;
  DumpBuilder b;
  b.dump().counts.push_back({.nan = std::count_if(given.x.begin(), given.x.end(), is_large)});
  b.Call("Tensor.nan_to_num.0.forward").In(unknown);
  b.last().counts = &b.dump().counts.back();
  Sketch(b, x);
  Out(b, given.Map([&](float v) { return is_large(v) ? 0 : v; }));
  return b.Take();
}

// NaN leaves nothing of the statistics: sketches have the other elements.
TEST(Orders, BesideNaNTheOtherElementsTellTheRows) {
  const Matrix x = Matrix::Random(kRows, 1);
  const auto data = [](const Runs& runs) -> const Relation& {
    return runs.relations.of(runs.target.Takes(0)[0].value);
  };
  const Runs reversed(WithMissing(x.Take(Reversed())), WithMissing(x));
  EXPECT_EQ(data(reversed).strength, Strength::kSame);
  EXPECT_TRUE(data(reversed).proven);
  EXPECT_EQ(reversed.Result(0).strength, Strength::kSame);
  Matrix changed = x;
  const auto small =
      std::find_if(changed.x.begin(), changed.x.end(), [](float v) { return v < 0; });
  *small *= 2;
  const Runs other(WithMissing(changed), WithMissing(x));
  EXPECT_EQ(data(other).strength, Strength::kNone);
}

}  // namespace
}  // namespace msprobe::compare::relations
