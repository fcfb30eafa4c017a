#include "engine/isolation/next_recording.h"

#include <gmock/gmock.h>

#include "engine/base/messages/message.h"
#include "engine/dump/config/config.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::isolation {
namespace {

using compare::Comparison;
using compare::test::DumpBuilder;
using compare::test::kWrong;
using compare::test::Value;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Comparison Compared(Dump target, Dump golden) {
  Result<Comparison> c = compare::Compare(std::move(target), std::move(golden), {});
  EXPECT_TRUE(c.ok());
  return *std::move(c);
}

Dump Operations(double error, const std::string& file = "") {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(1).Data(file)).Out(Value(2).Data(file));
  b.Call("Functional.gelu.0.forward").In(Value(2).Data(file)).Out(Value(3, error).Data(file));
  return b.Take();
}

TEST(NextRecordingTest, TheTensorsOfTheCallAndOfItsProducers) {
  const NextRecording next = NextOf(Compared(Operations(kWrong), Operations(0)));
  ASSERT_TRUE(next.narrower);
  EXPECT_EQ(next.culprit, "Functional.gelu.0.forward");
  EXPECT_THAT(next.list, ElementsAre("Functional.gelu.0.", "Functional.linear.0."));
  Result<dump::Config> config = dump::ParseConfig(ConfigOf(next, 3, 1), "config.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->task, Task::kTensor);
  EXPECT_EQ(config->level, Level::kMix);
  EXPECT_THAT(config->step, ElementsAre(3));
  EXPECT_THAT(config->rank, ElementsAre(1));
  EXPECT_THAT(config->list, ElementsAre("Functional.gelu.0.", "Functional.linear.0."));
  EXPECT_TRUE(config->warnings.empty());
}

TEST(NextRecordingTest, OtherArgumentsAreTheCause) {
  const auto scaled = [](const std::string& by, double error) {
    DumpBuilder b;
    b.Call("Torch.mul.0.forward").In(Value(1)).Value("other", "float", by).Out(Value(2, error));
    return b.Take();
  };
  const NextRecording next = NextOf(Compared(scaled("0.5", kWrong), scaled("0.25", 0)));
  EXPECT_FALSE(next.narrower);
  EXPECT_EQ(next.culprit, "Torch.mul.0.forward");
  EXPECT_THAT(next.why.English(), HasSubstr("with other arguments"));
}

TEST(NextRecordingTest, WhatRunsInsideOfAModule) {
  const auto modules = [](double error) {
    DumpBuilder b;
    b.Call("Module.net.fc.Linear.forward.0").In(Value(1)).Out(Value(2, error));
    b.dump().level = Level::kL0;
    return b.Take();
  };
  const NextRecording next = NextOf(Compared(modules(kWrong), modules(0)));
  ASSERT_TRUE(next.narrower);
  EXPECT_THAT(next.list, ElementsAre("Module.net.fc.Linear."));
  EXPECT_THAT(next.why.English(), HasSubstr("level mix records the operations inside it"));
  EXPECT_TRUE(dump::ParseConfig(ConfigOf(next, -1, -1), "config.json").ok());
}

TEST(NextRecordingTest, WhatRunsBetweenTwoModules) {
  const auto modules = [](double error, std::string_view parent) {
    DumpBuilder b;
    b.Call("Module.net.a.Linear.forward.0").In(Value(1)).Out(Value(2)).Parent(parent);
    b.Call("Module.net.b.Linear.forward.0").In(Value(3, error)).Out(Value(4, error)).Parent(parent);
    b.dump().level = Level::kL0;
    return b.Take();
  };
  const std::string_view parent = "Module.net.Net.forward.0";
  const NextRecording next = NextOf(Compared(modules(kWrong, parent), modules(0, parent)));
  EXPECT_THAT(next.list, ElementsAre("Module.net.Net."));
  EXPECT_THAT(next.why.English(), HasSubstr("a wrong input that no recorded module made"));
  EXPECT_TRUE(NextOf(Compared(modules(kWrong, ""), modules(0, ""))).list.empty());
}

// Of a compiled graph only results are recorded, and level mix alone would record nothing more.
TEST(NextRecordingTest, ACellOfACompiledGraph) {
  const auto cells = [](double error, std::string_view parent) {
    DumpBuilder b;
    b.Call("Cell.mlp.up.Dense.forward.0").Out(Value(2)).Parent(parent);
    b.Call("Cell.mlp.down.Dense.forward.0").Out(Value(3, error)).Parent(parent);
    b.dump().level = Level::kL0, b.dump().framework = "mindspore";
    return b.Take();
  };
  const std::string_view parent = "Cell.mlp.Mlp.forward.0";
  const Comparison c = Compared(cells(kWrong, parent), cells(0, parent));
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("the error is in it, or in the code of mlp (Mlp) that leads"));
  EXPECT_THAT(c.first.advice.English(), HasSubstr("run both programs in PyNative mode"));
  const NextRecording next = NextOf(c);
  EXPECT_TRUE(next.narrower);
  EXPECT_THAT(next.list, ElementsAre("Cell.mlp.Mlp."));
  EXPECT_THAT(next.why.English(),
              HasSubstr("level mix, in PyNative mode and without mindspore.jit"));
  const Comparison outermost = Compared(cells(kWrong, ""), cells(0, ""));
  EXPECT_THAT(outermost.first.why.English(), HasSubstr("or in the model's code that leads to it"));
  EXPECT_TRUE(NextOf(outermost).list.empty());
}

