// The answers of --engine relations: which call, in which words, under which options.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "engine/compare/explain/summary.h"
#include "engine/compare/model/proofs.h"
#include "engine/compare/ranks/between_steps.h"
#include "engine/formats/tensors/npy.h"
#include "tests/base/temporary_folder.h"
#include "tests/compare/divergence_values.h"
#include "tests/compare/recorded.h"

namespace msprobe::compare::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Comparison Related(Dump target, Dump golden, Exactness exactness = Exactness::kAuto) {
  return MustCompare(std::move(target), std::move(golden), {.exactness = exactness});
}

// A value of a dump that has digests.
Tensor BitsOfStep(int step, const char* digest, double error = 0) {
  return Value(step, error).Print(std::to_string(step) + digest);
}

TEST(Answer, SaysWhatAgreedBeforeAndByHowMuchTheResultIsOff) {
  const auto run = [](double error) {
    DumpBuilder b;
    b.Call("Functional.a.0.forward").In(Value(1)).Out(Value(2));
    b.Call("Functional.b.0.forward").In(Value(2)).Out(Value(3, error));
    return b.Take();
  };
  const Comparison c = Related(run(kWrong), run(0));
  EXPECT_EQ(First(c), "Functional.b.0.forward");
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("1 call before it is equal; its inputs are equal; "));
  EXPECT_THAT(c.first.why.English(), HasSubstr("off by 5%"));
}

TEST(Answer, KeepsTheProofOfEachValueIfAsked) {
  const auto run = [](double error) {
    DumpBuilder b;
    b.Call("Functional.a.0.forward").In(Value(1)).Out(Value(2));
    b.Call("Functional.b.0.forward").In(Value(2)).Out(Value(3, error));
    return b.Take();
  };
  const auto compared = [&](bool keep) {
    return MustCompare(run(kWrong), run(0), {.keep_proofs = keep});
  };
  EXPECT_EQ(compared(false).decided->proofs, nullptr);
  const Comparison c = compared(true);
  const relations::Proofs& proofs = *c.decided->proofs;
  ASSERT_EQ(proofs.of_leaf.size(), 4U);
  const relations::ValueProof& given = proofs.values[proofs.of_leaf[2]];
  const relations::ProofStep& equal = proofs.steps[given.step];
  EXPECT_EQ(equal.strength, relations::Strength::kEqual);
  EXPECT_EQ(proofs.golden_leaf[equal.golden], 1) << "where the golden makes it";
  EXPECT_FALSE(given.exposed);
  const relations::ValueProof& made = proofs.values[proofs.of_leaf[3]];
  const relations::ProofStep& wrong = proofs.steps[made.step];
  EXPECT_EQ(wrong.strength, relations::Strength::kNone);
  EXPECT_GT(wrong.error, wrong.bound);
  EXPECT_TRUE(made.exposed);
  ASSERT_EQ(proofs.PremisesOf(wrong).size(), 1U);
  EXPECT_EQ(proofs.PremisesOf(wrong)[0].value, proofs.of_leaf[2]);
  const ProofChain chain = ChainOf(c, 1, 10);
  ASSERT_EQ(chain.lines.size(), 3U);
  EXPECT_THAT(chain.lines[2].text.English(),
              HasSubstr("how Functional.b treats rounding is a guess"));
  EXPECT_THAT(chain.lines[0].text.English(),
              HasSubstr("Functional.a.0.forward.output.0 is the golden's, bit for bit"));
  EXPECT_THAT(chain.lines[1].text.English(),
              HasSubstr("Functional.b.0.forward.output.0: 1.05 times the golden's"));
}

TEST(Answer, AParameterThatOneOptimizerDoesNotUpdate) {
  const auto run = [](bool both) {
    DumpBuilder b;
    b.Call("Functional.linear.0.backward").In(Value(0)).Out(Value(1)).Out(Value(2));
    b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Value(1));
    if (both) b.Kwarg("gradients.b", Value(2)).Kwarg("weights.b", Value(3));
    b.Kwarg("weights.w", Value(4)).OutAt("0.weights.w", Value(5));
    if (both) b.OutAt("0.weights.b", Value(6));
    return b.Take();
  };
  for (const bool target : {false, true}) {
    const Comparison c = Related(run(target), run(!target));
    EXPECT_EQ(First(c), "Optimizer.SGD.step.0.forward");
    EXPECT_THAT(c.first.why.English(), HasSubstr(target ? "only the target updates b here"
                                                        : "only the golden updates b here"));
    EXPECT_EQ(WeightsIn(c).first_error, 0) << "of one run's value alone";
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kDiffers);
  }
}

