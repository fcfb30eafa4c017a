// Where the relations of two runs say that a difference begins: memory that outlives the step, code
// that is computed again, values that unrecorded code moves, gradients that lay there before,
// coarser dtypes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/compare/judge/operation_facts.h"
#include "engine/compare/ranks/rank_trace.h"
#include "engine/compare/relations/memory.h"
#include "tests/compare/by_relations.h"

namespace msprobe::compare::relations {
namespace {

using test::Compared;
using test::DumpBuilder;
using test::Elements;
using test::First;
using test::FirstOf;
using test::Map;
using test::Random;
using test::Recorded;
using test::Sum;
using test::Times;

TEST(Operations, OperatorsThatAssignWriteTheirFirstArgument) {
  for (const char* api :
       {"Tensor.__iadd__", "Tensor.__isub__", "Tensor.__setitem__", "Tensor.mul_"})
    EXPECT_TRUE(FactsOf(api).in_place) << api;
  for (const char* api : {"Tensor.__invert__", "Tensor.__int__", "Tensor.__add__", "Tensor.mul"})
    EXPECT_FALSE(FactsOf(api).in_place) << api;
}

// An adapter that is merged into a weight `merges` times, and taken out of it once.
Dump Merged(int merges) {
  const Elements weight = Random(32, 1), adapter = Random(32, 2);
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(32, 3))).In(Recorded(weight));
  b.Out(Recorded(Random(32, 4)));
  b.Parent("Module.fc.Linear.forward.0");
  b.Call("Module.fc.Linear.forward.0").In(Recorded(Random(32, 3))).Out(Recorded(Random(32, 4)));
  b.Parameter("weight", Recorded(weight));
  Elements now = weight;
  for (int i = 0; i < merges; ++i) {
    const Elements next = Sum(now, adapter);
    b.Call("Tensor.__iadd__." + std::to_string(i) + ".forward");
    b.In(Recorded(now)).In(Recorded(adapter)).Out(Recorded(next));
    now = next;
  }
  b.Call("Tensor.__isub__.0.forward").In(Recorded(now)).In(Recorded(adapter));
  b.Out(Recorded(merges == 1 ? weight : Sum(now, adapter, -1)));
  return b.Take();
}

TEST(Memory, IsWhatACallLeavesInTheEnd) {
  EXPECT_EQ(FirstOf(Merged(1), Merged(1)), "none");
  EXPECT_EQ(FirstOf(Merged(2), Merged(1)), "Tensor.__iadd__.1.forward");
}

// A call of one run only, which writes what the memory holds already: changed and changed back.
TEST(Memory, AWeightThatIsChangedAndChangedBackIsWhatItWas) {
  Dump without = Merged(1);
  const int32_t calls = 2;  // the linear and its module
  without.leaves.resize(without.records[calls].first_leaf);
  without.records.resize(calls);
  const Comparison c = Compared(Merged(1), std::move(without));
  EXPECT_EQ(First(c), "none");
}

// A model and a copy of it hold one weight, and different calls write to each of them.
Dump Copied(float rounding) {
  const Elements weight = Random(32, 1);
  DumpBuilder b;
  for (const char* module : {"Module.online.Norm.forward.0", "Module.teacher.Norm.forward.0"}) {
    b.Call(module).In(Recorded(Random(32, 3))).Out(Recorded(Random(32, 4)));
    b.Parameter("weight", Recorded(weight));
  }
  for (const unsigned i : {0U, 1U}) {
    const Elements moved = Sum(Random(32, 5 + i), Random(32, 9), rounding);
    b.Call("Tensor.add_." + std::to_string(i) + ".forward").In(Recorded(weight));
    b.In(Recorded(moved)).Out(Recorded(Sum(weight, moved)));
  }
  return b.Take();
}

TEST(Memory, TwoThatBeginWithOneContentAreToldApartByTheirCalls) {
  EXPECT_EQ(FirstOf(Copied(1e-7F), Copied(0)), "none");
  EXPECT_EQ(FirstOf(Copied(1), Copied(0)), "Tensor.add_.0.forward");
}

