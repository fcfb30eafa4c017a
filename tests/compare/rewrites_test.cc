
#include <gmock/gmock.h>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/summary.h"
#include "engine/compare/regions/regions.h"
#include "engine/compare/report/report_json.h"
#include "engine/compare/report/report_terminal.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Numbers;
using test::Scaled;
using test::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A tensor by its number: all numbers of two such tensors differ.
Tensor V(int id, std::string shape = "[2, 8]") {
  return Numbers(1 + 0.13 * id, -2 - 0.29 * id, 0.11 + 0.017 * id, 5 + 0.7 * id)
      .Shape(std::move(shape));
}
constexpr double kRewriteRounding = 2e-7;

// y = norm(x); attention(y); linear. `error`: of the attention's result.
Dump Attention(bool fused, double error = 0) {
  DumpBuilder b;
  b.Call("Functional.layer_norm.0.forward").In(V(1)).Out(V(2));
  if (fused) {
    b.Call("Functional.scaled_dot_product_attention.0.forward").In(V(2)).In(V(2)).In(V(2));
    b.Out(Scaled(V(5), kRewriteRounding + error)).At("attn.py", 7, "y = sdpa(q, k, v)");
  } else {
    b.Call("Tensor.__matmul__.0.forward").In(V(2)).In(V(2)).Out(V(3, "[2, 2]"));
    b.At("attn.py", 8, "a = q @ k.T");
    b.Call("Torch.softmax.0.forward").In(V(3, "[2, 2]")).Out(V(4, "[2, 2]"));
    b.Call("Tensor.__matmul__.1.forward").In(V(4, "[2, 2]")).In(V(2)).Out(Scaled(V(5), error));
  }
  b.Call("Functional.linear.0.forward").In(Scaled(V(5), error + (fused ? kRewriteRounding : 0)));
  b.In(V(6, "[8, 8]")).Out(Scaled(V(7), error));
  return b.Take();
}

TEST(Rewrites, FusedAgainstComposed) {
  for (const bool swap : {false, true}) {
    const Comparison c = MustCompare(Attention(!swap), Attention(swap));
    EXPECT_EQ(c.first.pair, -1);
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
    const std::vector<Region> regions = RegionsOf(c);
    ASSERT_EQ(regions.size(), 1u);
    EXPECT_FALSE(regions[0].wrong);
    EXPECT_EQ(regions[0].target_calls, swap ? 3 : 1);
    EXPECT_EQ(regions[0].golden_calls, swap ? 1 : 3);
    EXPECT_THAT(NamesOf(c, regions[0], !swap),
                ElementsAre("Functional.scaled_dot_product_attention.0.forward"));
    EXPECT_THAT(TerminalReport(c, {.width = 100}), HasSubstr("rewritten: 1 rewrite: "));
    EXPECT_THAT(JsonReport(c), HasSubstr("\"verdict\": \"rewrite\""));
  }
}

TEST(Rewrites, AWrongFusedOperationIsARegion) {
  const Comparison c = MustCompare(Attention(true, 0.1), Attention(false));
  ASSERT_GE(c.first.pair, 0);
  const std::vector<Region> regions = RegionsOf(c);
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_TRUE(regions[0].wrong);
  EXPECT_EQ(regions[0].target_calls, 1);
  EXPECT_EQ(regions[0].golden_calls, 3);
  EXPECT_THAT(JsonReport(c), HasSubstr("\"verdict\": \"wrong\""));
  EXPECT_THAT(TerminalReport(c, {.width = 100}),
              HasSubstr("region: the target calls scaled_dot_product_attention where the golden"));
}

