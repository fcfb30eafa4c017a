#include "engine/dump/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/dump/temporary_folder.h"

namespace msprobe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Config Parsed(std::string_view text, const ConfigOverrides& overrides = {}) {
  Result<Config> config = ParseConfig(text, "c.json", overrides);
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : Config();
}

std::string Refused(std::string_view text, const ConfigOverrides& overrides = {}) {
  const Result<Config> config = ParseConfig(text, "c.json", overrides);
  return config.ok() ? "(accepted)" : config.status().ToString();
}

TEST(LoadConfig, DefaultsWithoutAFile) {
  const Result<Config> config = LoadConfig("");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->task, Task::kStatistics);
  EXPECT_EQ(config->level, Level::kL1);
  EXPECT_EQ(config->dump_path, "./dump_path");
  EXPECT_TRUE(config->forward && config->backward && config->input && config->output &&
              config->extra_info);
  EXPECT_EQ(LoadConfig("/nowhere/config.json").status().code(), ErrorCode::kNotFound);
}

TEST(LoadConfig, ReadsEveryKey) {
  TemporaryFolder folder;
  const Result<Config> config = LoadConfig(folder.Write("config.json", R"({
    "task": "statistics", "dump_path": "/out", "rank": [0, "4-6"], "step": [2, "5", "5-6"], "level": "mix", "extra_info": false,
    "statistics": {"scope": ["Functional.relu.0.forward", "Module.fc.Linear.forward.0"], "list": ["layers.3."],
                   "tensor_list": ["softmax"], "data_mode": ["forward", "input"], "summary_mode": "md5"},
    "tensor": {"scope": 7, "anything": [1]}, "free_benchmark": {"fuzz_device": "npu"}})"));
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->level, Level::kMix);
  EXPECT_EQ(config->dump_path, "/out");
  EXPECT_THAT(config->rank, ElementsAre(0, 4, 5, 6));
  EXPECT_THAT(config->step, ElementsAre(2, 5, 6));
  EXPECT_FALSE(config->extra_info);
  EXPECT_THAT(config->scope,
              ElementsAre("Functional.relu.0.forward", "Module.fc.Linear.forward.0"));
  EXPECT_THAT(config->list, ElementsAre("layers.3."));
  EXPECT_THAT(config->tensor_list, ElementsAre("softmax"));
  EXPECT_TRUE(config->forward && config->input);
  EXPECT_FALSE(config->backward || config->output);
  EXPECT_EQ(config->summary_mode, SummaryMode::kMd5);
  EXPECT_THAT(config->warnings, IsEmpty());
}

TEST(ParseConfig, ArgumentsWin) {
  const Config config = Parsed(
      R"({"task": "overflow_check", "level": "L2", "step": [9], "tensor": {"list": ["a"]}, "statistics": {"list": ["b"]}})",
      {.task = "tensor", .dump_path = "elsewhere", .level = "L0", .step = {{"1-3", "7"}}});
  EXPECT_EQ(config.task, Task::kTensor);
  EXPECT_EQ(config.level, Level::kL0);
  EXPECT_EQ(config.dump_path, "elsewhere");
  EXPECT_THAT(config.step, ElementsAre(1, 2, 3, 7));
  EXPECT_THAT(config.list, ElementsAre("a"));
  EXPECT_EQ(Parsed(R"({"dump_path": ""})", {.dump_path = "elsewhere"}).dump_path, "elsewhere");
  const Result<Config> refused = ParseConfig("{}", "c.json", {.level = "L9"});
  EXPECT_EQ(refused.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.status().message(),
            "keyword argument level; expected \"L0\", \"L1\" or \"mix\", found \"L9\"");
}

TEST(ParseConfig, DataMode) {
  struct Case {
    const char* words;
    bool forward, backward, input, output;
  };
  for (const Case& c :
       {Case{"[]", 1, 1, 1, 1}, Case{"[\"all\"]", 1, 1, 1, 1}, Case{"[\"forward\"]", 1, 0, 1, 1},
        Case{"[\"output\"]", 1, 1, 0, 1}, Case{"[\"backward\", \"output\"]", 0, 1, 0, 1},
        Case{"[\"forward\", \"backward\", \"input\"]", 1, 1, 1, 0}}) {
    const Config config = Parsed(std::string("{\"statistics\": {\"data_mode\": ") + c.words + "}}");
    EXPECT_EQ(config.forward, c.forward) << c.words;
    EXPECT_EQ(config.backward, c.backward) << c.words;
    EXPECT_EQ(config.input, c.input) << c.words;
    EXPECT_EQ(config.output, c.output) << c.words;
  }
}