// What a process gives to another one, and takes nothing back from.
Dump Sent(float factor) {
  const Elements x = Random(16, 1), y = Times(x, factor);
  DumpBuilder b;
  b.Call("Tensor.mul.0.forward").In(Recorded(x)).Value("1", "float", std::to_string(factor));
  b.Out(Recorded(y));
  b.Call("Distributed.send.0.forward").In(Recorded(y)).Value("1", "int", "1");
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(Random(16, 2)));
  return b.Take();
}

TEST(Sinks, WhatOtherRanksReceive) { EXPECT_EQ(FirstOf(Sent(2), Sent(3)), "Tensor.mul.0.forward"); }

// What one process gives to a sum may be what the golden's sum is: with two equal gradients, a
// gradient that is twice as large.
TEST(Sinks, ARightValueAtTheWrongPlaceIsGivenAway) {
  const auto run = [](bool twice) {
    const Elements gradient = Random(16, 1), doubled = Times(gradient, 2);
    const Elements mine = twice ? doubled : gradient;
    DumpBuilder b;
    b.Call("Functional.linear.0.backward").In(Recorded({twice ? 2.0F : 1.0F}, "[]"));
    b.Out(Recorded(mine));
    b.Call("Distributed.all_reduce.0.forward").In(Recorded(mine));
    b.Out(Recorded(twice ? Times(gradient, 3) : doubled));
    return b.Take();
  };
  const Comparison c = Compared(run(true), run(false));
  const Record& exchange = c.target.records[1];
  for (size_t i = 0; i < c.rows.size(); ++i) {
    if (c.rows[i].target != static_cast<int32_t>(exchange.first_leaf)) continue;
    EXPECT_EQ(c.measures[i].verdict, RowVerdict::kDiffers);
  }
}

// A step of an optimizer that the target does not make is an answer like another one.
TEST(Missing, AStepIsNamedAndFoundByTheRulesOfSteps) {
  const auto run = [](bool step) {
    const Elements gradient = Random(16, 1), weight = Random(16, 2);
    DumpBuilder b;
    b.Call("Functional.linear.0.backward").In(Recorded({3}, "[]")).Out(Recorded(gradient));
    if (step) {
      b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(gradient));
      b.Kwarg("weights.w", Recorded(weight));
      b.OutAt("0.weights.w", Recorded(Sum(weight, gradient, -0.1F)));
    }
    return b.Take();
  };
  const Comparison c = Compared(run(false), run(true));
  EXPECT_EQ(First(c), "Optimizer.SGD.step.0.forward");
  EXPECT_GT(c.first.confidence, 0.5);
  EXPECT_EQ(TraceRank(c, 0).first, c.first.pair);
}

// A layer with dropout that is computed again in the backward pass, with the same mask or another.
Dump Checkpointed(bool other_mask) {
  const Elements x = Random(64, 1), weight = Random(64, 2), gradient = Random(64, 3);
  const auto dropped = [&x](unsigned seed) {
    const Elements mask = Random(64, seed);
    Elements out(64);
    for (size_t i = 0; i < out.size(); ++i) out[i] = mask[i] > 0 ? 2 * x[i] : 0;
    return out;
  };
  const Elements first = dropped(5), again = dropped(other_mask ? 6 : 5);
  DumpBuilder b;
  const auto forward = [&](int n, const Elements& mask) {
    b.Call("Functional.dropout." + std::to_string(n) + ".forward").In(Recorded(x));
    b.Value("p", "float", "0.5").Out(Recorded(mask));
    b.Call("Functional.linear." + std::to_string(n) + ".forward");
    b.In(Recorded(mask)).In(Recorded(weight)).Out(Recorded(Map(mask, [](float v) {
      return std::sin(v);
    })));
  };
  forward(0, first);
  b.Call("Functional.mse_loss.0.backward").In(Recorded({1}, "[]")).Out(Recorded(gradient));
  forward(1, again);
  b.Call("Functional.linear.0.backward").In(Recorded(gradient));
  b.Out(Recorded(Times(gradient, 3))).Out(Recorded(Sum(again, gradient, 0.01F)));
  b.Call("Optimizer.SGD.step.0.forward");
  b.Kwarg("gradients.w", Recorded(Sum(again, gradient, 0.01F)));
  return b.Take();
}