// Three products, or one of joined weights that is split afterwards. The paired calls of linear
// have weights of different shapes.
Dump Projections(bool joined, bool swapped = false) {
  DumpBuilder b;
  b.Call("Functional.layer_norm.0.forward").In(V(1)).Out(V(2));
  const int q = 10, k = swapped ? 12 : 11, v = swapped ? 11 : 12;
  if (joined) {
    b.Call("Functional.linear.0.forward").In(V(2)).In(V(20, "[24, 8]")).Out(V(21, "[2, 24]"));
    b.Call("Torch.chunk.0.forward").In(V(21, "[2, 24]"));
    for (const int id : {10, 11, 12}) b.Out(Scaled(V(id), kRewriteRounding));
  } else {
    for (const int i : {0, 1, 2}) {
      b.Call("Functional.linear." + std::to_string(i) + ".forward");
      b.In(V(2)).In(V(30 + i, "[8, 8]")).Out(V(10 + i));
    }
  }
  int call = 0;
  for (const int id : {q, k, v}) {
    const std::string shape = "[1, 2, 8]";
    const double by = joined ? kRewriteRounding : 0;
    b.Call("Tensor.view." + std::to_string(call++) + ".forward").In(Scaled(V(id), by));
    b.Out(Scaled(V(id, shape), by)).At("attn.py", 10 + call, "x.view(1, 2, 8)");
  }
  b.Call("Torch.stack.0.forward");
  for (const int id : {q, k, v}) b.In(Scaled(V(id, "[1, 2, 8]"), joined ? kRewriteRounding : 0));
  b.Out(swapped ? V(41) : V(40));
  b.Call("Torch.sin.0.forward").In(swapped ? V(41) : V(40)).Out(swapped ? V(43) : V(42));
  return b.Take();
}

TEST(Rewrites, JoinedAgainstSplitProducts) {
  for (const bool swap : {false, true}) {
    const Comparison c = MustCompare(Projections(!swap), Projections(swap));
    EXPECT_EQ(c.first.pair, -1) << c.first.why.English();
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
    for (const Measure& m : c.measures) EXPECT_NE(m.verdict, RowVerdict::kDiffers);
  }
}

TEST(Rewrites, TheOrderOfTheResultsIsNoRewrite) {
  const Comparison c = MustCompare(Projections(true, true), Projections(false));
  ASSERT_GE(c.first.pair, 0);
  EXPECT_THAT(c.target.records[c.pairs[c.first.pair].target].name.view(),
              HasSubstr("Tensor.view."));
}

// The same, where the two programs call cos at other places: between the two halves of the rewrite.
Dump AttentionAroundCos(bool fused, double error = 0) {
  const auto cos = [](DumpBuilder& b) { b.Call("Torch.cos.0.forward").In(V(8)).Out(V(9)); };
  DumpBuilder b;
  b.Call("Functional.layer_norm.0.forward").In(V(1)).Out(V(2));
  if (!fused) cos(b);
  if (fused) {
    b.Call("Functional.scaled_dot_product_attention.0.forward").In(V(2)).In(V(2)).In(V(2));
    b.Out(Scaled(V(5), kRewriteRounding + error));
  } else {
    b.Call("Tensor.__matmul__.0.forward").In(V(2)).In(V(2)).Out(V(3, "[2, 2]"));
    b.Call("Tensor.__matmul__.1.forward").In(V(3, "[2, 2]")).In(V(2)).Out(Scaled(V(5), error));
  }
  if (fused) cos(b);
  b.Call("Functional.linear.0.forward").In(Scaled(V(5), error + (fused ? kRewriteRounding : 0)));
  b.In(V(6, "[8, 8]")).Out(Scaled(V(7), error));
  return b.Take();
}

TEST(Rewrites, TwoHalvesThatAreApartAreOneRegion) {
  for (const double error : {0.0, 0.1}) {
    for (const bool swap : {false, true}) {
      const Comparison c = MustCompare(AttentionAroundCos(!swap, error), AttentionAroundCos(swap));
      EXPECT_EQ(c.first.pair >= 0, error > 0);
      const std::vector<Region> regions = RegionsOf(c);
      ASSERT_EQ(regions.size(), 1u);
      EXPECT_EQ(regions[0].wrong, error > 0);
      EXPECT_EQ(regions[0].target_calls, swap ? 2 : 1);
      EXPECT_EQ(regions[0].golden_calls, swap ? 1 : 2);
    }
  }
}

