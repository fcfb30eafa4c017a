#include "engine/dump/pkl/pkl_composer.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/model/entry_from_json.h"

namespace msprobe::dump {
namespace {

std::string Lines(const PklStyle& style, std::string_view entry,
                  const std::map<std::string, std::string, std::less<>>& elements = {}) {
  PklComposer composer(style, [&](std::string_view file) -> std::string_view {
    const auto found = elements.find(file);
    return found == elements.end() ? std::string_view() : found->second;
  });
  composer.Compose(test::ParseEntry(entry));
  return composer.lines();
}

constexpr std::string_view kForward =
    R"("F_relu_3_forward": {"input_args":[{"type":"torch.Tensor","dtype":"torch.float32",)"
    R"("shape":[2, 3],"Max":1.5,"Min":-2.0,"Mean":0.25,"Norm":3.0,"data_name":"a.pt"},)"
    R"([{"type":"int","value":7},null],{"type":"slice","value":[1, 2, null]}],)"
    R"("input_kwargs":{"inplace":{"type":"bool","value":true}},)"
    R"("output":{"type":"torch.Tensor","dtype":"torch.int64","shape":[],"Max":4,"Min":4,)"
    R"("Mean":4.0,"Norm":4.0},"stack":"12"})";

TEST(PklComposer, CountedWritesAllThatLinesHaveAPlaceFor) {
  EXPECT_EQ(Lines({}, kForward),
            "[\"F_relu_3_forward_input.0\", 0, [], \"torch.float32\", [2, 3], "
            "[1.5, -2.0, 0.25, 3.0]]\n"
            "[\"F_relu_3_forward_input.1.0\", 0, [], \"<class 'int'>\", \"[]\", [7, 7, 7, 7]]\n"
            "[\"F_relu_3_forward_input.inplace\", 0, [], \"<class 'bool'>\", \"[]\", "
            "[true, true, true, true]]\n"
            "[\"F_relu_3_forward_output\", 0, [], \"torch.int64\", [], [4, 4, 4.0, 4.0]]\n");
}

TEST(PklComposer, WithoutPlainValuesOnlyFloatingPointTensorsStay) {
  EXPECT_EQ(Lines({.plain_values = false}, kForward),
            "[\"F_relu_3_forward_input.0\", 0, [], \"torch.float32\", [2, 3], "
            "[1.5, -2.0, 0.25, 3.0]]\n");
  const int64_t kTwo[] = {2}, kNone[] = {0}, kNoneInside[] = {3, 0, 2}, kMany[] = {30, 10};
  EXPECT_TRUE(IsPlainTensor("torch.bool", kTwo));
  EXPECT_TRUE(IsPlainTensor("torch.float32", {}));
  EXPECT_TRUE(IsPlainTensor("torch.float32", kNone));
  EXPECT_TRUE(IsPlainTensor("torch.float32", kNoneInside));
  EXPECT_FALSE(IsPlainTensor("torch.bfloat16", kMany));
}

TEST(PklComposer, NumberedHasThreeStatisticsAndTheStep) {
  EXPECT_EQ(
      Lines({.dialect = PklDialect::kNumbered, .sample_step = 5, .plain_values = false}, kForward),
      "[\"F_relu_3_forward_input.0\", 5, [], \"torch.float32\", [2, 3], "
      "[1.5, -2.0, 0.25]]\n");
}

TEST(PklComposer, HooksNumbersLinesAndHasElementsInThem) {
  const PklStyle style{
      .dialect = PklDialect::kHooks, .data = PklData::kInLines, .plain_values = false};
  PklComposer composer(style, [](std::string_view) { return "0.5, 1.0"; });
  for (const char* number : {"0", "1"}) {
    composer.Compose(test::ParseEntry(kForward));
    EXPECT_EQ(composer.lines(), std::string("[\"") + number +
                                    "_F_relu_forward_input.0\", [0.5, 1.0, 1.5, -2.0, 0.25], "
                                    "\"torch.float32\", [2, 3]]\n");
  }
  EXPECT_EQ(composer.name(), "F_relu_forward");
}

constexpr std::string_view kBackward =
    R"("7_F_relu_backward": {"input":[{"type":"torch.Tensor","dtype":"torch.float32","shape":[2],)"
    R"("Max":1.0,"Min":1.0,"Mean":1.0,"Norm":1.0}],"output":[null,{"type":"torch.Tensor",)"
    R"("dtype":"torch.float32","shape":[3],"Max":2.0,"Min":2.0,"Mean":2.0,"Norm":2.0}]})";

TEST(PklComposer, TheFirstTwoGenerationsCallWhatBackwardProducedItsInput) {
  EXPECT_EQ(Lines({.dialect = PklDialect::kNumbered}, kBackward),
            "[\"7_F_relu_backward_input.1\", 1, [], \"torch.float32\", [3], [2.0, 2.0, 2.0]]\n"
            "[\"7_F_relu_backward_output.0\", 1, [], \"torch.float32\", [2], [1.0, 1.0, 1.0]]\n");
  EXPECT_EQ(Lines({}, kBackward),
            "[\"7_F_relu_backward_input.0\", 0, [], \"torch.float32\", [2], "
            "[1.0, 1.0, 1.0, 1.0]]\n"
            "[\"7_F_relu_backward_output.1\", 0, [], \"torch.float32\", [3], "
            "[2.0, 2.0, 2.0, 2.0]]\n");
}

TEST(PklComposer, OverflowsAreComplete) {
  EXPECT_EQ(Lines({.dialect = PklDialect::kNumbered, .file_for_each = true}, kBackward),
            "[\"F_relu_backward_input.1\", 101, [], \"torch.float32\", [3]]\n"
            "[\"F_relu_backward_output.0\", 101, [], \"torch.float32\", [2]]\n");
}

TEST(PklComposer, ModeStackHasNoValues) {
  EXPECT_EQ(Lines({.mode = PklMode::kStack}, kForward), "");
}

TEST(PklComposer, EmptyAndBooleanTensorsHaveNoStatistics) {
  EXPECT_EQ(Lines({}, R"("f_0_forward": {"output":{"type":"torch.Tensor","dtype":"torch.bool",)"
                      R"("shape":[1],"Max":true,"Min":true,"Mean":1.0,"Norm":1.0}})"),
            "[\"f_0_forward_output\", 0, [], \"torch.bool\", [1], []]\n");
  EXPECT_EQ(Lines({}, R"("f_0_forward": {"output":{"type":"torch.Tensor","dtype":"torch.float16",)"
                      R"("shape":[0],"Max":null,"Min":null,"Mean":null,"Norm":null}})"),
            "[\"f_0_forward_output\", 0, [], \"torch.float16\", [0], []]\n");
}

TEST(PklComposer, AChecksumStandsInThirdPlace) {
  EXPECT_EQ(Lines({}, R"("f_0_forward": {"output":{"type":"torch.Tensor","dtype":"torch.float16",)"
                      R"("shape":[2],"md5":"0a1b2c3d"}})"),
            "[\"f_0_forward_output\", 0, \"0a1b2c3d\", \"torch.float16\", [2], []]\n");
}

TEST(PklComposer, NamesAreWrittenAsJson) {
  EXPECT_EQ(Lines({}, R"("a\"b_0_forward": {"input_kwargs":{"x\\y":{"type":"int","value":1}}})"),
            R"(["a\"b_0_forward_input.x\\y", 0, [], "<class 'int'>", "[]", [1, 1, 1, 1]])"
            "\n");
}

TEST(AppendStackLine, TakesFramesApart) {
  std::string line;
  AppendStackLine(&line, "f_0_forward",
                  PklFrames({"File /a, b.py, line 3, in g, \n y = \"h\"", "odd"}));
  EXPECT_EQ(line,
            "[\"f_0_forward_stack_info\", [[\"/a, b.py\", \"3\", \"g\", \"y = \\\"h\\\"\"], "
            "[\"odd\", \"\", \"\", \"\"]]]\n");
}

TEST(WithoutCallNumber, LeavesOtherNames) {
  EXPECT_EQ(WithoutCallNumber("Functional_relu_12_forward"), "Functional_relu_forward");
  EXPECT_EQ(WithoutCallNumber("x"), "x");
}

}  // namespace
}  // namespace msprobe::dump
