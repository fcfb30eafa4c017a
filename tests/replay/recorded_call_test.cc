#include "engine/replay/recorded_call.h"

#include <gmock/gmock.h>

#include "tests/compare/dump_builder.h"

namespace msprobe::replay {
namespace {

using compare::test::DumpBuilder;
using compare::test::Numbers;
using ::testing::ElementsAre;

Dump Recorded() {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Numbers(1, -1, 0, 2)).In(Numbers(2, -1, 0, 3));
  b.Out(Numbers(1, -1, 0, 4));
  b.Call("Module.fc.Linear.forward.0").In(Numbers(1, -1, 0, 2)).Out(Numbers(1, -1, 0, 4));
  b.Call("Functional.linear.1.forward").In(Numbers(5, -5, 0, 2)).In(Numbers(2, -1, 0, 3));
  b.Out(Numbers(1, -1, 0, 4));
  b.Call("Functional.dropout.0.forward").In(Numbers(1, -1, 0, 2)).Out(Numbers(1, -1, 0, 4));
  b.Call("Distributed.all_reduce.0.forward").In(Numbers(1, -1, 0, 2)).Out(Numbers(1, -1, 0, 4));
  b.Call("Tensor.item.0.forward").In(Numbers(1, -1, 0, 2));
  b.Call("Functional.linear.0.backward").In(Numbers(1, -1, 0, 2)).Out(Numbers(1, -1, 0, 4));
  return b.Take();
}

std::vector<std::string> Names(const std::vector<RecordedCall>& calls) {
  std::vector<std::string> names;
  for (const RecordedCall& call : calls) names.push_back(call.name);
  return names;
}

TEST(RecordedCalls, ApisAndWhyTheyAreSkipped) {
  const Dump dump = Recorded();
  const std::vector<RecordedCall> calls = CallsOf(dump, {});
  ASSERT_THAT(Names(calls),
              ElementsAre("Functional.linear.0", "Functional.linear.1", "Functional.dropout.0",
                          "Distributed.all_reduce.0", "Tensor.item.0"));
  EXPECT_EQ(calls[0].skip, "");
  EXPECT_EQ(calls[0].backward, 6);
  EXPECT_EQ(calls[1].backward, -1);
  EXPECT_EQ(calls[2].skip, "it draws random numbers");
  EXPECT_EQ(calls[3].skip, "a collective needs the other ranks");
  EXPECT_EQ(calls[4].skip, "it has no tensor as result");
}

TEST(RecordedCalls, OnlyOperationsAreCallable) {
  for (const char* api : {"Functional.linear", "Tensor.__add__", "Torch.add", "Torch.linalg.norm",
                          "Torch.fft.fft", "Aten.add.Tensor", "NPU.npu_rms_norm", "VF.lstm"})
    EXPECT_TRUE(IsCallableApi(api)) << api;
  for (const char* api :
       {"", "Torch", "Torch.", "Torch.load", "Tensor.tofile", "Torch.hub.load",
        "Torch.serialization.os.system", "Torch.linalg.x.y", "Os.system", "Torch.a b", "Torch.a;b",
        "Torch.a\nb", "Torch.1a", "Torch.\xc3\xa9", "../../x.y", "Functional.linalg.norm"})
    EXPECT_FALSE(IsCallableApi(api)) << api;
}

TEST(RecordedCalls, ANameThatIsNoOperationIsNotExecuted) {
  DumpBuilder b;
  b.Call("Torch.serialization.os.system.0.forward")
      .In(Numbers(1, 0, 0, 1))
      .Out(Numbers(1, 0, 0, 1));
  const Dump dump = b.Take();
  EXPECT_EQ(CallsOf(dump, {})[0].skip,
            "\"Torch.serialization.os.system\" is not the name of an operation");
}

// The class of a Function is code of the program: only where the user has named its module.
TEST(RecordedCalls, FunctionsOfTheProgram) {
  const auto skip = [](std::string_view name, bool functions) {
    DumpBuilder b;
    b.Call(name).In(Numbers(1, 0, 0, 1)).Out(Numbers(1, 0, 0, 1));
    return CallsOf(b.Take(), {.functions = functions})[0].skip.English();
  };
  EXPECT_EQ(skip("Function.Exp.0.forward", true), "");
  EXPECT_EQ(skip("Function.Exp.0.forward", false),
            "it is code of the program: msprobe replay --import MODULE executes it");
  EXPECT_EQ(skip("Function.os.system.0.forward", true),
            "\"Function.os.system\" is not the name of an operation");
}

TEST(RecordedCalls, ChosenByName) {
  const Dump dump = Recorded();
  EXPECT_THAT(Names(CallsOf(dump, {.white_list = {"linear"}, .distinct = true})),
              ElementsAre("Functional.linear.0"));
  EXPECT_THAT(Names(CallsOf(dump, {.white_list = {"linear", "item"}, .black_list = {"linear"}})),
              ElementsAre("Tensor.item.0"));
}

TEST(RecordedCalls, ArgumentsAreATree) {
  DumpBuilder b;
  b.Call("Torch.cat.0.forward");
  for (const char* place : {"0.0", "0.1", "2"}) {
    b.In(Numbers(1, 0, 0, 1));
    b.last().name = b.dump().arena.emplace_back(std::string("Torch.cat.0.forward.input.") + place);
  }
  b.Kwarg("shape.width", Numbers(1, 0, 0, 1)).Value("dim", "int", "1");
  const Dump dump = b.Take();
  const Arguments a = ArgumentsOf(dump, dump.records[0]);
  ASSERT_EQ(a.positional.values.size(), 3u);
  EXPECT_EQ(a.positional.values[0].kind, Argument::Kind::kList);
  EXPECT_EQ(a.positional.values[0].values[1].leaf, 1);
  EXPECT_EQ(a.positional.values[1].leaf, -1);  // an empty list has no value
  EXPECT_EQ(a.positional.values[2].leaf, 2);
  ASSERT_THAT(a.keywords.names, ElementsAre("shape", "dim"));
  EXPECT_THAT(a.keywords.values[0].names, ElementsAre("width"));
}

// Names of a damaged dump.
TEST(RecordedCalls, PlacesThatCannotBe) {
  DumpBuilder b;
  b.Call("Torch.cat.0.forward");
  for (const char* place : {"999999999999", "x", "0", "0.1", ""}) {
    b.In(Numbers(1, 0, 0, 1));
    b.last().name = b.dump().arena.emplace_back(std::string("Torch.cat.0.forward.input.") + place);
  }
  const Dump dump = b.Take();
  EXPECT_EQ(ArgumentsOf(dump, dump.records[0]).positional.values.size(), 1u);
}

}  // namespace
}  // namespace msprobe::replay
