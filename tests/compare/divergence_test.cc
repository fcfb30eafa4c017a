#include "engine/compare/explain/divergence.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/explain.h"
#include "engine/compare/explain/fix_hint.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::First;
using test::kRounding;
using test::kWrong;
using test::MustCompare;
using test::Value;
using ::testing::HasSubstr;
using ::testing::Not;

// Calls f0, f1, ...: the input of each is the output of the previous one. From the output of call
// `wrong` on, values are off by `error`; earlier values are off by `before`.
Dump Chain(int calls, int wrong, double error = kWrong, double before = 0) {
  DumpBuilder b;
  for (int i = 0; i < calls; ++i) {
    const auto error_at = [&](int step) { return step > wrong ? error : before; };
    b.Call("Functional.f" + std::to_string(i) + ".0.forward")
        .In(Value(i, error_at(i)))
        .Out(Value(i + 1, error_at(i + 1)));
    b.At("/env/site-packages/torch/nn/functional.py", 9, "return x", "f");
    b.dump().stacks.back().push_back(
        b.dump().arena.emplace_back("File train.py, line 41, in forward, \n y = f(x)"));
  }
  return b.Take();
}

TEST(DivergenceTest, IntroducedWhereInputsAgree) {
  const Comparison c = MustCompare(Chain(6, 3), Chain(6, 99));
  EXPECT_EQ(First(c), "Functional.f3.0.forward");
  EXPECT_EQ(c.first.call_class, CallClass::kIntroduced);
  EXPECT_GT(c.first.confidence, 0.9);
  EXPECT_EQ(c.first.source_line, "train.py:41 in forward: y = f(x)");
  EXPECT_THAT(c.first.why.English(), HasSubstr("3 calls before it are equal"));
  EXPECT_THAT(c.first.why.English(), HasSubstr("output.0"));
  EXPECT_EQ(c.classes[4], CallClass::kInherited);
}

TEST(DivergenceTest, EqualRunsNameNoDivergence) {
  EXPECT_EQ(First(MustCompare(Chain(4, 99), Chain(4, 99))), "none");
}

TEST(DivergenceTest, AnotherArgumentIsTheReason) {
  DumpBuilder t, g;
  for (auto [b, p] : {std::pair{&t, "0.5"}, std::pair{&g, "0.1"}}) {
    b->Call("Functional.dropout.0.forward")
        .In(Value(1))
        .Value("p", "float", p)
        .Out(Value(2, b == &t ? kWrong : 0));
  }
  const Comparison c = MustCompare(t.Take(), g.Take());
  EXPECT_EQ(c.first.call_class, CallClass::kIntroduced);
  EXPECT_THAT(c.first.why.English(), HasSubstr("the call itself was made differently"));
  EXPECT_THAT(c.first.why.English(), HasSubstr("0.5"));
}

TEST(DivergenceTest, AllArgumentsThatDifferAreNamed) {
  DumpBuilder t, g;
  for (DumpBuilder* b : {&t, &g}) {
    b->Call("Functional.scaled_dot_product_attention.0.forward").In(Value(1));
    for (const char* name : {"a", "b", "c", "d"}) b->Value(name, "float", b == &t ? "0.5" : "0.1");
    b->Value("is_causal", "bool", "True").Out(Value(2, b == &t ? kWrong : 0));
  }
  const Comparison c = MustCompare(t.Take(), g.Take());
  for (const char* name : {"a", "b", "c"})
    EXPECT_THAT(c.first.why.English(), HasSubstr(std::string(name) + " is \"0.5\" in the target"));
  EXPECT_THAT(c.first.why.English(), HasSubstr("; 1 other argument differs"));
  EXPECT_THAT(c.first.why.English(), Not(HasSubstr("is_causal")));
}

TEST(DivergenceTest, AnArgumentThatWasComputedFromRoundedTensorsIsNotNamed) {
  DumpBuilder t, g;
  for (auto [b, scale] : {std::pair{&t, "0.33333334"}, std::pair{&g, "0.33333331"}}) {
    const double error = b == &t ? 2e-7 : 0;
    b->Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2, error));
    b->Call("Tensor.mul.0.forward")
        .In(Value(2, error))
        .Value("other", "float", scale)
        .Out(Value(3, error));
  }
  EXPECT_EQ(First(MustCompare(t.Take(), g.Take())), "none");
}

