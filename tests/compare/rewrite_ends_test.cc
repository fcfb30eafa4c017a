// Where the values of a rewrite may end: what tells that a call which only one run makes, or makes
// otherwise, changed nothing (EndOf in engine/compare/regions/rewrites.cc).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <string>

#include "engine/compare/explain/summary.h"
#include "engine/compare/regions/rewrites.h"
#include "tests/compare/by_rules.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// "Torch.cos.0.forward Torch.sin.0.forward": the calls that are part of a rewrite.
std::string Rewritten(const Comparison& c) {
  std::string names;
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    if (!c.IsRewritten(static_cast<int32_t>(p))) continue;
    names += names.empty() ? "" : " ";
    names += EntryName(c, static_cast<int32_t>(p));
  }
  return names;
}

// x -> cos -> scaled, by one call or by two -> sin. `between`: more calls.
using Calls = void (*)(DumpBuilder&);
Dump Scaling(bool two, Calls between = nullptr, double error = 0) {
  DumpBuilder b;
  b.Call("Torch.cos.0.forward").In(Value(1)).Out(Value(2));
  if (two) {
    b.Call("Tensor.__mul__.0.forward").In(Value(2)).Value("1", "int", "4").Out(Value(3));
    b.Call("Tensor.__truediv__.0.forward").In(Value(3)).Value("1", "int", "8");
    b.Out(Value(4, error));
  } else {
    b.Call("Tensor.__truediv__.0.forward").In(Value(2)).Value("1", "int", "2");
    b.Out(Value(4, error));
  }
  if (between != nullptr) between(b);
  b.Call("Torch.sin.0.forward").In(Value(4, error)).Out(Value(5, error));
  return b.Take();
}

TEST(RewriteEnds, ACallThatRaisedHasNoResults) {
  const Calls raises = [](DumpBuilder& b) {
    b.Call("Torch.tanh.0.forward").In(Value(3));
    b.dump().records.back().exception = "_StopRecomputationError";
  };
  const Comparison c = ByRules(Scaling(true, raises), Scaling(false));
  EXPECT_EQ(Rewritten(c),
            "Tensor.__mul__.0.forward Tensor.__truediv__.0.forward Torch.tanh.0.forward");
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
  // Without an exception it has changed something: what, is not recorded.
  const Calls changes = [](DumpBuilder& b) { b.Call("Torch.tanh.0.forward").In(Value(3)); };
  const Comparison other = ByRules(Scaling(true, changes), Scaling(false));
  EXPECT_THAT(Rewritten(other), Not(HasSubstr("Torch.tanh.0.forward")));
  EXPECT_EQ(Summarize(other).verdict, RunVerdict::kDiffers);
}

// A recomputation of torch.utils.checkpoint ends with an exception in each right run.
TEST(RewriteEnds, ExceptionsOfBothSidesAreNoNote) {
  const Calls raises = [](DumpBuilder& b) {
    b.Call("Torch.tanh.0.forward").In(Value(3));
    b.dump().records.back().exception = "_StopRecomputationError";
  };
  const auto notes = [](const Comparison& c) {
    return fmt::format("{}", fmt::join(c.not_observed, "; "));
  };
  EXPECT_THAT(notes(MustCompare(Scaling(true, raises), Scaling(false, raises))),
              Not(HasSubstr("exception")));
  EXPECT_THAT(notes(MustCompare(Scaling(true, raises), Scaling(false))),
              HasSubstr("1 call of the target ended with an exception"));
}

TEST(RewriteEnds, AnAssignmentToElementsIsSeenWhereTheyAreRead) {
  const Calls assigns = [](DumpBuilder& b) {
    b.Call("Tensor.__setitem__.0.forward").In(Value(4)).In(Value(3));
  };
  const Comparison c = ByRules(Scaling(true, assigns), Scaling(false));
  EXPECT_THAT(Rewritten(c), HasSubstr("Tensor.__setitem__.0.forward"));
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
}