TEST(Recomputed, ABackwardCallTakesWhatWasSavedTheSecondTime) {
  EXPECT_EQ(FirstOf(Checkpointed(false), Checkpointed(false)), "none");
  EXPECT_EQ(FirstOf(Checkpointed(true), Checkpointed(false)), "Functional.dropout.1.forward");
}

// A quotient whose transpose, which nobody records, is a factor of a gradient.
Dump TransposedRun(float divisor) {
  const Elements x = Random(24, 1), quotient = Times(x, 1 / divisor);
  Elements moved = quotient;
  std::reverse(moved.begin(), moved.end());
  DumpBuilder b;
  b.Call("Tensor.div.0.forward").In(Recorded(x, "[4, 6]"));
  b.Value("1", "float", std::to_string(divisor)).Out(Recorded(quotient, "[4, 6]"));
  b.Call("Torch.sum.0.forward").In(Recorded(quotient, "[4, 6]")).Out(Recorded({1.5F}, "[]"));
  b.Call("Torch.matmul.0.forward").In(Recorded(moved, "[6, 4]"));
  b.Out(Recorded(Map(moved, [](float v) { return std::cos(v); }), "[6, 4]"));
  b.Call("Optimizer.SGD.step.0.forward");
  b.Kwarg("gradients.w", Recorded(Map(moved, [](float v) { return std::cos(v); }), "[6, 4]"));
  return b.Take();
}

TEST(Moved, AValueThatUnrecordedCodeMovesBeginsWhereItWasMade) {
  EXPECT_EQ(FirstOf(TransposedRun(2), TransposedRun(3)), "Tensor.div.0.forward");
}

// The backward pass of a function of the user's, which calls an operation.
Dump ReversedRun(bool used) {
  const Elements gradient = Random(16, 1), turned = Times(gradient, -1);
  DumpBuilder b;
  b.Call("Function.Reverse.0.forward").In(Recorded(Random(16, 2))).Out(Recorded(Random(16, 3)));
  b.Call("Functional.relu.0.forward").In(Recorded(Random(16, 4))).Out(Recorded(Random(16, 5)));
  if (used) {
    b.Call("Tensor.__rmul__.0.forward").In(Recorded(gradient)).Value("1", "float", "-1.0");
    b.Out(Recorded(turned));
    b.Call("Function.Reverse.0.backward").In(Recorded(gradient)).Out(Recorded(turned));
  }
  const Elements& arrives = used ? turned : gradient;
  b.Call("Functional.relu.0.backward").In(Recorded(arrives)).Out(Recorded(Times(arrives, 0.5F)));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(Times(arrives, 0.5F)));
  return b.Take();
}

TEST(Missing, AFunctionIsNamedAndNotTheCallInsideOfIt) {
  EXPECT_EQ(FirstOf(ReversedRun(false), ReversedRun(true)), "Function.Reverse.0.backward");
}

// A mean over the tokens that count: their number is a tensor that the golden computes.
Dump Mean(bool all) {
  const Elements x = Random(32, 1);
  DumpBuilder b;
  if (!all) {
    b.Call("Tensor.sum.0.forward").In(Recorded(Elements(32, 1.0F)).DType("torch.bool"));
    b.Out(Recorded({28}, "[]").DType("torch.int64"));
  }
  b.Call("Tensor.__truediv__.0.forward").In(Recorded(x));
  if (all) b.Value("other", "int", "32");
  if (!all) b.Kwarg("other", Recorded({28}, "[]").DType("torch.int64"));
  const Elements out = Times(x, all ? 1 / 32.0F : 1 / 28.0F);
  b.Out(Recorded(out));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(out));
  return b.Take();
}