TEST(DivergenceTest, RandomOperationsPointAtTheSeed) {
  DumpBuilder t, g;
  t.Call("Functional.dropout.0.forward").In(Value(1)).Out(Value(2, kWrong));
  g.Call("Functional.dropout.0.forward").In(Value(1)).Out(Value(2));
  EXPECT_THAT(MustCompare(t.Take(), g.Take()).first.advice.English(), HasSubstr("seed"));
}

TEST(DivergenceTest, AParameterThatDiffersBeginsBeforeTheRun) {
  const auto build = [](double error, const char* step = "step0") {
    DumpBuilder b;
    b.dump().path = std::string("runs/a/") + step + "/rank0/dump.json";
    b.Call("Module.ln.LayerNorm.forward.0").In(Value(0)).Out(Value(1));
    b.Call("Module.fc.Linear.forward.0")
        .In(Value(1))
        .Parameter("weight", Value(7, error))
        .Out(Value(2, error));
    return b.Take();
  };
  const Comparison c = MustCompare(build(kWrong), build(0));
  EXPECT_EQ(First(c), "Module.fc.Linear.forward.0");
  EXPECT_EQ(c.first.call_class, CallClass::kInherited);
  EXPECT_THAT(c.first.why.English(), HasSubstr("parameters.weight"));
  EXPECT_THAT(c.first.why.English(), HasSubstr("before the first recorded operation"));
  EXPECT_THAT(c.first.advice.English(), HasSubstr("the initialisation and its seed"));
  const Comparison later = MustCompare(build(kWrong, "step12"), build(0, "step12"));
  EXPECT_THAT(later.first.why.English(),
              HasSubstr("before the first recorded operation of step 12"));
  EXPECT_THAT(later.first.advice.English(), HasSubstr("compare the steps before"));
}

TEST(DivergenceTest, InputDataDifferAtTheEntry) {
  const Comparison c = MustCompare(Chain(3, -1), Chain(3, 99));
  EXPECT_EQ(First(c), "Functional.f0.0.forward");
  EXPECT_EQ(c.first.call_class, CallClass::kInherited);
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("the error begins before the first recorded operation"));
}

// Call a, then b on the output of a or, if `scaled`, on the scaled output.
Dump AThenB(bool scaled) {
  const double error = scaled ? kWrong : 0;
  DumpBuilder b;
  b.Call("Functional.a.0.forward").In(Value(0)).Out(Value(1));
  if (scaled) b.Call("Tensor.scale.0.forward").In(Value(1)).Out(Value(1, error));
  b.Call("Functional.b.0.forward").In(Value(1, error)).Out(Value(2, error));
  return b.Take();
}

TEST(DivergenceTest, AnInsertedOperationIsNamed) {
  const Comparison c = MustCompare(AThenB(true), AThenB(false));
  EXPECT_EQ(First(c), "Tensor.scale.0.forward");
  EXPECT_THAT(c.first.why.English(), HasSubstr("exists only in the target"));
  EXPECT_GT(c.first.confidence, 0.8);
}

TEST(DivergenceTest, AMissingOperationIsNamed) {
  const Comparison c = MustCompare(AThenB(false), AThenB(true));
  EXPECT_EQ(First(c), "Tensor.scale.0.forward");
  EXPECT_THAT(c.first.why.English(), HasSubstr("exists only in the golden"));
}

// An extra call without effect is not the cause of a much later difference.
TEST(DivergenceTest, AHarmlessExtraCallIsNotTheCause) {
  Dump golden = Chain(40, 99);
  DumpBuilder b;
  b.Call("Torch.check.0.forward").In(Value(50)).Out(Value(51));
  for (int i = 0; i < 40; ++i) {
    b.Call("Functional.f" + std::to_string(i) + ".0.forward")
        .In(Value(i, i > 30 ? kWrong : 0))
        .Out(Value(i + 1, i >= 30 ? kWrong : 0));
  }
  EXPECT_EQ(First(MustCompare(b.Take(), std::move(golden))), "Functional.f30.0.forward");
}