// The loss, which no recorded call takes: cross_entropy, or log_softmax and nll_loss.
Dump Loss(bool composed, double error = 0) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(V(1)).In(V(2)).Out(V(3));
  const Tensor loss = Scaled(Numbers(3.2, 3.2, 3.2, 3.2).Shape("[]"), error);
  if (composed) {
    b.Call("Functional.log_softmax.0.forward").In(V(3)).Out(V(4));
    b.Call("Functional.nll_loss.0.forward").In(V(4)).Out(Scaled(loss, kRewriteRounding));
  } else {
    b.Call("Functional.cross_entropy.0.forward").In(V(3)).Out(loss);
  }
  return b.Take();
}

TEST(Rewrites, AResultThatNoCallTakesIsLookedForInTheOtherRun) {
  const Comparison agrees = MustCompare(Loss(true), Loss(false));
  EXPECT_EQ(Summarize(agrees).verdict, RunVerdict::kStructure);
  EXPECT_EQ(RegionsOf(agrees).size(), 1u);
  const Comparison wrong = MustCompare(Loss(true, 0.5), Loss(false));
  EXPECT_EQ(Summarize(wrong).verdict, RunVerdict::kDiffers);
  EXPECT_TRUE(wrong.rewritten.empty());
}

// Two products of one input, in one order or in the other.
Dump TwoProducts(bool second_first, double error = 0) {
  DumpBuilder b;
  for (int i = 0; i < 2; ++i) {
    const int id = second_first ? 1 - i : i;
    b.Call("Functional.linear." + std::to_string(i) + ".forward").In(V(1)).In(V(20 + id));
    b.Out(V(10 + id));
  }
  b.Call("Torch.add.0.forward").In(V(10)).In(V(11)).Out(Scaled(V(12), error));
  return b.Take();
}

TEST(Rewrites, CallsInAnotherOrder) {
  const Comparison c = MustCompare(TwoProducts(true), TwoProducts(false));
  EXPECT_EQ(c.first.pair, -1) << c.first.why.English();
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
  const Comparison wrong = MustCompare(TwoProducts(true, 0.1), TwoProducts(false));
  EXPECT_GE(wrong.first.pair, 0);
}

// (x / 4) @ w in one run, (x @ w) / 4 in the other: each call needs the other one to be right.
Dump ScaledProduct(bool first, double error = 0) {
  DumpBuilder b;
  b.Call("Torch.sin.0.forward").In(V(0)).Out(V(1));
  const auto scale = [&](int from, int to) {
    b.Call("Tensor.__truediv__.0.forward").In(V(from)).Value("1", "float", "4").Out(V(to));
  };
  if (first) scale(1, 2);
  b.Call("Torch.matmul.0.forward").In(V(first ? 2 : 1)).In(V(9)).Out(V(first ? 4 : 3));
  if (!first) scale(3, 4);
  b.Call("Torch.sum.0.forward").In(V(4)).Out(Scaled(V(5), error));
  return b.Take();
}

TEST(Rewrites, DependentCallsInAnotherOrder) {
  const Comparison c = MustCompare(ScaledProduct(true), ScaledProduct(false));
  EXPECT_EQ(c.first.pair, -1) << c.first.why.English();
  EXPECT_GE(MustCompare(ScaledProduct(true, 0.1), ScaledProduct(false)).first.pair, 0);
}

// A loop over experts, forwards or backwards.
Dump Experts(bool backwards, double error = 0) {
  DumpBuilder b;
  for (int i = 0; i < 2; ++i) {
    const int expert = backwards ? 1 - i : i;
    b.Call("Tensor.__eq__." + std::to_string(i) + ".forward").In(V(1));
    b.Value("1", "int", std::to_string(expert)).Out(V(10 + expert));
  }
  b.Call("Torch.add.0.forward").In(V(10)).In(V(11)).Out(Scaled(V(12), error));
  return b.Take();
}