TEST(AnotherInput, MayBeANumberThatTheOtherRunComputes) {
  const auto compare = [](bool target, bool golden) {
    return test::Compared(Mean(target), Mean(golden)).first;
  };
  const FirstDivergence passed = compare(true, false), computed = compare(false, true);
  EXPECT_EQ(FirstOf(Mean(true), Mean(false)), "Tensor.__truediv__.0.forward");
  EXPECT_EQ(FirstOf(Mean(false), Mean(true)), "Tensor.__truediv__.0.forward");
  EXPECT_THAT(passed.why.English(),
              HasSubstr("the target passes 32, the golden Tensor.sum.0.forward.output.0"));
  EXPECT_THAT(computed.why.English(),
              HasSubstr("the target passes Tensor.sum.0.forward.output.0, the golden 32"));
}

// An index is expanded to the shape of what is added: of that nothing but the shape counts.
Dump Scattered(bool old) {
  const Elements before = Random(32, 1), after = Random(32, 2), index = Random(4, 3);
  DumpBuilder b;
  b.Call("Tensor.exp.0.forward").In(Recorded(Random(32, 4))).Out(Recorded(before));
  b.Call("Tensor.sin.0.forward").In(Recorded(before)).Out(Recorded(after));
  const Elements& added = old ? before : after;
  const Elements sum = Times(added, 2);
  b.Call("Tensor.expand_as.0.forward").In(Recorded(index)).In(Recorded(added));
  b.Out(Recorded(Random(32, 5)));
  b.Call("Tensor.scatter_add_.0.forward").In(Recorded(Random(32, 5))).In(Recorded(added));
  b.Out(Recorded(sum));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(sum));
  return b.Take();
}

TEST(AnotherInput, IsNamedWhereWhatItHoldsMatters) {
  EXPECT_EQ(FirstOf(Scattered(true), Scattered(false)), "Tensor.scatter_add_.0.forward");
}

// A transform of waves by a window, which one run computes and the other makes of ones; what comes
// out is complex, and nobody records that its real part is taken.
Dump Transformed(bool ones) {
  const Elements waves = Random(32, 1), window = ones ? Elements(8, 1.0F) : Random(8, 2);
  const Elements real = Times(Random(16, 3), ones ? 1 : 0.5F);
  const Elements moduli = Map(real, [](float v) { return std::abs(v) + 0.5F; });
  DumpBuilder b;
  if (!ones) b.Call("Torch.hann_window.0.forward").Value("0", "int", "8").Out(Recorded(window));
  b.Call("Torch.stft.0.forward").In(Recorded(waves)).In(Recorded(window));
  b.Out(Recorded(moduli).DType("torch.complex64"));
  b.Call("Tensor.square.0.forward").In(Recorded(real));
  const Elements squares = Map(real, [](float v) { return v * v; });
  b.Out(Recorded(squares));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(squares));
  return b.Take();
}

TEST(AnotherInput, MayBeAConstantInPlaceOfWhatTheGoldenComputes) {
  const Comparison c = test::Compared(Transformed(true), Transformed(false));
  EXPECT_EQ(First(c), "Torch.stft.0.forward");
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("the target passes 1, the golden Torch.hann_window.0.forward.output.0"));
}

// A tensor that only one run passes: a mask.
Dump Masked(bool masked) {
  const Elements x = Random(32, 1);
  DumpBuilder b;
  if (masked) {
    b.Call("Tensor.exp.0.forward").In(Recorded(Random(32, 2))).Out(Recorded(Random(32, 3)));
  }
  b.Call("Functional.softmax.0.forward").In(Recorded(x));
  if (masked) b.In(Recorded(Random(32, 3)));
  const Elements out = Times(x, masked ? 2 : 3);
  b.Out(Recorded(out));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(out));
  return b.Take();
}

TEST(Missing, ATensorThatTheOtherRunDoesNotPass) {
  EXPECT_EQ(FirstOf(Masked(false), Masked(true)), "Tensor.exp.0.forward");
  EXPECT_EQ(FirstOf(Masked(true), Masked(false)), "Tensor.exp.0.forward");
}

