// The relations between the values of two runs, and what follows from them:
// engine/compare/relations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "engine/compare/judge/operation_facts.h"
#include "engine/compare/proofs/check.h"
#include "engine/compare/relations/decide.h"
#include "engine/compare/relations/expose.h"
#include "engine/compare/relations/relate.h"
#include "engine/compare/relations/values/graph.h"
#include "tests/compare/dump_builder.h"
#include "tests/compare/recorded.h"

namespace msprobe::compare::relations {
namespace {

using test::DumpBuilder;
using test::Elements;
using test::Map;
using test::Random;
using test::Recorded;

float Round(float x) { return std::nextafter(x, 10.0F); }  // one rounding of float32

// A step that scales its data, takes tanh, and hands a gradient to an optimizer.
struct Step {
  float scale = 2;
  bool extra = false;       // multiplies by 1.5 before tanh
  bool without = false;     // does not call tanh
  bool rounded = false;     // another kernel of the product
  bool dead_fault = false;  // a wrong value that nobody uses
  std::string approximate = "none";

  Dump Run() const {
    DumpBuilder b;
    const Elements x = Random(64, 1);
    Elements y = Map(x, [&](float v) { return scale * v; });
    if (rounded) y = Map(y, Round);
    b.Call("Tensor.mul.0.forward").In(Recorded(x)).Value("1", "float", "2.0").Out(Recorded(y));
    if (extra) {
      const Elements z = Map(y, [](float v) { return 1.5F * v; });
      b.Call("Tensor.mul.1.forward").In(Recorded(y)).Value("1", "float", "1.5").Out(Recorded(z));
      y = z;
    }
    const Elements dead = Map(x, [&](float v) { return (dead_fault ? 5.0F : 1.0F) * std::cos(v); });
    b.Call("Torch.cos.0.forward").In(Recorded(x)).Out(Recorded(dead));
    Elements h = y;
    if (!without) {
      h = Map(
          y, [&](float v) { return approximate == "none" ? std::tanh(v) : v / (1 + std::abs(v)); });
      b.Call("Functional.gelu.0.forward")
          .In(Recorded(y))
          .Value("approximate", "str", approximate)
          .Out(Recorded(h));
    }
    const float loss =
        std::accumulate(h.begin(), h.end(), 0.0F, [](float sum, float v) { return sum + v * v; });
    b.Call("Torch.sum.0.forward").In(Recorded(h)).Out(Recorded({loss}, "[]"));
    const Elements gradient = Map(h, [](float v) { return 2 * v; });
    b.Call("Torch.sum.0.backward").In(Recorded({1.0F}, "[]")).Out(Recorded(gradient));
    b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(gradient));
    return b.Take();
  }
};

Comparison ComparedRelations(Dump target, Dump golden) {
  return test::MustCompare(std::move(target), std::move(golden));
}

std::string FirstCall(const Comparison& c) {
  if (c.first.pair < 0) return "";
  const RecordPair& pair = c.pairs[c.first.pair];
  return std::string(pair.target >= 0 ? c.target.records[pair.target].name.view()
                                      : c.golden.records[pair.golden].name.view());
}

TEST(Operations, AreFoundByTheLastPartOfTheirName) {
  EXPECT_EQ(FactsOf("Functional.layer_norm").kind, OperationClass::kNormalisation);
  EXPECT_EQ(FactsOf("Tensor.__add__").kind, OperationClass::kSum);
  EXPECT_EQ(FactsOf("Module.layers.0.fc.Linear").kind, OperationClass::kContraction);
  EXPECT_EQ(FactsOf("Torch.made_up").kind, OperationClass::kUnknown);
  EXPECT_TRUE(FactsOf("Tensor.add_").in_place);
  EXPECT_FALSE(FactsOf("Tensor.__add__").in_place);
  EXPECT_TRUE(FactsOf("Functional.dropout").draws);
  EXPECT_TRUE(FactsOf("Function.MyOp").opaque);
  EXPECT_TRUE(FactsOf("Distributed.all_reduce").exchanges);
}

TEST(Operations, ARowOfTheUserReplacesOurs) {
  const auto table =
      OperationTable::Parse("classes:\n  contraction: [my_op, layer_norm]\n", "mine");
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  EXPECT_EQ(table->Of("Torch.my_op").kind, OperationClass::kContraction);
  EXPECT_EQ(table->Of("Functional.layer_norm").kind, OperationClass::kContraction);
  EXPECT_EQ(table->Of("Tensor.__add__").kind, OperationClass::kSum);
  EXPECT_EQ(FactsOf("Functional.layer_norm").kind, OperationClass::kNormalisation);
}

TEST(Operations, WhatIsNoTableIsRefusedWithItsLine) {
  for (const char* text :
       {"[1", "classes: [a]", "classes:\n  sums: [a]", "classes:\n  sum: [a]\n  keeps: [a]",
        "classes:\n  sum: [[a]]", "sum: [a]", "means: a", "alone: [a b]", "means: [\"\"]"}) {
    const auto table = OperationTable::Parse(text, "mine.yaml");
    ASSERT_FALSE(table.ok()) << text;
    EXPECT_NE(table.status().ToString().find("mine.yaml:"), std::string::npos) << text;
  }
}

TEST(Moments, OfPartsAreThoseOfTheWhole) {
  const Elements x = Random(96, 3);
  DumpBuilder b;
  b.Call("Torch.f.0.forward")
      .In(Recorded(x))
      .In(Recorded(Elements(x.begin(), x.begin() + 40)))
      .In(Recorded(Elements(x.begin() + 40, x.end())));
  const Dump dump = b.Take();
  const std::vector<Moments> parts = {MomentsOf(dump, 1), MomentsOf(dump, 2)};
  EXPECT_LT(Distance(Join(parts), MomentsOf(dump, 0), 0), 1e-12);
  EXPECT_TRUE(SameElements(Join(parts), MomentsOf(dump, 0)));
  EXPECT_EQ(Distance(parts[0], parts[1], 0), test::kInf);  // other numbers of elements
}

TEST(Moments, AnErrorIsRelativeToTheTerms) {
  Moments a{.known = true, .n = 4, .high = 1.001, .low = -1, .mean = 0, .norm = 1};
  Moments b{.known = true, .n = 4, .high = 1, .low = -1, .mean = 0, .norm = 1};
  EXPECT_NEAR(Distance(a, b, 0), 1e-3, 1e-9);
  EXPECT_NEAR(Distance(a, b, 100), 1e-5, 1e-9);
  a.not_finite = 1;
  EXPECT_EQ(Distance(a, b, 0), test::kInf);
}

struct PairOfRuns {
  Comparison c;
  std::shared_ptr<const ContentIds> content;
  Paths paths;
  Graph target, golden;
  Carried before;
  Proofs proofs;
  Relations relations;
  PairOfRuns(Dump t, Dump g, Carried left = {})
      : c(ComparedRelations(std::move(t), std::move(g))),
        content(ContentOf(c)),
        target(c, Side::kTarget, *content, &paths),
        golden(c, Side::kGolden, *content, &paths),
        before(std::move(left)),
        relations(c, target, golden, before, &proofs) {
    CheckProofs(c, target, golden, before, &proofs);
    EXPECT_TRUE(proofs.refused.empty())
        << proofs.refused.front().defect << ", step " << proofs.refused.front().step;
  }
  ValueId Result(CallId call) const { return target.Makes(call)[0].value; }
};

TEST(Graph, AValueHasOneMakerAndItsTakers) {
  const PairOfRuns runs(Step{}.Run(), Step{}.Run());
  const Graph& g = runs.target;
  ASSERT_EQ(g.calls.size(), 6U);
  const ValueId y = g.Makes(0)[0].value;
  EXPECT_EQ(g.values[y].maker, 0);
  ASSERT_EQ(g.TakersOf(y).size(), 1U);
  EXPECT_EQ(g.TakersOf(y)[0].call, 2);
  EXPECT_EQ(g.values[g.Takes(0)[0].value].maker, kNoId);  // the data arrive
  EXPECT_EQ(g.calls[4].forward, 3);
  EXPECT_EQ(g.calls[5].kind, CallKind::kUpdate);
  EXPECT_EQ(g.calls[5].parameter, "w");
  EXPECT_EQ(g.values[g.Takes(5)[0].value].maker, 4);
  EXPECT_TRUE(g.values[g.Takes(4)[0].value].plain);  // the 1 that a backward pass starts with
}

TEST(Graph, EachConstantIsAValueOfItsOwn) {
  const Elements ones(8, 1.0F);
  DumpBuilder b;
  b.Call("Torch.ones.0.forward").Out(Recorded(ones));
  b.Call("Torch.ones.1.forward").Out(Recorded(ones));
  b.Call("Torch.f.0.forward").In(Recorded(ones)).Out(Recorded(Random(8, 2)));
  DumpBuilder other;
  other.Call("Torch.f.0.forward").Out(Recorded(ones));
  const PairOfRuns runs(b.Take(), other.Take());
  EXPECT_NE(runs.Result(0), runs.Result(1));
  EXPECT_EQ(runs.target.Takes(2)[0].value, runs.Result(1));  // the latest
}

TEST(Graph, ACollectiveMakesWhatItDoesNotTake) {
  const Elements given = Random(8, 1), gathered = Random(16, 2);
  const auto run = [&] {
    DumpBuilder b;
    b.Call("Distributed.all_gather.0.forward").In(Recorded(given));
    b.Out(Recorded(given)).Out(Recorded(gathered));
    return b.Take();
  };
  const PairOfRuns runs(run(), run());
  ASSERT_EQ(runs.target.Makes(0).size(), 1U);
  const Value& value = runs.target.values[runs.Result(0)];
  EXPECT_EQ(value.shape, "[16]");
  EXPECT_EQ(runs.target.made[value.port].value, runs.Result(0));
}

TEST(Graph, AGradientOfTwoUsesIsTheirSum) {
  const Elements x = Random(16, 1), a = Random(16, 2), d = Random(16, 3);
  Elements sum(16);
  std::transform(a.begin(), a.end(), d.begin(), sum.begin(), std::plus<float>());
  DumpBuilder b;
  b.Call("Torch.f.0.forward").In(Recorded(Random(16, 9))).Out(Recorded(x));
  b.Call("Torch.g.0.forward").In(Recorded(x)).Out(Recorded(Random(16, 5)));
  b.Call("Torch.g.1.forward").In(Recorded(x)).Out(Recorded(Random(16, 6)));
  b.Call("Torch.g.1.backward").In(Recorded(Random(16, 7))).Out(Recorded(a));
  b.Call("Torch.g.0.backward").In(Recorded(Random(16, 8))).Out(Recorded(d));
  b.Call("Torch.f.0.backward").In(Recorded(sum)).Out(Recorded(Random(16, 10)));
  const PairOfRuns runs(b.Take(), Step{}.Run());
  const auto parts = runs.target.PartsOf(runs.target.Takes(5)[0].value);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(runs.target.values[parts[0]].maker, 3);
  EXPECT_EQ(runs.target.values[parts[1]].maker, 4);
}

TEST(Relations, EqualBitsAreEqualAndRoundingIsNear) {
  const PairOfRuns runs(Step{.rounded = true}.Run(), Step{}.Run());
  EXPECT_EQ(runs.relations.of(runs.target.Takes(0)[0].value).strength, Strength::kEqual);
  const Relation& product = runs.relations.of(runs.Result(0));
  EXPECT_EQ(product.strength, Strength::kNear);
  EXPECT_GT(product.error, 0);
  EXPECT_LE(product.error, product.bound);
  EXPECT_EQ(runs.relations.of(runs.Result(1)).strength, Strength::kEqual);
}

TEST(Relations, AnErrorBeyondTheBoundIsNoRelation) {
  const PairOfRuns runs(Step{.scale = 2.001F}.Run(), Step{}.Run());
  EXPECT_EQ(runs.relations.of(runs.Result(0)).strength, Strength::kNone);
}

TEST(Relations, OtherRowsOfEqualElementsAreTheSame) {
  Elements x = Random(64, 1);
  Elements moved = x;
  std::rotate(moved.begin(), moved.begin() + 8, moved.end());
  DumpBuilder t, g;
  t.Call("Torch.sort.0.forward").In(Recorded(Random(64, 5))).Out(Recorded(moved));
  g.Call("Torch.sort.0.forward").In(Recorded(Random(64, 5))).Out(Recorded(x));
  const PairOfRuns runs(t.Take(), g.Take());
  const Relation& r = runs.relations.of(runs.Result(0));
  // The moments agree as those of rounding do: nothing says that the elements are in their order.
  EXPECT_GE(r.strength, Strength::kSame);
}

TEST(Relations, PartsOfABatchAreTogetherTheWhole) {
  const Elements x = Random(64, 1), y = Map(x, [](float v) { return std::sin(3 * v); });
  const auto half = [](const Elements& v, int k) {
    return Recorded(Elements(v.begin() + 32 * k, v.begin() + 32 * (k + 1)), "[4, 8]");
  };
  DumpBuilder t, g;
  for (int k = 0; k < 2; ++k)
    t.Call("Torch.sin." + std::to_string(k) + ".forward").In(half(x, k)).Out(half(y, k));
  g.Call("Torch.sin.0.forward").In(Recorded(x, "[8, 8]")).Out(Recorded(y, "[8, 8]"));
  const PairOfRuns runs(t.Take(), g.Take());
  for (const CallId call : {0, 1}) {
    EXPECT_EQ(runs.relations.of(runs.Result(call)).strength, Strength::kNear);
    EXPECT_EQ(runs.relations.of(runs.Result(call)).proof, Proof::kPartOfBatch);
  }
  EXPECT_EQ(runs.c.first.pair, -1);
}

TEST(Relations, AMaskInAnotherCodingIsTheSameMask) {
  Elements factor(16, 1.0F), left_out(16, 0.0F);
  factor[3] = factor[7] = factor[11] = 0;
  left_out[3] = left_out[7] = left_out[11] = 1;
  test::Tensor is_set = Recorded(left_out);
  is_set.dtype = "torch.bool";
  is_set.fingerprint = "bool";
  DumpBuilder t, g;
  t.Call("Torch.mask.0.forward").Out(Recorded(factor));
  t.dump().counts.push_back({0, 0, 0, 3});
  t.last().counts = &t.dump().counts.back();
  g.Call("Torch.eq.0.forward").Out(is_set);
  g.dump().counts.push_back({0, 0, 0, 13});
  g.last().counts = &g.dump().counts.back();
  const PairOfRuns runs(t.Take(), g.Take());
  EXPECT_EQ(runs.relations.of(runs.Result(0)).proof, Proof::kMask);
}

TEST(Exposure, TwoEqualRunsDifferNowhere) {
  const Comparison c = ComparedRelations(Step{}.Run(), Step{}.Run());
  EXPECT_EQ(FirstCall(c), "");
}

TEST(Exposure, RoundingIsBlamedNowhere) {
  EXPECT_EQ(FirstCall(ComparedRelations(Step{.rounded = true}.Run(), Step{}.Run())), "");
}

TEST(Exposure, AWrongResultIsNamedWhereItBegins) {
  EXPECT_EQ(FirstCall(ComparedRelations(Step{.scale = 2.1F}.Run(), Step{}.Run())),
            "Tensor.mul.0.forward");
}

TEST(Exposure, AnotherArgumentIsNamedOnEitherSide) {
  const Step other{.approximate = "tanh"};
  for (const auto& [t, g] : {std::pair{other, Step{}}, std::pair{Step{}, other}}) {
    const Comparison c = ComparedRelations(t.Run(), g.Run());
    EXPECT_EQ(FirstCall(c), "Functional.gelu.0.forward");
    EXPECT_THAT(c.first.why.English(), testing::HasSubstr("the call itself was made differently"));
  }
}

TEST(Exposure, AWrongValueThatReachesNoResultIsNotBlamed) {
  const Comparison c = ComparedRelations(Step{.dead_fault = true}.Run(), Step{}.Run());
  EXPECT_EQ(FirstCall(c), "");
  const auto differs = [](const Measure& m) { return m.verdict == RowVerdict::kDiffers; };
  EXPECT_TRUE(std::none_of(c.measures.begin(), c.measures.end(), differs));
}

TEST(Exposure, ACallOfOneSideIsNamedOnEitherSide) {
  EXPECT_EQ(FirstCall(ComparedRelations(Step{.extra = true}.Run(), Step{}.Run())),
            "Tensor.mul.1.forward");
  EXPECT_EQ(FirstCall(ComparedRelations(Step{}.Run(), Step{.extra = true}.Run())),
            "Tensor.mul.1.forward");
  EXPECT_EQ(FirstCall(ComparedRelations(Step{.without = true}.Run(), Step{}.Run())),
            "Functional.gelu.0.forward");
  EXPECT_EQ(FirstCall(ComparedRelations(Step{}.Run(), Step{.without = true}.Run())),
            "Functional.gelu.0.forward");
}

TEST(Exposure, TheFaultIsNamedBesideACallThatChangesNothing) {
  Step both{.rounded = true, .approximate = "tanh"};
  EXPECT_EQ(FirstCall(ComparedRelations(both.Run(), Step{}.Run())), "Functional.gelu.0.forward");
}

}  // namespace
}  // namespace msprobe::compare::relations