// Data of code without records: no input that differs is called equal.
TEST(Answer, WhatGoesInAndDiffersIsNotSaidToBeEqual) {
  const auto run = [](double error, bool extra) {
    DumpBuilder b;
    if (extra) b.Call("Tensor.numpy.0.forward").In(Value(9));
    b.Call("Functional.a.0.forward").In(Value(1, error)).In(Value(2)).Out(Value(3, error));
    return b.Take();
  };
  for (const bool extra : {true, false}) {
    const Comparison c = Related(run(kWrong, extra), run(0, false));
    EXPECT_EQ(First(c), "Functional.a.0.forward");
    EXPECT_THAT(c.first.why.English(), Not(HasSubstr("inputs are")));
    EXPECT_THAT(c.first.why.English(), HasSubstr("of input.0 is off by 5%"));
  }
}

// What code without records made may have been rounded by several calls, and calls enlarge it.
TEST(Answer, RoundingThatArrivesMayGrow) {
  const auto run = [](const std::vector<double>& errors) {
    DumpBuilder b;
    for (int i = 0; i + 1 < static_cast<int>(errors.size()); ++i) {
      b.Call("Functional.f" + std::to_string(i) + ".0.forward").In(Value(i, errors[i]));
      b.Out(Value(i + 1, errors[i + 1]));
    }
    return b.Take();
  };
  EXPECT_EQ(First(Related(run({1e-6, 5e-6, 1.5e-5, 6e-5, 2e-4}), run({0, 0, 0, 0, 0}))), "none");
  EXPECT_NE(First(Related(run({1e-6, 5e-6, 1.5e-5, 6e-5, kWrong}), run({0, 0, 0, 0, 0}))), "none");
}

// A gradient that nobody takes is a result of the step where no gradients of parameters were
// recorded.
TEST(Answer, AWrongGradientWithoutOptimizer) {
  const auto run = [](double error) {
    DumpBuilder b;
    b.Call("Functional.gelu.0.forward").In(Value(1)).Out(Value(2));
    b.Call("Functional.gelu.0.backward").In(Value(3)).Out(Value(4, error));
    return b.Take();
  };
  EXPECT_EQ(First(Related(run(kWrong), run(0))), "Functional.gelu.0.backward");
  EXPECT_EQ(First(Related(run(0), run(0))), "none");
}

TEST(Answer, OfModulesAloneTheLineInsideOfTheModule) {
  const auto run = [](double error) {
    const std::string layer = "Module.layer.Layer.forward.0";
    DumpBuilder b;
    b.Call("Module.layer.up.Linear.forward.0").In(Value(1)).Out(Value(2)).Parent(layer);
    b.Call("Module.layer.down.Linear.forward.0").In(Value(3, error)).Out(Value(4, error));
    b.Parent(layer).At("net.py", 9, "return down(f(up(x)))");
    b.Call(layer).In(Value(1)).Out(Value(4, error)).At("net.py", 30, "x = layer(x)");
    return b.Take();
  };
  const Comparison c = Related(run(kWrong), run(0));
  EXPECT_EQ(First(c), "Module.layer.Layer.forward.0");
  EXPECT_THAT(c.first.source_line, HasSubstr("net.py:9"));
}

// A module's input requires a gradient, since other modules are before it: it is no weight.
TEST(Answer, OfModulesAloneWhatEntersOneWasMadeBetweenThem) {
  const auto run = [](double error) {
    DumpBuilder b;
    b.dump().level = Level::kL0;
    b.Call("Module.up.Linear.forward.0").In(Value(1)).Out(Value(2));
    b.Call("Module.down.Linear.forward.0").In(Value(3, error)).Out(Value(4, error));
    return b.Take();
  };
  const Comparison c = Related(run(kWrong), run(0));
  EXPECT_EQ(First(c), "Module.down.Linear.forward.0");
  EXPECT_THAT(
      c.first.why.English(),
      HasSubstr("no module made the value, but an operation that level L0 does not record"));
  EXPECT_THAT(c.first.advice.English(), HasSubstr("record at level mix"));
}

TEST(Answer, OfTwoStepsTheSameStepIsAdvised) {
  const auto run = [](double error, const char* path) {
    DumpBuilder b;
    b.dump().path = path;
    b.Call("Functional.linear.0.forward").In(Value(1, error)).Out(Value(2, error));
    return b.Take();
  };
  const Comparison other = Related(run(kWrong, "t/step3/dump.json"), run(0, "g/step2/dump.json"));
  EXPECT_THAT(other.first.advice.English(), HasSubstr("compare the same step of both runs"));
  const Comparison same = Related(run(kWrong, "t/step3/dump.json"), run(0, "g/step3/dump.json"));
  EXPECT_THAT(same.first.advice.English(), HasSubstr("compare the input data"));
}