TEST(ParseConfig, UnknownKeysAndValuesNameTheNearest) {
  EXPECT_EQ(Refused("{\n \"tasks\": \"tensor\"}"),
            "error: c.json:2: unknown key \"tasks\"; expected \"task\", \"dump_path\", \"rank\", "
            "\"step\", \"level\" or \"extra_info\"\n"
            "hint:  did you mean \"task\"?\n");
  EXPECT_THAT(Refused("{\"statistics\": {\n\"lists\": []}}"),
              HasSubstr("c.json:2: unknown key \"lists\" in \"statistics\""));
  EXPECT_THAT(Refused("{\"statistics\": {\"lists\": []}}"), HasSubstr("did you mean \"list\"?"));
  EXPECT_THAT(Refused("{\"list\": []}"), HasSubstr("belongs into the section of the task"));
  EXPECT_THAT(Refused("{\"task\": \"statistic\"}"), HasSubstr("did you mean \"statistics\"?"));
  EXPECT_THAT(Refused("{\"task\": \"structure\"}"),
              HasSubstr("found \"structure\", which this version does not do"));
  EXPECT_THAT(Refused("{\"level\": \"L2\"}"),
              HasSubstr("expected \"L0\", \"L1\" or \"mix\", found \"L2\", which"));
  EXPECT_THAT(Refused("{\"statistics\": {\"summary_mode\": \"xor\"}}"),
              HasSubstr("found \"xor\", which"));
  EXPECT_THAT(Refused("{\"statistics\": {\"data_mode\": [\"forwards\"]}}"),
              HasSubstr("did you mean \"forward\"?"));
}

TEST(ParseConfig, WrongValues) {
  for (const char* text :
       {"[]",
        "{\"task\": 1}",
        "{\"level\": [\"L1\"]}",
        "{\"dump_path\": \"\"}",
        "{\"rank\": 3}",
        "{\"rank\": [true]}",
        "{\"step\": [-1]}",
        "{\"step\": [1.5]}",
        "{\"step\": [\"6-3\"]}",
        "{\"step\": [\"1-\"]}",
        "{\"step\": [1000001]}",
        "{\"step\": [\"\"]}",
        "{\"extra_info\": 1}",
        "{\"statistics\": []}",
        "{\"statistics\": {\"list\": \"relu\"}}",
        "{\"statistics\": {\"list\": [1]}}",
        "{\"statistics\": {\"list\": [\"\"]}}",
        "{\"statistics\": {\"data_mode\": [\"all\", \"input\"]}}",
        "{\"statistics\": {\"summary_mode\": [\"md5\"]}}",
        "{\"statistics\": {\"scope\": [\"a\", \"b\", \"c\"]}}",
        "{\"statistics\": {\"scope\": [\"Functional.relu\", \"Functional.relu.1.forward\"]}}",
        "{\"task\": \"tensor\", \"tensor\": {\"tensor_list\": [\"a\"]}}",
        "{\"task\": \"tensor\", \"task\": \"tensor\"}",
        "{\"task\": }",
        ""}) {
    const Result<Config> config = ParseConfig(text, "c.json");
    EXPECT_EQ(config.status().code(), ErrorCode::kInvalidConfig) << text;
    EXPECT_THAT(config.ok() ? "" : config.status().message(), ::testing::StartsWith("c.json:1: "))
        << text;
  }
  EXPECT_THAT(
      Refused(
          R"({"level": "L0", "statistics": {"scope": ["Functional.relu.0.forward", "Functional.relu.1.forward"]}})"),
      HasSubstr("expected a module call such as \"Module.fc.Linear.forward.0\" (level L0)"));
}

TEST(ParseConfig, KeysOfOtherGenerations) {
  const Config config = Parsed(
      R"({"async_dump": false, "precision": "high", "risk_level": "ALL", "seed": 1234, "is_deterministic": false,
    "enable_dataloader": false, "acl_config": "", "custom_op_namespaces": ["_C_ascend"], "dump_enable": null,
    "statistics": {"slice": [], "request_id": ""}})");
  EXPECT_THAT(config.warnings, SizeIs(11));
  EXPECT_THAT(config.warnings[0], HasSubstr("c.json:1: \"async_dump\" has no effect: "));
  for (const char* text : {"{\"async_dump\": true}", "{\"risk_level\": \"CORE\"}", "{\"seed\": 7}",
                           "{\"is_deterministic\": true}", "{\"dump_enable\": false}",
                           "{\"statistics\": {\"slice\": [{\"dim\": 0}]}}",
                           "{\"statistics\": {\"request_id\": \"chatcmpl-1\"}}"}) {
    EXPECT_THAT(Refused(text), HasSubstr("is not possible in this version")) << text;
    EXPECT_THAT(Refused(text), HasSubstr("hint:  remove the key; ")) << text;
  }
}

TEST(ParseConfig, OneScopeNameIsBothEnds) {
  EXPECT_THAT(Parsed(R"({"statistics": {"scope": ["Functional.relu.0.forward"]}})").scope,
              ElementsAre("Functional.relu.0.forward", "Functional.relu.0.forward"));
}

}  // namespace
}  // namespace msprobe