TEST(NextRecordingTest, LooksAtAnotherCall) {
  Comparison c = Compared(Operations(kWrong), Operations(0));
  LookAt(0, &c);
  EXPECT_EQ(NextOf(c).culprit, "Functional.linear.0.forward");
  EXPECT_EQ(c.first.why, "its results agree in both runs");
  LookAt(1, &c);
  EXPECT_EQ(NextOf(c).culprit, "Functional.gelu.0.forward");
  EXPECT_THAT(c.first.why.English(), HasSubstr("equal; "));
  EXPECT_THAT(c.first.why.English(), HasSubstr("output.0"));
  const auto later = [](double error) {
    DumpBuilder b;
    b.Call("Functional.gelu.0.forward").In(Value(2)).Out(Value(3, error));
    b.Call("Functional.relu.0.forward").In(Value(3, error)).Out(Value(4, error));
    return b.Take();
  };
  Comparison inherits = Compared(later(kWrong), later(0));
  LookAt(1, &inherits);
  EXPECT_THAT(inherits.first.why.English(), HasSubstr("of input.0 is off by"));
}

TEST(NextRecordingTest, WrongDataAreTheProgramsOwn) {
  const auto run = [](double error) {
    DumpBuilder b;
    b.Call("Functional.embedding.0.forward").In(Value(1, error)).Out(Value(2, error));
    b.Call("Functional.linear.0.forward").In(Value(2, error)).Out(Value(3, error));
    return b.Take();
  };
  const NextRecording next = NextOf(Compared(run(kWrong), run(0)));
  EXPECT_FALSE(next.narrower);
  EXPECT_FALSE(next.can_replay);
  EXPECT_EQ(next.culprit, "Functional.embedding.0.forward");
  EXPECT_THAT(next.why.English(),
              HasSubstr("no recorded call made it: it is the first call, so this is what "
                        "the program gives to the step"));
  EXPECT_THAT(next.advice.English(), HasSubstr("input data"));
}

TEST(NextRecordingTest, AValueOfCodeThatIsNotRecorded) {
  const auto run = [](double error) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2));
    b.Call("Tensor.add.0.forward").In(Value(2)).In(Value(3, error)).Out(Value(4, error));
    return b.Take();
  };
  const NextRecording next = NextOf(Compared(run(kWrong), run(0)));
  EXPECT_FALSE(next.narrower);
  EXPECT_THAT(next.why.English(), HasSubstr("code that is not recorded made or changed it"));
}

// Where a list left calls out, the one that made the value may be among them.
TEST(NextRecordingTest, AValueOfCallsThatAListLeftOut) {
  const auto run = [](double error) {
    DumpBuilder b;
    b.Call("Tensor.add.7.forward").In(Value(3, error)).Out(Value(4, error));
    return b.Take();
  };
  const NextRecording next = NextOf(Compared(run(kWrong), run(0)));
  EXPECT_TRUE(next.narrower);
  EXPECT_TRUE(next.list.empty());
  EXPECT_EQ(next.task, Task::kStatistics);
  EXPECT_THAT(next.why.English(), HasSubstr("the calls before it were not recorded"));
}