// A loss of each sample times its weight; `reshaped`: [8, 1] * [8] is [8, 8].
Dump Weighted(bool reshaped) {
  const Elements each = Random(8, 1), weight = Random(8, 2);
  Elements product;
  for (const float v : reshaped ? each : Elements{1}) {
    for (size_t i = 0; i < each.size(); ++i)
      product.push_back((reshaped ? v : each[i]) * weight[i]);
  }
  DumpBuilder b;
  b.Call("Tensor.mean.0.forward").In(Recorded(Random(40, 3))).Out(Recorded(each, "[8]"));
  if (reshaped)
    b.Call("Tensor.reshape.0.forward").In(Recorded(each, "[8]")).Out(Recorded(each, "[8, 1]"));
  b.Call("Tensor.__mul__.0.forward").In(Recorded(each, reshaped ? "[8, 1]" : "[8]"));
  b.In(Recorded(weight)).Out(Recorded(product, reshaped ? "[8, 8]" : "[8]"));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(product));
  return b.Take();
}

TEST(Missing, TheCallThatGivesAnotherShape) {
  const Comparison c = Compared(Weighted(true), Weighted(false));
  EXPECT_EQ(First(c), "Tensor.reshape.0.forward");
  EXPECT_THAT(c.first.why.English(),
              ::testing::HasSubstr("has shape [8, 1] in the target, [8] in the golden"));
  EXPECT_EQ(FirstOf(Weighted(false), Weighted(true)), "Tensor.reshape.0.forward");
}

// Halves that are joined, and joined once more; `swapped`: in the other order the first time.
Dump JoinedWeights(bool swapped) {
  const Elements a = Random(16, 1), c = Random(16, 2), first = swapped ? c : a,
                 last = swapped ? a : c;
  const auto both = [](Elements x, const Elements& y) {
    x.insert(x.end(), y.begin(), y.end());
    return x;
  };
  DumpBuilder b;
  b.Call("Torch.sin.0.forward").In(Recorded(Random(16, 3))).Out(Recorded(a));
  b.Call("Torch.cos.0.forward").In(Recorded(Random(16, 3))).Out(Recorded(c));
  b.Call("Torch.cat.0.forward").In(Recorded(first)).In(Recorded(last));
  b.Out(Recorded(both(first, last), "[2, 16]"));
  b.Call("Torch.cat.1.forward").In(Recorded(last)).In(Recorded(first));
  b.Out(Recorded(both(last, first), "[2, 16]"));
  Elements out = both(last, first);
  for (size_t i = 0; i < out.size(); ++i) out[i] *= static_cast<float>(i);
  b.Call("Functional.linear.0.forward").In(Recorded(both(last, first), "[2, 16]"));
  b.Out(Recorded(out, "[2, 16]"));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(out, "[2, 16]"));
  return b.Take();
}

TEST(AnotherInput, IsNamedWhereItIsTakenFirst) {
  EXPECT_EQ(FirstOf(JoinedWeights(true), JoinedWeights(false)), "Torch.cat.0.forward");
}

// A number that the program shows, and that no call takes.
Dump Shown(float factor) {
  const Elements x = Random(32, 1);
  DumpBuilder b;
  b.Call("Torch.cos.0.forward").In(Recorded(x)).Out(Recorded(Random(32, 2)));
  b.Call("Tensor.mean.0.forward").In(Recorded(Random(32, 2)));
  b.Out(Recorded({0.37F * factor}, "[]"));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(Random(32, 2)));
  return b.Take();
}

TEST(Sinks, ANumberThatNoCallTakes) {
  EXPECT_EQ(FirstOf(Shown(2), Shown(1)), "Tensor.mean.0.forward");
  EXPECT_EQ(FirstOf(Shown(1), Shown(1)), "none");
}