// A module is recorded when it completes. The inner call is named, not the module around it.
TEST(DivergenceTest, TheInnermostOperationIsNamed) {
  const auto build = [](double error) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward")
        .Parent("Module.fc.Linear.forward.0")
        .In(Value(1))
        .Out(Value(2, error));
    b.Call("Module.fc.Linear.forward.0")
        .Parent("Module.net.Net.forward.0")
        .In(Value(1))
        .Out(Value(2, error));
    b.Call("Module.net.Net.forward.0").In(Value(1)).Out(Value(3, error));
    return b.Take();
  };
  const Comparison c = MustCompare(build(kWrong), build(0));
  EXPECT_EQ(First(c), "Functional.linear.0.forward");
  EXPECT_TRUE(c.runners_up.empty());  // the modules around it are the same error
}

TEST(DivergenceTest, AnUnrecordedOperationInsideAModule) {
  const auto build = [](double error) {
    DumpBuilder b;
    b.Call("Functional.a.0.forward").Parent("Module.net.Net.forward.0").In(Value(1)).Out(Value(2));
    b.Call("Functional.b.0.forward")
        .Parent("Module.net.Net.forward.0")
        .In(Value(5, error))
        .Out(Value(6, error));
    b.Call("Module.net.Net.forward.0").In(Value(1)).Out(Value(6, error));
    return b.Take();
  };
  const Comparison c = MustCompare(build(kWrong), build(0));
  EXPECT_EQ(First(c), "Functional.b.0.forward");
  EXPECT_THAT(c.first.why.English(), HasSubstr("Module.net.Net.forward.0"));
  EXPECT_THAT(c.first.why.English(), HasSubstr("not recorded"));
}

TEST(DivergenceTest, BackwardIntroducesWhenForwardAgrees) {
  const auto build = [](double error) {
    DumpBuilder b;
    b.Call("Functional.gelu.0.forward")
        .In(Value(1))
        .Out(Value(2))
        .At("train.py", 5, "y = F.gelu(x)");
    b.Call("Functional.gelu.0.backward").In(Value(3)).Out(Value(4, error));
    return b.Take();
  };
  const Comparison c = MustCompare(build(kWrong), build(0));
  EXPECT_EQ(First(c), "Functional.gelu.0.backward");
  EXPECT_EQ(c.first.source_line, "train.py:5 in forward: y = F.gelu(x)");  // of its forward
}

TEST(DivergenceTest, BackwardOfADivergedForwardInherits) {
  const auto build = [](double error) {
    DumpBuilder b;
    b.Call("Functional.gelu.0.forward").In(Value(1)).Out(Value(2, error));
    b.Call("Functional.gelu.0.backward").In(Value(3)).Out(Value(4, error));
    return b.Take();
  };
  const Comparison c = MustCompare(build(kWrong), build(0));
  EXPECT_EQ(c.classes[1], CallClass::kInherited);
}

// A module's parameter gradient that is wrong by `error`. It is recorded before the backward call
// that made it, because autograd accumulates a leaf's gradient immediately.
Dump WrongWeightGradient(double error, double into_backward, bool with_api) {
  DumpBuilder b;
  b.Call("Module.fc.Linear.forward.0").In(Value(1)).Out(Value(2));
  b.At("train.py", 41, "y = self.fc(x)");
  if (with_api) {
    b.Call("Functional.linear.0.forward").In(Value(1)).In(Value(9)).Out(Value(2));
    b.At("linear.py", 7, "return F.linear(x, w)");
  }
  b.Call("Module.fc.Linear.parameters_grad.0").Grad("weight", Value(5, error));
  if (with_api)
    b.Call("Functional.linear.0.backward").In(Value(3)).Out(Value(4)).Out(Value(5, error));
  b.Call("Module.fc.Linear.backward.0").In(Value(3, into_backward)).Out(Value(4));
  return b.Take();
}