// Positions lead on through calls that are not recorded, such as indexing; where something is wrong,
// they may be the reason.
TEST(RewriteEnds, PositionsLeadOnWhereNothingIsWrong) {
  const Calls counts = [](DumpBuilder& b) {
    b.Call("Torch.arange.0.forward").Value("end", "int", "20");
    b.Out(Numbers(19, 0, 9.5, 49.7).DType("torch.int64").Shape("[20]"));
  };
  const Comparison right = ByRules(Scaling(true, counts), Scaling(false));
  EXPECT_THAT(Rewritten(right), HasSubstr("Torch.arange.0.forward"));
  EXPECT_EQ(Summarize(right).verdict, RunVerdict::kStructure);
  const Comparison wrong = ByRules(Scaling(true, counts, kWrong), Scaling(false));
  EXPECT_EQ(Rewritten(wrong), "");
  EXPECT_EQ(First(wrong), "Tensor.__mul__.0.forward");
  const Calls computes = [](DumpBuilder& b) {
    b.Call("Torch.exp.0.forward").In(Value(3)).Out(Value(40));
  };
  const Comparison numbers = ByRules(Scaling(true, computes), Scaling(false));
  EXPECT_THAT(Rewritten(numbers), Not(HasSubstr("Torch.exp.0.forward")));
  EXPECT_EQ(Summarize(numbers).verdict, RunVerdict::kDiffers);
}

// A number that this process gives to others: what they make of it is not in the recording.
Dump Exchanged(bool scaled) {
  DumpBuilder b;
  b.Call("Torch.cos.0.forward").In(Value(1)).Out(Value(2));
  if (scaled) b.Call("Tensor.__mul__.0.forward").In(Value(2)).In(Value(3)).Out(Value(4));
  b.Call("Distributed.all_reduce.0.forward").In(Value(scaled ? 4 : 2)).Out(Value(5));
  b.Call("Torch.sin.0.forward").In(Value(5)).Out(Value(6));
  return b.Take();
}

TEST(RewriteEnds, WhatOtherProcessesTakeIsNotKnown) {
  const Comparison c = MustCompare(Exchanged(true), Exchanged(false));
  EXPECT_EQ(Rewritten(c), "");
  EXPECT_EQ(First(c), "Tensor.__mul__.0.forward");
}

// A recording of level L0: one layer makes queries, keys and values, or three layers do. What the
// block makes of them is not recorded.
Dump Block(bool joined, double error = 0) {
  DumpBuilder b;
  b.dump().level = Level::kL0;
  const std::string block = "Module.block.Block.forward.0";
  if (joined) {
    b.Call("Module.block.qkv.Linear.forward.0").Parent(block).In(Value(1));
    b.Parameter("weight", Value(30).Shape("[9, 3]")).Out(Value(10).Shape("[2, 9]"));
  } else {
    for (const int i : {0, 1, 2}) {
      b.Call("Module.block." + std::string(1, "qkv"[i]) + ".Linear.forward.0").Parent(block);
      b.In(Value(1)).Parameter("weight", Value(31 + i).Shape("[3, 3]")).Out(Value(20 + i));
    }
  }
  b.Call(block).In(Value(1)).Out(Value(2, error));
  b.Call("Module.norm.LayerNorm.forward.0").In(Value(2, error)).Out(Value(3, error));
  return b.Take();
}

TEST(RewriteEnds, AValueThatStaysInsideAModule) {
  for (const bool swap : {false, true}) {
    const Comparison c = ByRules(Block(!swap), Block(swap));
    EXPECT_EQ(First(c), "none") << c.first.why;
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
    EXPECT_THAT(Rewritten(c), HasSubstr(swap ? "Module.block.q." : "Module.block.qkv."));
    const Comparison wrong = ByRules(Block(!swap, kWrong), Block(swap));
    EXPECT_EQ(Rewritten(wrong), "");
    EXPECT_THAT(First(wrong), HasSubstr(swap ? "Module.block.q." : "Module.block.qkv."));
  }
}

}  // namespace
}  // namespace msprobe::compare::test