// Two passes whose gradients are added up; `cleared`: zero_grad between them.
Dump Accumulated(bool cleared, bool wrong = false) {
  const Elements first = Random(16, 1), second = Times(Random(16, 2), wrong ? 1.5F : 1);
  DumpBuilder b;
  b.dump().provenance.emplace_back("gradients_before", "true");
  const auto pass = [&](int n, const Elements& gradient) {
    const std::string number = std::to_string(n);
    b.Call("Functional.linear." + number + ".forward").In(Recorded(Random(16, 5 + n)));
    b.In(Recorded(Random(16, 9))).Out(Recorded({0.5F + static_cast<float>(n)}, "[]"));
    if (n == 1 && !cleared) {
      b.Call("Optimizer.gradients_before.1.forward").OutAt("0.w", Recorded(first));
    }
    b.Call("Functional.linear." + number + ".backward").In(Recorded({1}, "[]"));
    b.Out(Recorded(Random(16, 20 + n))).Out(Recorded(gradient));
  };
  pass(0, first);
  pass(1, second);
  b.Call("Optimizer.SGD.step.0.forward");
  b.Kwarg("gradients.w", Recorded(cleared ? second : Sum(first, second)));
  b.Kwarg("weights.w", Recorded(Random(16, 9)));
  return b.Take();
}

TEST(GradientsBefore, AreAddendsOfWhatAnOptimizerTakes) {
  constexpr std::string_view kEntry = "Optimizer.gradients_before.1.forward";
  EXPECT_EQ(FirstOf(Accumulated(true), Accumulated(false)), kEntry);
  EXPECT_EQ(FirstOf(Accumulated(false), Accumulated(true)), kEntry);
  EXPECT_EQ(FirstOf(Accumulated(false, true), Accumulated(false)), "Functional.linear.1.backward");
}

void OnOneMachine(DumpBuilder* b) {
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, const char*>>{
           {"torch", "2.13.0"}, {"device", "cpu"}, {"threads", "1"}, {"deterministic", "false"}})
    b->dump().provenance.emplace_back(key, value);
}

// Angles of positions and frequencies; the frequencies were rounded to bfloat16.
Dump Rotary(bool rounded) {
  const Elements places = Random(16, 1),
                 exact = Map(Random(16, 2), [](float v) { return std::abs(v) + 0.1F; });
  const Elements rates = rounded ? Times(exact, 1 + 0x1p-9F) : exact;
  Elements angles(16);
  for (size_t i = 0; i < angles.size(); ++i) angles[i] = places[i] * rates[i];
  DumpBuilder b;
  OnOneMachine(&b);
  b.Call("Tensor.float.0.forward");
  test::Tensor given = Recorded(rates);
  if (rounded) given.DType("torch.bfloat16").Print("of the rounded ones");
  b.In(given).Out(Recorded(rates));
  b.Call("Torch.outer.0.forward").In(Recorded(places)).In(Recorded(rates)).Out(Recorded(angles));
  b.Call("Tensor.to.0.forward").In(Recorded(angles));
  b.Out(Recorded(angles).DType("torch.bfloat16"));
  return b.Take();
}

// A function of bfloat16, which the golden computes in float32: the results differ in few
// roundings.
Dump Cast(bool casts, float off) {
  const Elements x = Random(64, 1), y = Sum(Random(64, 2), Random(64, 3), off);
  const auto low = [](const Elements& e) {
    test::Tensor t = Recorded(e);
    return t.DType("torch.bfloat16").Print("rounded " + t.fingerprint);
  };
  DumpBuilder b;
  b.Call("Tensor.mul.0.forward").In(low(Random(64, 4))).Out(low(x));
  if (casts) b.Call("Tensor.float.0.forward").In(low(x)).Out(Recorded(x));
  b.Call("Torch.softmax.0.forward").In(casts ? Recorded(x) : low(x));
  b.Value("dim", "int", "-1").Out(casts ? Recorded(y) : low(y));
  if (casts) b.Call("Tensor.to.0.forward").In(Recorded(y)).Out(low(y));
  b.Call("Tensor.matmul.0.forward").In(low(y)).Out(low(Sum(Random(64, 5), Random(64, 6), off)));
  OnOneMachine(&b);
  return b.Take();
}