TEST(DivergenceTest, AParametersGradientBeginsWhereItsBackwardAgrees) {
  const Comparison c =
      MustCompare(WrongWeightGradient(kWrong, 0, false), WrongWeightGradient(0, 0, false));
  EXPECT_EQ(First(c), "Module.fc.Linear.parameters_grad.0");
  EXPECT_EQ(c.first.call_class, CallClass::kIntroduced);
  EXPECT_GT(c.first.confidence, 0.9);
  EXPECT_THAT(c.first.why.English(), HasSubstr("its inputs are equal"));
  EXPECT_EQ(c.first.source_line, "train.py:41 in forward: y = self.fc(x)");
}

TEST(DivergenceTest, AParametersGradientInheritsFromItsBackward) {
  const Comparison c =
      MustCompare(WrongWeightGradient(kWrong, kWrong, false), WrongWeightGradient(0, 0, false));
  EXPECT_EQ(c.classes[1], CallClass::kInherited);
}

TEST(DivergenceTest, TheCallThatMadeAParametersGradientIsNamed) {
  const Comparison c =
      MustCompare(WrongWeightGradient(kWrong, 0, true), WrongWeightGradient(0, 0, true));
  EXPECT_EQ(First(c), "Functional.linear.0.backward");
  EXPECT_EQ(c.first.call_class, CallClass::kIntroduced);
  EXPECT_GT(c.first.confidence, 0.9);
  EXPECT_TRUE(c.runners_up.empty());
}

TEST(DivergenceTest, ANormalisationAmplifiesByNature) {
  const auto build = [](const std::string& name, double in, double out) {
    DumpBuilder b;
    b.Call("Functional." + name + ".0.forward").In(Value(1, in)).Out(Value(2, out));
    return b.Take();
  };
  const Comparison norm =
      MustCompare(build("layer_norm", kRounding, 1e-4), build("layer_norm", 0, 0));
  const Comparison gelu = MustCompare(build("gelu", kRounding, 1e-4), build("gelu", 0, 0));
  EXPECT_LT(norm.first.confidence, gelu.first.confidence);
  EXPECT_THAT(norm.first.advice.English(), HasSubstr("enlarges the rounding"));
}

TEST(DivergenceTest, ANormalisationWithAnotherArgumentDoesNotOnlyAmplify) {
  const auto build = [](double error, const char* eps) {
    DumpBuilder b;
    b.Call("Functional.layer_norm.0.forward").In(Value(1, error > 0 ? kRounding : 0));
    b.Value("eps", "float", eps).Out(Value(2, error));
    return b.Take();
  };
  const Comparison c = MustCompare(build(1e-4, "0.1"), build(0, "1e-05"));
  EXPECT_GT(c.first.confidence, 0.8);
  EXPECT_LT(MustCompare(build(1e-4, "0.1"), build(0, "0.1")).first.confidence, 0.2);
}

TEST(DivergenceTest, WithoutInputsOnlyASuspicion) {
  const auto build = [](double error) {
    DumpBuilder b;
    b.Call("Functional.a.0.forward")
        .Out(Value(1))
        .Call("Functional.b.0.forward")
        .Out(Value(2, error));
    return b.Take();
  };
  const Comparison c = MustCompare(build(kWrong), build(0));
  EXPECT_EQ(First(c), "Functional.b.0.forward");
  EXPECT_EQ(c.first.call_class, CallClass::kUnknown);
  EXPECT_LE(c.first.confidence, 0.4);
  EXPECT_THAT(c.first.why.English(), HasSubstr("inputs were not recorded"));
}

TEST(DivergenceTest, RunnersUpAreOtherBeginnings) {
  const auto build = [](double error) {
    DumpBuilder b;
    for (int i = 0; i < 9; ++i) {
      b.Call("Functional.f" + std::to_string(i) + ".0.forward")
          .In(Value(2 * i))
          .Out(Value(2 * i + 1, error));
    }
    return b.Take();
  };
  const Comparison c = MustCompare(build(kWrong), build(0));
  EXPECT_EQ(First(c), "Functional.f0.0.forward");
  EXPECT_EQ(c.runners_up.size(), 5u);
}

}  // namespace
}  // namespace msprobe::compare
