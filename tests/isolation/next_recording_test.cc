#include "engine/isolation/next_recording.h"

#include <gmock/gmock.h>

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
  b.Call("Functional.gelu.11.forward").In(Value(2).Data(file)).Out(Value(3, error).Data(file));
  return b.Take();
}

TEST(NextRecordingTest, TheTensorsOfTheCallAndOfItsProducers) {
  const NextRecording next = NextOf(Compared(Operations(kWrong), Operations(0)), 3);
  ASSERT_TRUE(next.narrower);
  EXPECT_EQ(next.culprit, "Functional.gelu.11.forward");
  EXPECT_THAT(next.list, ElementsAre("Functional.gelu.11.", "Functional.linear.0."));
  Result<dump::Config> config = dump::ParseConfig(next.config, "config.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->task, Task::kTensor);
  EXPECT_EQ(config->level, Level::kMix);
  EXPECT_THAT(config->step, ElementsAre(3));
  EXPECT_THAT(config->list, ElementsAre("Functional.gelu.11.", "Functional.linear.0."));
  EXPECT_TRUE(config->warnings.empty());
}

TEST(NextRecordingTest, OtherArgumentsAreTheCause) {
  const auto scaled = [](const std::string& by, double error) {
    DumpBuilder b;
    b.Call("Torch.mul.0.forward").In(Value(1)).Value("other", "float", by).Out(Value(2, error));
    return b.Take();
  };
  const NextRecording next = NextOf(Compared(scaled("0.5", kWrong), scaled("0.25", 0)), 0);
  EXPECT_FALSE(next.narrower);
  EXPECT_EQ(next.culprit, "Torch.mul.0.forward");
  EXPECT_THAT(next.why, HasSubstr("with other arguments"));
}

TEST(NextRecordingTest, WhatRunsInsideOfAModule) {
  const auto modules = [](double error) {
    DumpBuilder b;
    b.Call("Module.net.fc.Linear.forward.0").In(Value(1)).Out(Value(2, error));
    b.dump().level = Level::kL0;
    return b.Take();
  };
  const NextRecording next = NextOf(Compared(modules(kWrong), modules(0)), -1);
  ASSERT_TRUE(next.narrower);
  EXPECT_THAT(next.list, ElementsAre("Module.net.fc.Linear."));
  EXPECT_THAT(next.why, HasSubstr("level mix records the operations inside it"));
  EXPECT_TRUE(dump::ParseConfig(next.config, "config.json").ok());
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
  const NextRecording next = NextOf(Compared(modules(kWrong, parent), modules(0, parent)), 0);
  EXPECT_THAT(next.list, ElementsAre("Module.net.Net."));
  EXPECT_THAT(next.why, HasSubstr("a wrong input that no recorded module made"));
  EXPECT_TRUE(NextOf(Compared(modules(kWrong, ""), modules(0, "")), 0).list.empty());
}

TEST(NextRecordingTest, NothingMoreToRecord) {
  EXPECT_FALSE(NextOf(Compared(Operations(0), Operations(0)), 0).narrower);
  Comparison c = Compared(Operations(kWrong), Operations(0));
  for (Dump* dump : {&c.target, &c.golden}) {
    for (Leaf& leaf : dump->leaves) leaf.data_name = TextRef("a.pt");
  }
  const NextRecording next = NextOf(c, 0);
  EXPECT_FALSE(next.narrower);
  EXPECT_THAT(next.why, HasSubstr("msprobe replay"));
}

}  // namespace
}  // namespace msprobe::isolation