TEST(Answer, ACallThatOnlyMovesMakesOtherElements) {
  const auto run = [](const char* digest) {
    DumpBuilder b;
    b.Call("Tensor.repeat.0.forward").In(BitsOfStep(1, "a")).Out(BitsOfStep(2, digest));
    return b.Take();
  };
  const Comparison c = Related(run("b"), run("c"));
  EXPECT_EQ(First(c), "Tensor.repeat.0.forward");
  EXPECT_EQ(c.measures[1].reason, Reason::kMoved);
}

// Scores with a mask of -1e38 in them: what is beside the mask is wrong.
TEST(Answer, AMaskDoesNotHideTheElementsBesideIt) {
  const TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path();
  const auto run = [&](const std::string& side, float score, double error) {
    const std::vector<float> x = {score, 2, 3, -1e38F};
    const int64_t size = 4;
    std::filesystem::create_directories(folder / side);
    const TensorView view{.data = x.data(), .dtype = DType::kFloat32, .ndim = 1, .shape = &size};
    EXPECT_TRUE(formats::WriteNpy(folder / side / "x.npy", view).ok());
    DumpBuilder b;
    b.dump().task = Task::kTensor;
    b.dump().tensor_folder = folder / side;
    const Tensor scores =
        Numbers(3, -1e38, -2.5e37, 1e38).Shape("[4]").Data("x.npy").Print("s" + side);
    b.Call("Tensor.add.0.forward").In(BitsOfStep(1, "a")).Out(scores);
    b.dump().rests.push_back({.leaf = static_cast<uint32_t>(b.dump().leaves.size() - 1)});
    LeafRest& rest = b.dump().rests.back();
    rest.extremes = 1, rest.max = 3, rest.min = score, rest.norm = std::hypot(score, 2, 3);
    b.Call("Functional.b.0.forward").In(scores).Out(BitsOfStep(3, side.c_str(), error));
    return b.Take();
  };
  Dump golden = run("golden", 1, 0);
  EXPECT_EQ(First(Related(run("target", 1.1F, kWrong), std::move(golden))), "Tensor.add.0.forward");
}

// The call that takes what only one run makes is named beside it, not one that is wrong before
// that.
TEST(Answer, ACallOfOneRunIsTiedToWhatTakesItsResult) {
  const auto run = [](bool extra) {
    const double error = extra ? kWrong : 0;
    DumpBuilder b;
    b.Call("Functional.a.0.forward").In(Value(1)).Out(Value(2));
    if (extra) b.Call("Functional.extra.0.forward").In(Value(2)).Out(Value(2, error));
    b.Call("Functional.b.0.forward").In(Value(2, error)).Out(Value(3, error));
    return b.Take();
  };
  const Comparison c = Related(run(true), run(false));
  EXPECT_EQ(First(c), "Functional.extra.0.forward");
  EXPECT_THAT(c.first.why.English(), HasSubstr("its output is an input of Functional.b.0.forward"));
}

// Gradients that are clipped before they are scaled back.
TEST(Answer, ACallAtAnotherPlaceIsNotSaidToBeSkipped) {
  const auto value = [](int step) {
    return Value(step).Shape("[2, 3]").Print("print" + std::to_string(step));
  };
  const auto run = [&](bool late) {
    DumpBuilder b;
    b.Call("Functional.linear.0.backward").In(value(0)).Out(value(1));
    if (!late) b.Call("Tensor.div_.0.forward").In(value(1)).Out(value(2));
    b.Call("Optimizer.clip_grad_norm_.0.forward").Kwarg("gradients.w", value(late ? 1 : 2));
    b.OutAt("0.gradients.w", value(late ? 3 : 4));
    if (late) b.Call("Tensor.div_.3.forward").In(Value(3).Shape("[6]")).Out(Value(5).Shape("[6]"));
    b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", value(late ? 5 : 4));
    b.OutAt("0.weights.w", value(late ? 6 : 7));
    return b.Take();
  };
  const Comparison c = Related(run(true), run(false));
  EXPECT_EQ(First(c), "Tensor.div_.0.forward");
  EXPECT_EQ(c.first.advice,
            "the target makes this call at another place of the step: Tensor.div_.3.forward");
}

TEST(Answer, AnotherArgumentIsSaidThoughItsResultIsWithinRounding) {
  const auto run = [](const char* eps, double error, double before = 0) {
    DumpBuilder b;
    b.Call("Functional.layer_norm.0.forward").In(Value(1, before)).Value("eps", "float", eps);
    b.Out(Value(2, error));
    b.Call("Functional.relu.0.forward").In(Value(2, error)).Out(Value(3, error));
    return b.Take();
  };
  const Comparison c = Related(run("1e-05", 2e-7), run("1e-06", 0));
  EXPECT_EQ(First(c), "Functional.layer_norm.0.forward");
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("eps is \"1e-05\" in the target, \"1e-06\" in the golden; its "
                        "result is still within rounding"));
  // Also where its inputs are within rounding, too.
  EXPECT_EQ(First(Related(run("1e-05", 2e-7, 1e-7), run("1e-06", 0))), First(c));
  // The same argument, and another kernel.
  EXPECT_EQ(First(Related(run("1e-05", 2e-7), run("1e-05", 0))), "none");
}