TEST(NextRecordingTest, ACallOfOneRun) {
  const auto run = [](bool twice, double error) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2));
    if (twice) b.Call("Functional.gelu.0.forward").In(Value(2)).Out(Value(5));
    b.Call("Functional.linear.1.forward").In(Value(twice ? 5 : 2)).Out(Value(3, error));
    return b.Take();
  };
  const NextRecording next = NextOf(Compared(run(true, kWrong), run(false, 0)));
  EXPECT_FALSE(next.narrower);
  EXPECT_EQ(next.culprit, "Functional.gelu.0.forward");
  EXPECT_THAT(next.why.English(), HasSubstr("only the target makes the call"));
}

TEST(NextRecordingTest, ASettingOfAnOptimizer) {
  const auto run = [](double error) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2));
    b.Call("Optimizer.SGD.step.0.forward").In(Value(3)).Out(Value(4, error));
    return b.Take();
  };
  const NextRecording next = NextOf(Compared(run(kWrong), run(0)));
  EXPECT_FALSE(next.narrower);
  EXPECT_FALSE(next.can_replay);
  EXPECT_THAT(next.why.English(), HasSubstr("the same gradients and weights"));
}

// A module has another name where the golden has another class.
TEST(NextRecordingTest, NamesOfBothRuns) {
  const auto modules = [](const std::string& name, double error) {
    DumpBuilder b;
    b.Call("Module.net.fc.Linear.forward.0").In(Value(1)).Out(Value(2));
    b.Call(name).In(Value(2)).Out(Value(3, error));
    b.dump().level = Level::kL0;
    return b.Take();
  };
  const NextRecording next = NextOf(Compared(modules("Module.net.act.GELU.forward.0", kWrong),
                                             modules("Module.net.act.SiLU.forward.0", 0)));
  EXPECT_THAT(next.list, ElementsAre("Module.net.act.GELU.", "Module.net.act.SiLU."));
}

// A module hands on what an operation inside it made.
TEST(NextRecordingTest, TheOperationBehindAModule) {
  const auto run = [](double error) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2));
    b.Call("Module.net.fc.Linear.forward.0").In(Value(1)).Out(Value(2));
    b.Call("Functional.gelu.0.forward").In(Value(2)).Out(Value(3, error));
    return b.Take();
  };
  EXPECT_THAT(NextOf(Compared(run(kWrong), run(0))).list,
              ElementsAre("Functional.gelu.0.", "Functional.linear.0."));
}

TEST(NextRecordingTest, TheOptimizersOfTheStepBefore) {
  const NextRecording next = NextOfUpdate("no call of step 3 made the error"_t, false);
  ASSERT_TRUE(next.narrower);
  Result<dump::Config> config = dump::ParseConfig(ConfigOf(next, 3, -1), "config.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->step, ElementsAre(2, 3));
  EXPECT_THAT(config->list, ElementsAre("Optimizer."));
  EXPECT_FALSE(NextOfUpdate(""_t, true).narrower);
}

// Its gradient may have the numbers of a call's, by chance or because a rank has another's data.
TEST(NextRecordingTest, AGradientThatOtherCodeHandled) {
  const auto run = [](int made, int given, double error) {
    DumpBuilder b;
    b.Call("Functional.linear.0.backward").In(Value(2)).Out(Value(made));
    b.Call("Optimizer.SGD.step.0.forward").In(Value(given)).Out(Value(4, error));
    return b.Take();
  };
  const NextRecording next = NextOf(Compared(run(3, 3, kWrong), run(3, 5, 0)));
  EXPECT_FALSE(next.narrower);
  EXPECT_THAT(next.why.English(), HasSubstr("code between the backward pass and the optimizer"));
}

TEST(NextRecordingTest, NothingMoreToRecord) {
  EXPECT_FALSE(NextOf(Compared(Operations(0), Operations(0))).narrower);
  Comparison c = Compared(Operations(kWrong), Operations(0));
  for (Dump* dump : {&c.target, &c.golden}) {
    for (Leaf& leaf : dump->leaves) leaf.data_name = TextRef("a.pt");
  }
  const NextRecording next = NextOf(c);
  EXPECT_FALSE(next.narrower);
  EXPECT_THAT(next.why.English(), HasSubstr("msprobe replay"));
}

}  // namespace
}  // namespace msprobe::isolation