TEST(Rewrites, ALoopInAnotherOrder) {
  const Comparison c = MustCompare(Experts(true), Experts(false));
  EXPECT_EQ(c.first.pair, -1) << c.first.why.English();
  EXPECT_GE(MustCompare(Experts(true, 0.1), Experts(false)).first.pair, 0);
}

// A loop over masks that have equally many true elements: only their bits differ.
Dump Masks(bool backwards, double error = 0) {
  DumpBuilder b;
  const auto mask = [](int expert) {
    return Numbers(1, 0, 0.25, 2).DType("torch.bool").Print("mask" + std::to_string(expert));
  };
  const auto at = [&](int i) { return backwards ? 1 - i : i; };
  for (int i = 0; i < 2; ++i) {
    const std::string call = "." + std::to_string(i) + ".forward";
    b.Call("Tensor.__eq__" + call).In(V(1)).Value("1", "int", std::to_string(at(i)));
    b.Out(mask(at(i)));
    b.Call("Tensor.nonzero" + call).In(mask(at(i))).Out(V(10 + at(i)));
  }
  b.Call("Torch.add.0.forward").In(V(10)).In(V(11)).Out(Scaled(V(12), error));
  return b.Take();
}

TEST(Rewrites, ALoopOverMasksInAnotherOrder) {
  const Comparison c = MustCompare(Masks(true), Masks(false));
  EXPECT_EQ(c.first.pair, -1) << c.first.why.English();
  EXPECT_GE(MustCompare(Masks(true, 0.1), Masks(false)).first.pair, 0);
}

// A recurrence reads two words; the products of the words are the same in another order, and the
// states are not.
Dump Reading(bool backwards) {
  DumpBuilder b;
  b.Call("Torch.sin.0.forward").In(V(0)).Out(V(50));
  int state = 50;
  for (int i = 0; i < 2; ++i) {
    const int word = backwards ? 1 - i : i, next = (backwards ? 60 : 70) + i;
    const std::string call = "." + std::to_string(i) + ".forward";
    b.Call("Functional.linear" + call).In(V(30 + word)).In(V(9, "[8, 8]")).Out(V(40 + word));
    b.Call("Tensor.add" + call).In(V(40 + word)).In(V(state)).Out(V(next));
    state = next;
  }
  b.Call("Torch.cos.0.forward").In(V(state)).Out(V(state + 20));
  return b.Take();
}

TEST(Rewrites, ValuesThatGoOnInAnotherOrderAreTheReason) {
  const Comparison c = MustCompare(Reading(true), Reading(false));
  ASSERT_GE(c.first.pair, 0);
  EXPECT_EQ(EntryName(c, c.first.pair), "Functional.linear.0.forward");
}

// repeat and repeat_interleave return the same numbers in another order: only bits tell.
Dump Repeat(const char* api, const char* print, double error) {
  DumpBuilder b;
  b.Call("Torch.sin.0.forward").In(V(1).Print("aa")).Out(V(2).Print("bb"));
  b.Call("Tensor." + std::string(api) + ".0.forward").In(V(2).Print("bb"));
  b.Out(V(3, "[4, 8]").Print(print));
  b.Call("Torch.matmul.0.forward").In(V(3, "[4, 8]").Print(print));
  b.Out(Scaled(V(4), error).Print(error > 0 ? "dd" : "ee"));
  return b.Take();
}

TEST(Rewrites, MovedElementsMustBeTheSameBits) {
  const Comparison wrong =
      MustCompare(Repeat("repeat", "c1", 0.1), Repeat("repeat_interleave", "c2", 0));
  ASSERT_GE(wrong.first.pair, 0);
  EXPECT_TRUE(wrong.rewritten.empty());
  EXPECT_THAT(EntryName(wrong, wrong.first.pair), Not(HasSubstr("matmul")));
}

}  // namespace
}  // namespace msprobe::compare