Dump ChainWithDigest(const char* digest, double error) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(BitsOfStep(1, "1")).Out(BitsOfStep(2, digest, error));
  b.Call("Functional.relu.0.forward")
      .In(BitsOfStep(2, digest, error))
      .Out(BitsOfStep(3, digest, error));
  return b.Take();
}

TEST(Answer, BitsDecideWhereTheCallerSaysSo) {
  EXPECT_EQ(First(Related(ChainWithDigest("b", 3e-7), ChainWithDigest("a", 0))), "none");
  const Comparison exact =
      Related(ChainWithDigest("b", 3e-7), ChainWithDigest("a", 0), Exactness::kExact);
  EXPECT_EQ(First(exact), "Functional.linear.0.forward");
  EXPECT_EQ(Summarize(exact).verdict, RunVerdict::kDiffers);
  EXPECT_EQ(First(Related(ChainWithDigest("a", 0), ChainWithDigest("a", 0), Exactness::kExact)),
            "none");
}

// The same statistics and other bits: the elements may stand in another order.
TEST(Answer, AnotherOrderIsAnotherValueWhereBitsDecide) {
  const Comparison c = Related(ChainWithDigest("b", 0), ChainWithDigest("a", 0), Exactness::kExact);
  EXPECT_EQ(First(c), "Functional.linear.0.forward");
  // Where one dump has no digests, equal statistics are all that is known.
  DumpBuilder older;
  older.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2));
  older.Call("Functional.relu.0.forward").In(Value(2)).Out(Value(3));
  const Comparison unknown = Related(ChainWithDigest("b", 0), older.Take(), Exactness::kExact);
  EXPECT_EQ(First(unknown), "none") << unknown.first.why.English();
}

TEST(Answer, AConstantIsNoExceptionWhereBitsDecide) {
  const auto run = [](double x) {
    const Tensor filled = Numbers(x, x, x, 2 * x).Shape("[4]").Print(std::to_string(x * 1e9));
    DumpBuilder b;
    b.Call("Tensor.f.0.forward").In(BitsOfStep(1, "1")).Out(filled);
    return b.Take();
  };
  EXPECT_EQ(First(Related(run(2 + 2e-7), run(2))), "none");
  EXPECT_EQ(First(Related(run(2 + 2e-7), run(2), Exactness::kExact)), "Tensor.f.0.forward");
}

// `bounded`: a ratio is bounded, and code without records takes parts of what comes out. Parts are
// other ones for that, and differ where they arrive.
Dump Ratios(bool bounded) {
  const Elements ratio = Map(Random(16, 1), [](float v) { return std::exp(v); });
  const Elements used = bounded ? Map(ratio, [](float v) { return std::min(v, 1.0F); }) : ratio;
  const Elements part(used.begin(), used.begin() + 8);
  const Elements sines = Map(used, [](float v) { return std::sin(v); });
  const auto sum = [](const Elements& x) {
    return Recorded({std::accumulate(x.begin(), x.end(), 0.0F)}, "[]");
  };
  DumpBuilder b;
  b.Call("Torch.exp.0.forward").In(Recorded(Random(16, 1))).Out(Recorded(ratio));
  if (bounded) b.Call("Torch.clamp.0.forward").In(Recorded(ratio)).Out(Recorded(used));
  b.Call("Torch.tanh.0.forward").In(Recorded(part));
  const Elements bent = Map(part, [](float v) { return std::tanh(v); });
  b.Out(Recorded(bent));
  b.Call("Torch.outer.0.forward").In(Recorded(used)).In(Recorded(bent));
  Elements products;
  for (const float x : used) {
    for (const float y : bent) products.push_back(x * y);
  }
  b.Out(Recorded(products, "[16, 8]"));
  b.Call("Torch.sum.0.forward").In(Recorded(products, "[16, 8]")).Out(sum(products));
  b.Call("Torch.cos.0.forward").In(Recorded(sines)).Out(Recorded(Map(sines, [](float v) {
    return std::cos(v);
  })));
  b.Call("Torch.sum.1.forward").In(Recorded(Map(sines, [](float v) { return std::cos(v); })));
  b.Out(sum(Map(sines, [](float v) { return std::cos(v); })));
  return b.Take();
}

TEST(Answer, WhatComesFromNowhereDoesNotExplainAnEarlierCall) {
  EXPECT_EQ(First(Related(Ratios(false), Ratios(true))), "Torch.clamp.0.forward");
  EXPECT_EQ(First(Related(Ratios(true), Ratios(false))), "Torch.clamp.0.forward");
}

}  // namespace
}  // namespace msprobe::compare::test