TEST(SecondLook, AFunctionThatTheGoldenComputesBetweenCastsIsSaid) {
  const Comparison c = Compared(Cast(false, 1e-3F), Cast(true, 0));
  EXPECT_EQ(First(c), "Torch.softmax.0.forward");
  EXPECT_THAT(c.first.why.English(),
              ::testing::HasSubstr("in torch.float32, and the target in torch.bfloat16"));
  // Computed as finely, or with the same bits.
  EXPECT_EQ(FirstOf(Cast(true, 1e-3F), Cast(false, 0)), "none");
  EXPECT_EQ(FirstOf(Cast(false, 0), Cast(true, 0)), "none");
}

TEST(SecondLook, ValuesThatWereRoundedToACoarserDTypeAreSaid) {
  EXPECT_EQ(FirstOf(Rotary(true), Rotary(false)), "Tensor.float.0.forward");
  EXPECT_EQ(FirstOf(Rotary(true), Rotary(true)), "none");
}

// What a net under autocast says, and what was wanted, which one run rounds, too.
Dump Wanted(bool rounds, float off, float noise = 0) {
  const Elements said = Times(Random(64, 1), 1 + noise), wanted = Random(64, 2);
  const auto low = [](const Elements& e) {
    test::Tensor t = Recorded(e);
    return t.DType("torch.bfloat16").Print("rounded " + t.fingerprint);
  };
  DumpBuilder b;
  OnOneMachine(&b);
  b.Call("Functional.linear.0.forward").In(Recorded(Times(Random(64, 3), 1 + noise)));
  b.Out(low(said));
  b.Call("Tensor.float.0.forward").In(low(said)).Out(Recorded(said));
  b.Call("Torch.cos.0.forward").In(Recorded(Random(64, 4))).Out(Recorded(wanted));
  if (rounds) b.Call("Tensor.bfloat16.0.forward").In(Recorded(wanted)).Out(low(wanted));
  b.Call("Tensor.__sub__.0.forward").In(Recorded(said));
  b.In(rounds ? low(wanted) : Recorded(wanted)).Out(Recorded(Sum(said, wanted, -1 - off)));
  return b.Take();
}

TEST(SecondLook, ACastIsSaidAlsoWhereBothRunsRoundedBefore) {
  EXPECT_EQ(FirstOf(Wanted(true, 1e-3F), Wanted(false, 0)), "Tensor.bfloat16.0.forward");
  EXPECT_EQ(FirstOf(Wanted(true, 0), Wanted(false, 0)), "none");  // with the same bits
  // What else it is given has other bits, too: they may be the cause.
  EXPECT_EQ(FirstOf(Wanted(true, 1e-3F, 1e-6F), Wanted(false, 0)), "none");
}

// A convolution that leaves an argument out, or says `groups`; all is off by a rounding.
Dump Convolution(const std::string& groups) {
  const float off = groups.empty() ? 1e-7F : 0;
  const Elements x = Sum(Random(64, 1), Random(64, 4), off);
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(64, 5))).Out(Recorded(x));
  b.Call("Functional.conv2d.0.forward").In(Recorded(x));
  if (!groups.empty()) b.Value("6", "int", groups);
  b.Out(Recorded(Sum(Random(64, 2), Random(64, 3), off)));
  return b.Take();
}

TEST(SecondLook, AnArgumentThatIsLeftOutIsNeutral) {
  EXPECT_EQ(FirstOf(Convolution(""), Convolution("1")), "none");
  EXPECT_EQ(FirstOf(Convolution("1"), Convolution("")), "none");
  EXPECT_EQ(FirstOf(Convolution(""), Convolution("4")), "Functional.conv2d.0.forward");
  EXPECT_EQ(FirstOf(Convolution("4"), Convolution("")), "Functional.conv2d.0.forward");
}

