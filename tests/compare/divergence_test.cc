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
#include "tests/compare/by_rules.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare {
namespace {

using test::ByRules;
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
  EXPECT_THAT(c.first.why, HasSubstr("3 calls before it are equal"));
  EXPECT_THAT(c.first.why, HasSubstr("output.0"));
  EXPECT_EQ(c.classes[4], CallClass::kInherited);
}

// msprobe 1.2 to 8 write the gradients of parameters behind the module's forward call.
TEST(DivergenceTest, GradientsThatStandInTheForwardPassCameLater) {
  const auto dump = [](double error) {
    DumpBuilder b;
    b.Call("Module.a.Linear.forward.0").In(Value(0)).Out(Value(1));
    b.Call("Module.a.Linear.parameters_grad.0").Grad("weight", Value(7, error));
    b.Call("Module.b.Linear.forward.0").In(Value(1)).Out(Value(2, error));
    b.Call("Module.b.Linear.backward.0").In(Value(3, error)).Out(Value(4, error));
    return b.Take();
  };
  const Comparison c = ByRules(dump(kWrong), dump(0));
  EXPECT_EQ(First(c), "Module.b.Linear.forward.0");
  EXPECT_THAT(c.first.why, Not(HasSubstr("already wrong")));
}

TEST(DivergenceTest, EqualRunsNameNoDivergence) {
  EXPECT_EQ(First(MustCompare(Chain(4, 99), Chain(4, 99))), "none");
}

TEST(DivergenceTest, RoundingBeforeItLowersTheConfidence) {
  const Comparison c = ByRules(Chain(6, 3, kWrong, kRounding), Chain(6, 99));
  EXPECT_EQ(First(c), "Functional.f3.0.forward");
  EXPECT_LT(c.first.confidence, 0.95);
  EXPECT_GT(c.first.confidence, 0.8);
  EXPECT_THAT(c.first.why, HasSubstr("within rounding"));
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
  EXPECT_THAT(c.first.why, HasSubstr("the call itself was made differently"));
  EXPECT_THAT(c.first.why, HasSubstr("0.5"));
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
    EXPECT_THAT(c.first.why, HasSubstr(std::string(name) + " is \"0.5\" in the target"));
  EXPECT_THAT(c.first.why, HasSubstr("; 1 other argument differs"));
  EXPECT_THAT(c.first.why, Not(HasSubstr("is_causal")));
}

TEST(DivergenceTest, AnArgumentIsNamedThoughItsResultIsWithinRounding) {
  DumpBuilder t, g;
  for (auto [b, eps] : {std::pair{&t, "1e-05"}, std::pair{&g, "1e-06"}}) {
    const double error = b == &t ? 2e-7 : 0;
    b->Call("Functional.layer_norm.0.forward")
        .In(Value(1))
        .Value("eps", "float", eps)
        .Out(Value(2, error));
    b->Call("Functional.relu.0.forward").In(Value(2, error)).Out(Value(2, error));
  }
  const Comparison c = ByRules(t.Take(), g.Take());
  EXPECT_EQ(First(c), "Functional.layer_norm.0.forward");
  EXPECT_EQ(c.classes[1], CallClass::kNoise);
  EXPECT_GT(c.first.confidence, 0.9);
  EXPECT_THAT(c.first.why,
              HasSubstr("is \"1e-05\" in the target, \"1e-06\" in the golden; its result is "
                        "still within rounding"));
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
  EXPECT_THAT(MustCompare(t.Take(), g.Take()).first.advice, HasSubstr("seed"));
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
  EXPECT_THAT(c.first.why, HasSubstr("parameters.weight"));
  EXPECT_THAT(c.first.why, HasSubstr("before the first recorded operation"));
  EXPECT_THAT(c.first.advice, HasSubstr("the initialisation and its seed"));
  const Comparison later = MustCompare(build(kWrong, "step12"), build(0, "step12"));
  EXPECT_THAT(later.first.why, HasSubstr("before the first recorded operation of step 12"));
  EXPECT_THAT(later.first.advice, HasSubstr("compare the steps before"));
}