// Means of neighbours, by an operation that takes the width of its window, or the window.
Dump Means(bool by_convolution, float off, float wrong) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(64, 5))).Out(Recorded(Random(64, 1)));
  b.Call(by_convolution ? "Functional.conv2d.0.forward" : "Functional.avg_pool2d.0.forward");
  b.In(Recorded(Random(64, 1)));
  b.Value(by_convolution ? "groups" : "kernel_size", "int", "3");
  b.Out(Recorded(Sum(Random(64, 2), Random(64, 3), off + wrong)));
  return b.Take();
}

TEST(SecondLook, ArgumentsOfTwoOperationsAreNotCompared) {
  EXPECT_EQ(FirstOf(Means(true, 1e-7F, 0), Means(false, 0, 0)), "none");
  EXPECT_EQ(FirstOf(Means(false, 0, 0), Means(true, 1e-7F, 0)), "none");
  EXPECT_EQ(FirstOf(Means(true, 1e-7F, 0.1F), Means(false, 0, 0)), "Functional.conv2d.0.forward");
}

TEST(SecondLook, SaysThatNoResultOfTheStepShowsIt) {
  const auto why = [](Dump target, Dump golden) {
    return test::Compared(std::move(target), std::move(golden)).first.why.English();
  };
  EXPECT_THAT(why(Convolution(""), Convolution("4")),
              testing::HasSubstr("it differs without effect on this step"));
  EXPECT_THAT(why(Means(true, 0.1F, 0), Means(true, 0, 0)),
              testing::Not(testing::HasSubstr("without effect")));
}

// A loss of logits that a cast, which only one run makes, rounded to bfloat16.
Dump LossOf(bool rounded) {
  const Elements logits = Random(64, 1), losses = Random(8, 2);
  const auto low = [](const Elements& e) {
    test::Tensor t = Recorded(Times(e, 1 + 0x1p-10F));
    return t.DType("torch.bfloat16").Print("rounded " + t.fingerprint);
  };
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Recorded(Random(64, 3))).Out(Recorded(logits));
  if (rounded) b.Call("Tensor.bfloat16.0.forward").In(Recorded(logits)).Out(low(logits));
  b.Call("Functional.cross_entropy.0.forward").In(rounded ? low(logits) : Recorded(logits));
  b.Out(rounded ? low(losses) : Recorded(losses));
  OnOneMachine(&b);
  return b.Take();
}

TEST(SecondLook, ALossOfRoundedLogitsIsSaid) {
  EXPECT_EQ(FirstOf(LossOf(true), LossOf(false)), "Tensor.bfloat16.0.forward");
  EXPECT_EQ(FirstOf(LossOf(false), LossOf(true)), "none");
  EXPECT_EQ(FirstOf(LossOf(true), LossOf(true)), "none");
}

// Times, which are not below zero; a sum in float32 does not show it.
Dump ScaledTimes(bool below_zero) {
  const auto integers = [](const Elements& x) { return Recorded(x).DType("torch.int64"); };
  const Elements start = {-3, 5, 9, 20, 7, 2, 31, 12};
  const Elements late = Map(start, [](float v) { return std::max(v, 0.0F); });
  const Elements& used = below_zero ? start : late;
  DumpBuilder b;
  OnOneMachine(&b);
  b.Call("Tensor.sub.0.forward").In(integers(Map(start, [](float v) { return v + 20; })));
  b.Value("other", "int", "20").Out(integers(start));
  if (!below_zero) b.Call("Tensor.clamp.0.forward").In(integers(start)).Out(integers(late));
  b.Call("Tensor.mul.0.forward").In(integers(used)).Out(integers(Times(used, 10)));
  b.Call("Torch.cos.0.forward").In(Recorded(Random(16, 1))).Out(Recorded(Random(16, 2)));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Recorded(Random(16, 2)));
  return b.Take();
}

TEST(SecondLook, IntegersThatOneCallMoreWouldHaveChangedAreSaid) {
  EXPECT_EQ(FirstOf(ScaledTimes(true), ScaledTimes(false)), "Tensor.mul.0.forward");
}

}  // namespace
}  // namespace msprobe::compare::relations