TEST(DivergenceTest, InputDataDifferAtTheEntry) {
  const Comparison c = MustCompare(Chain(3, -1), Chain(3, 99));
  EXPECT_EQ(First(c), "Functional.f0.0.forward");
  EXPECT_EQ(c.first.call_class, CallClass::kInherited);
  EXPECT_THAT(c.first.why, HasSubstr("the error begins before the first recorded operation"));
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
  EXPECT_THAT(c.first.why, HasSubstr("exists only in the target"));
  EXPECT_GT(c.first.confidence, 0.8);
}

TEST(DivergenceTest, AMissingOperationIsNamed) {
  const Comparison c = MustCompare(AThenB(false), AThenB(true));
  EXPECT_EQ(First(c), "Tensor.scale.0.forward");
  EXPECT_THAT(c.first.why, HasSubstr("exists only in the golden"));
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
  EXPECT_THAT(c.first.why, HasSubstr("Module.net.Net.forward.0"));
  EXPECT_THAT(c.first.why, HasSubstr("not recorded"));
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
  EXPECT_THAT(c.first.why, HasSubstr("its inputs are equal"));
  EXPECT_EQ(c.first.source_line, "train.py:41 in forward: y = self.fc(x)");
}

TEST(DivergenceTest, AParametersGradientInheritsFromItsBackward) {
  const Comparison c =
      ByRules(WrongWeightGradient(kWrong, kWrong, false), WrongWeightGradient(0, 0, false));
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

TEST(DivergenceTest, GradualGrowthHasLowConfidence) {
  const auto build = [](bool drifts) {
    DumpBuilder b;
    double error = drifts ? 4e-7 : 0;
    for (int i = 0; i < 8; ++i) {
      const double next = error * 4;  // beyond 0.1 %, where nothing is forgiven
      b.Call("Functional.f" + std::to_string(i) + ".0.forward")
          .In(Value(i, error))
          .Out(Value(i + 1, next));
      error = next;
    }
    return b.Take();
  };
  Comparison c = ByRules(build(true), build(false));
  ASSERT_GE(c.first.pair, 0);
  EXPECT_LE(c.first.confidence, 0.4);
  EXPECT_THAT(c.first.why, HasSubstr("grow"));
  EXPECT_THAT(c.first.advice, HasSubstr("record task tensor"));
  c.mode = Mode::kTensor;
  const FirstDivergence of_tensors = ExplainDrift(c, c.first.pair, c.first.pair);
  EXPECT_EQ(of_tensors.advice, "gradual growth has no single cause: compare against a float64 run");
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
  EXPECT_THAT(norm.first.advice, HasSubstr("enlarges the rounding"));
}

TEST(DivergenceTest, ANormalisationWithAnotherArgumentDoesNotOnlyAmplify) {
  const auto build = [](double error, const char* eps) {
    DumpBuilder b;
    b.Call("Functional.layer_norm.0.forward").In(Value(1, error > 0 ? kRounding : 0));
    b.Value("eps", "float", eps).Out(Value(2, error));
    return b.Take();
  };
  const Comparison c = ByRules(build(1e-4, "0.1"), build(0, "1e-05"));
  EXPECT_GT(c.first.confidence, 0.8);
  EXPECT_LT(ByRules(build(1e-4, "0.1"), build(0, "0.1")).first.confidence, 0.2);
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
  EXPECT_THAT(c.first.why, HasSubstr("inputs were not recorded"));
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

// The place that is named, as (name in make(true), name in make(false)), with each of the two runs as
// the target.
std::vector<std::pair<std::string, std::string>> BothWays(const std::function<Dump(bool)>& make) {
  const auto name = [](const Dump& dump, int32_t record) {
    return record < 0 ? "-" : std::string(dump.records[record].name);
  };
  std::vector<std::pair<std::string, std::string>> places;
  for (const bool swapped : {false, true}) {
    const Comparison c = ByRules(make(!swapped), make(swapped));
    if (c.first.pair < 0) return {};
    const RecordPair& pair = c.pairs[c.first.pair];
    const std::string target = name(c.target, pair.target), golden = name(c.golden, pair.golden);
    places.emplace_back(swapped ? golden : target, swapped ? target : golden);
  }
  return places;
}

// A norm stands before the layer in one run, and behind the sum in the other.
TEST(DivergenceTest, ACallAtAnotherPlaceIsNamedInBothDirections) {
  const auto dump = [](bool first) {
    DumpBuilder b;
    int last = 0, made = 1;
    const auto call = [&](const std::string& name) {
      b.Call("Functional." + name + ".0.forward").In(Value(last)).Out(Value(made));
      b.At("train.py", static_cast<int>(name.size()), name);
      last = made++;
    };
    call("embedding");
    made = first ? 100 : 10;
    if (first) call("layer_norm");
    for (const char* name : {"linear", "softmax", "dropout"}) call(name);
    if (!first) call("add"), call("layer_norm");
    call("gelu");
    return b.Take();
  };
  const auto places = BothWays(dump);
  ASSERT_EQ(places.size(), 2);
  EXPECT_EQ(places[0], places[1]);
  EXPECT_EQ(places[0].first, "Functional.layer_norm.0.forward");
}

// A weight that two modules share has its gradient late; of two weights one has it early.
TEST(DivergenceTest, AGradientThatComesEarlierInOneRunIsNamedInBothDirections) {
  const auto dump = [](bool apart) {
    const bool shared = !apart;
    DumpBuilder b;
    for (int i = 0; i < 4; ++i)
      b.Call(fmt::format("Module.m{}.Linear.forward.0", i)).In(Value(i)).Out(Value(i + 1));
    const auto gradient = [&](int i, double error) {
      b.Call(fmt::format("Module.m{}.Linear.parameters_grad.0", i))
          .Grad("weight", Value(30 + i, error));
    };
    for (int i = 3; i >= 0; --i) {
      b.Call(fmt::format("Module.m{}.Linear.backward.0", i)).In(Value(10 + i)).Out(Value(9 + i));
      if (i > 0 && (i < 3 || !shared)) gradient(i, i == 3 ? kWrong : 0);
    }
    gradient(0, shared ? 0 : kWrong);
    if (shared) gradient(3, 0);
    return b.Take();
  };
  const auto places = BothWays(dump);
  ASSERT_EQ(places.size(), 2);
  EXPECT_EQ(places[0], places[1]);
  EXPECT_EQ(places[0].first, "Module.m3.Linear.parameters_grad.0");
}

// `x / mask.numel()` in one run, `x / mask.sum()` in the other.
TEST(DivergenceTest, ANumberInPlaceOfATensorIsAnotherArgumentInBothDirections) {
  const auto dump = [](bool number) {
    DumpBuilder b;
    b.Call("Functional.f.0.forward").In(Value(1)).Out(Value(2));
    if (!number) b.Call("Tensor.sum.0.forward").In(Value(3)).Out(Value(4));
    b.Call("Tensor.__truediv__.0.forward").In(Value(2));
    if (number) b.Value("1", "int", "28");
    if (!number) b.In(Value(4));
    b.Out(Value(5, number ? kWrong : 0));
    return b.Take();
  };
  const auto places = BothWays(dump);
  ASSERT_EQ(places.size(), 2);
  EXPECT_EQ(places[0], places[1]);
  EXPECT_EQ(places[0].first, "Tensor.__truediv__.0.forward");
  const Comparison c = ByRules(dump(true), dump(false));
  EXPECT_EQ(FixHintOf(c, c.first).Text(),
            "set 1 to a tensor of torch.float32, as in the golden (the target has \"28\")");
}

}  // namespace
}  // namespace msprobe::compare
