#include "engine/dump/config/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/dump/config/config_keys.h"
#include "tests/base/english.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
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

std::string Wanted(const DataMode& mode) {
  std::string text;
  if (mode.forward_input) text += "fi ";
  if (mode.forward_output) text += "fo ";
  if (mode.backward_input) text += "bi ";
  if (mode.backward_output) text += "bo ";
  if (!text.empty()) text.pop_back();
  return text;
}

TEST(LoadConfig, DefaultsWithoutAFile) {
  const Result<Config> config = LoadConfig("");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->task, Task::kStatistics);
  EXPECT_EQ(config->level, Level::kL1);
  EXPECT_EQ(config->dump_path, "./dump_path");
  EXPECT_TRUE(config->extra_info);
  EXPECT_EQ(config->weights, WeightSteps::kEach);
  EXPECT_EQ(Wanted(config->data_mode), "fi fo bi bo");
  EXPECT_EQ(config->risk_level, RiskLevel::kAll);
  EXPECT_FALSE(config->async_dump || config->enable_dataloader || config->dump_enable ||
               config->seed || config->is_deterministic);
  EXPECT_THAT(config->custom_op_namespaces, ElementsAre("_C_ascend"));
  EXPECT_EQ(LoadConfig("/nowhere/config.json").status().code(), ErrorCode::kNotFound);
}

TEST(LoadConfig, ReadsEveryKey) {
  TemporaryFolder folder;
  const Result<Config> config = LoadConfig(folder.Write("config.json", R"({
    "task": "statistics", "dump_path": "/out", "rank": [0, "4-6"], "step": [2, "5", "5-6"], "level": "mix", "extra_info": false, "weights": "none",
    "statistics": {"scope": ["Functional.relu.0.forward", "Module.fc.Linear.forward.0"], "list": ["layers.3."],
                   "tensor_list": ["softmax"], "data_mode": ["forward", "input"], "summary_mode": "md5"},
    "tensor": {"scope": 7, "anything": [1]}, "free_benchmark": {"fuzz_device": "npu"}})"));
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->level, Level::kMix);
  EXPECT_EQ(config->dump_path, "/out");
  EXPECT_THAT(config->rank, ElementsAre(0, 4, 5, 6));
  EXPECT_THAT(config->step, ElementsAre(2, 5, 6));
  EXPECT_FALSE(config->extra_info);
  EXPECT_EQ(config->weights, WeightSteps::kNone);
  EXPECT_THAT(config->scope,
              ElementsAre("Functional.relu.0.forward", "Module.fc.Linear.forward.0"));
  EXPECT_THAT(config->list, ElementsAre("layers.3."));
  EXPECT_THAT(config->tensor_list, ElementsAre("softmax"));
  EXPECT_EQ(Wanted(config->data_mode), "fi");
  EXPECT_EQ(config->summary, (SummaryMode{true, kernels::Checksum::kCrc32}));
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
            "keyword argument level; expected \"L0\", \"L1\", \"mix\" or \"debug\", found \"L9\"");
}

TEST(ParseConfig, DataMode) {
  struct Case {
    const char *words, *both, *either;  // expected text under rule "and", under rule "or"
  };
  for (const Case& c : {
           Case{"[]", "fi fo bi bo", "fi fo bi bo"},
           Case{"[\"all\"]", "fi fo bi bo", "fi fo bi bo"},
           Case{"[\"forward\"]", "fi fo", "fi fo"},
           Case{"[\"output\"]", "fo bo", "fo bo"},
           Case{"[\"backward\", \"output\"]", "bo", "fo bi bo"},
           Case{"[\"forward\", \"input\"]", "fi", "fi fo bi"},
           Case{"[\"forward\", \"backward\", \"input\"]", "fi bi", "fi fo bi bo"},
       }) {
    const std::string section = std::string("{\"statistics\": {\"data_mode\": ") + c.words;
    EXPECT_EQ(Wanted(Parsed(section + "}}").data_mode), c.both) << c.words;
    EXPECT_EQ(Wanted(Parsed(section + ", \"data_mode_rule\": \"and\"}}").data_mode), c.both);
    EXPECT_EQ(Wanted(Parsed(section + ", \"data_mode_rule\": \"or\"}}").data_mode), c.either)
        << c.words;
  }
}

TEST(ParseConfig, NanCheckLooksAtOutputsOfApis) {
  const Config config = Parsed(
      R"({"task": "nan_check", "nan_check": {"tensor_list": ["a"], "data_mode": ["output"]}})");
  EXPECT_EQ(config.task, Task::kNanCheck);
  EXPECT_THAT(config.tensor_list, ElementsAre("a"));
  EXPECT_THAT(Refused(R"({"task": "nan_check", "level": "mix"})"),
              HasSubstr("expected \"level\": \"L1\", found \"mix\""));
  for (const char* modes : {"[\"input\"]", "[\"input\", \"forward\"]"}) {
    EXPECT_THAT(
        Refused(fmt::format(R"({{"task": "nan_check", "nan_check": {{"data_mode": {}}}}})", modes)),
        HasSubstr("task nan_check looks at outputs; expected \"output\" beside"));
  }
  EXPECT_THAT(Refused(R"({"task": "nan_check", "nan_check": {"summary_mode": "md5"}})"),
              HasSubstr("\"summary_mode\" has no meaning in task nan_check; expected \"scope\""));
}

TEST(ParseConfig, OverflowCheck) {
  const auto parsed = [](std::string_view section) {
    return Parsed(
        fmt::format(R"({{"task": "overflow_check", "overflow_check": {{{}}}}})", section));
  };
  EXPECT_EQ(parsed("").overflow_nums, 1);
  EXPECT_EQ(parsed(R"("overflow_nums": -1)").overflow_nums, -1);
  EXPECT_EQ(parsed(R"("overflow_nums": 3)").overflow_nums, 3);
  EXPECT_THAT(EnglishOf(parsed(R"("check_mode": "all")").warnings),
              ElementsAre(HasSubstr("no effect")));
  for (const char* section :
       {R"("overflow_nums": 0)", R"("overflow_nums": -2)", R"("overflow_nums": "1")",
        R"("check_mode": "al")", R"("tensor_list": [])", R"("data_mode": ["input"])"}) {
    EXPECT_THAT(
        Refused(fmt::format(R"({{"task": "overflow_check", "overflow_check": {{{}}}}})", section)),
        HasSubstr("expected"))
        << section;
  }
  EXPECT_THAT(Refused(R"({"statistics": {"overflow_nums": 2}})"), HasSubstr("no meaning in task"));
}

TEST(ParseConfig, FreeBenchmark) {
  const auto text = [](std::string_view section, std::string_view level = "L1") {
    return fmt::format(R"({{"task": "free_benchmark", "level": "{}", "free_benchmark": {{{}}}}})",
                       level, section);
  };
  const FreeBenchmarkRules defaults = Parsed(text("")).free_benchmark;
  EXPECT_EQ(defaults.perturbation, Perturbation::kImprovePrecision);
  EXPECT_FALSE(defaults.fix || defaults.backward || defaults.preheat);
  EXPECT_EQ(defaults.preheat_steps, 15);
  EXPECT_EQ(defaults.max_sample, 20);
  EXPECT_EQ(defaults.budget, 1);

  // As configuration files of the older tools have it.
  const Config config = Parsed(text(
      R"("scope": [], "list": ["softmax"], "fuzz_device": "npu", "pert_mode": "bit_noise",
         "handler_type": "check", "fuzz_level": "L1", "fuzz_stage": "backward",
         "if_preheat": true, "preheat_step": 3, "max_sample": 7, "budget": 0.25)"));
  EXPECT_THAT(config.list, ElementsAre("softmax"));
  EXPECT_THAT(config.warnings, IsEmpty());
  EXPECT_EQ(config.free_benchmark.perturbation, Perturbation::kBitNoise);
  EXPECT_TRUE(config.free_benchmark.backward && config.free_benchmark.preheat);
  EXPECT_EQ(config.free_benchmark.preheat_steps, 3);
  EXPECT_EQ(config.free_benchmark.max_sample, 7);
  EXPECT_EQ(config.free_benchmark.budget, 0.25);
  for (size_t i = 0; i < std::size(kPerturbations); ++i) {
    const Config of = Parsed(text(fmt::format(R"("pert_mode": "{}")", kPerturbations[i])));
    EXPECT_EQ(of.free_benchmark.perturbation, static_cast<Perturbation>(i));
    EXPECT_EQ(of.free_benchmark.name(), kPerturbations[i]);
  }
  EXPECT_TRUE(Parsed(text(R"("pert_mode": "to_cpu", "fuzz_device": "cpu", "handler_type": "fix")"))
                  .free_benchmark.fix);
  EXPECT_THAT(EnglishOf(Parsed(text(R"("handler_type": "fix", "budget": 2)")).warnings),
              ElementsAre(HasSubstr("\"budget\" has no effect under \"fix\"")));
  EXPECT_THAT(EnglishOf(Parsed(text(R"("pert_mode": "no_change", "if_preheat": true)")).warnings),
              ElementsAre(HasSubstr("\"if_preheat\" has no effect")));
}

TEST(ParseConfig, FreeBenchmarkRefusesInOneLine) {
  const auto refused = [](std::string_view section, std::string_view level = "L1") {
    return Refused(
        fmt::format(R"({{"task": "free_benchmark", "level": "{}", "free_benchmark": {{{}}}}})",
                    level, section));
  };
  for (const char* section :
       {R"("pert_mode": "noise")", R"("fuzz_device": "tpu")", R"("handler_type": "repair")",
        R"("fuzz_level": "L0")", R"("fuzz_stage": "both")", R"("if_preheat": 1)",
        R"("preheat_step": 0)", R"("max_sample": 0)", R"("budget": -1)", R"("budget": "1")",
        R"("data_mode": ["all"])", R"("pert_mode": "to_cpu", "fuzz_device": "npu")",
        R"("pert_mode": "add_noise", "fuzz_device": "cpu")",
        R"("pert_mode": "add_noise", "handler_type": "fix")",
        R"("fuzz_stage": "backward", "handler_type": "fix")",
        R"("if_preheat": true, "handler_type": "fix")"}) {
    EXPECT_THAT(refused(section), HasSubstr("expected")) << section;
  }
  EXPECT_THAT(refused(R"("pert_mode": "add_nois")"), HasSubstr("did you mean \"add_noise\""));
  EXPECT_THAT(refused("", "mix"), HasSubstr("task free_benchmark looks at API calls; expected"));
  EXPECT_THAT(Refused(R"({"statistics": {"budget": 2}})"), HasSubstr("no meaning in task"));
}

TEST(ParseConfig, BenchPath) {
  const auto text = [](std::string_view section, std::string_view level = "L1") {
    return fmt::format(R"({{"task": "tensor", "level": "{}", "tensor": {{{}}}}})", level, section);
  };
  const Config all = Parsed(text(R"("bench_path": "golden")"));
  EXPECT_EQ(all.bench_path, "golden");
  EXPECT_EQ(all.diff_nums, 1);
  EXPECT_TRUE(all.data_mode.forward_input && all.data_mode.forward_output);
  EXPECT_FALSE(all.data_mode.backward());
  EXPECT_EQ(
      Parsed(text(R"("bench_path": "a", "diff_nums": -1, "data_mode": ["forward"])")).diff_nums,
      -1);
  EXPECT_TRUE(Parsed(text(R"("bench_path": "")")).data_mode.backward());
  EXPECT_THAT(EnglishOf(Parsed(text(R"("diff_nums": 2)")).warnings),
              ElementsAre(HasSubstr("no effect")));
  const Config debug = Parsed(text(R"("bench_path": "a", "diff_nums": 2)", "debug"));
  EXPECT_EQ(debug.bench_path, "");
  EXPECT_THAT(EnglishOf(debug.warnings), ElementsAre(HasSubstr("\"bench_path\" has no effect")));
  for (const char* section :
       {R"("bench_path": 3)", R"("bench_path": "a", "diff_nums": 0)",
        R"("bench_path": "a", "diff_nums": -2)", R"("bench_path": "a", "diff_nums": 1.5)",
        R"("bench_path": "a", "data_mode": ["input"])",
        R"("bench_path": "a", "data_mode": ["backward"])",
        R"("bench_path": "a", "slice": [{"dim": 0, "end": 1}])",
        R"("bench_path": "a", "request_id": "r")"}) {
    EXPECT_THAT(Refused(text(section)), HasSubstr("expected")) << section;
  }
  EXPECT_THAT(Refused(R"({"statistics": {"bench_path": "a"}})"), HasSubstr("no meaning in task"));
}

TEST(ParseConfig, GradProbe) {
  const Config config = Parsed(R"({"task": "grad_probe", "level": "mix", "dump_enable": true,
  "grad_probe": {"grad_level": "L2", "param_list": ["a"], "bounds": [-2, 1e-3, 0.5]}})");
  EXPECT_EQ(config.gradients.level, GradLevel::kL2);
  EXPECT_THAT(config.gradients.parameters, ElementsAre("a"));
  EXPECT_THAT(config.gradients.bounds, ElementsAre(-2, 1e-3, 0.5));
  EXPECT_THAT(config.gradients.bound_texts, ElementsAre("-2", "0.001", "0.5"));
  EXPECT_THAT(EnglishOf(config.warnings),
              ElementsAre("\"level\" has no effect in task grad_probe",
                          "\"dump_enable\" has no effect in task grad_probe"));
  EXPECT_FALSE(config.dump_enable);
  EXPECT_EQ(Parsed("{}", {.task = "grad_probe"}).gradients.level, GradLevel::kL1);
  EXPECT_THAT(Refused(R"({"task": "grad_probe", "grad_probe": {"list": []}})"),
              HasSubstr("\"list\" has no meaning in task grad_probe; expected \"grad_level\", "
                        "\"param_list\" or \"bounds\""));
}

TEST(ParseConfig, SummaryMode) {
  struct Case {
    const char* value;
    bool statistics;
    kernels::Checksum checksum;
    int warnings = 0;
  };
  for (const Case& c :
       {Case{"\"\"", true, kernels::Checksum::kNone},
        Case{"\"statistics\"", true, kernels::Checksum::kNone},
        Case{"\"md5\"", true, kernels::Checksum::kCrc32},
        Case{"\"xor\"", false, kernels::Checksum::kXor}, Case{"[]", true, kernels::Checksum::kNone},
        Case{"[\"xor\"]", false, kernels::Checksum::kXor},
        Case{"[\"md5\"]", true, kernels::Checksum::kCrc32},
        Case{"[\"hash\"]", true, kernels::Checksum::kCrc32},
        Case{"[\"statistics\", \"xor\"]", true, kernels::Checksum::kXor},
        Case{"[\"max\", \"negative zero count\", \"l2norm\"]", true, kernels::Checksum::kNone},
        Case{"[\"xor\", \"md5\"]", true, kernels::Checksum::kCrc32, 1}}) {
    const Config config =
        Parsed(fmt::format(R"({{"statistics": {{"summary_mode": {}}}}})", c.value));
    EXPECT_EQ(config.summary, (SummaryMode{c.statistics, c.checksum})) << c.value;
    EXPECT_THAT(config.warnings, SizeIs(c.warnings)) << c.value;
  }
}

TEST(ParseConfig, Slices) {
  const Config config = Parsed(
      R"({"task": "tensor", "tensor": {"request_id": "req-1", "slice": [
         {}, {"dim": 2, "size": 9, "begin": -4, "end": -1}, {"size": null, "end": 0}]}})");
  EXPECT_THAT(config.slice,
              ElementsAre(SliceRule{}, SliceRule{.dim = 2, .size = 9, .begin = -4, .end = -1},
                          SliceRule{.end = 0}));
  EXPECT_EQ(config.request_id, "req-1");
}

TEST(ParseConfig, StructureIsOfModules) {
  const Config apis =
      Parsed(R"({"task": "structure", "level": "L1", "statistics": {"list": [""]}})");
  EXPECT_EQ(apis.task, Task::kStructure);
  EXPECT_EQ(apis.level, Level::kMix);
  EXPECT_THAT(EnglishOf(apis.warnings), ElementsAre(HasSubstr("level mix is used")));
  const Config modules = Parsed(R"({"task": "structure", "level": "L0", "structure": {}})");
  EXPECT_EQ(modules.level, Level::kL0);
  EXPECT_THAT(modules.warnings, IsEmpty());
  EXPECT_THAT(Refused(R"({"task": "structure", "structure": {"list": []}})"),
              HasSubstr("task structure has no keys"));
  EXPECT_THAT(Refused(R"({"task": "structure", "extra_info": false})"), HasSubstr("extra_info"));
}

TEST(ParseConfig, UnknownKeysAndValuesNameTheNearest) {
  EXPECT_EQ(Refused("{\n \"tasks\": \"tensor\"}"),
            fmt::format("error: c.json:2: unknown key \"tasks\"; expected {}\n"
                        "hint:  did you mean \"task\"?\n",
                        OneOf(kTopKeys).English()));
  EXPECT_THAT(Refused("{\"statistics\": {\n\"lists\": []}}"),
              HasSubstr("c.json:2: unknown key \"lists\" in \"statistics\""));
  EXPECT_THAT(Refused("{\"statistics\": {\"lists\": []}}"), HasSubstr("did you mean \"list\"?"));
  EXPECT_THAT(Refused("{\"list\": []}"), HasSubstr("belongs in the section of the task"));
  EXPECT_THAT(Refused(R"({"task": "tensor", "tensor": {"tensor_files": "packed"}})"),
              HasSubstr("\"tensor_files\" belongs beside \"tensor\", not inside"));
  EXPECT_THAT(Refused("{\"task\": \"statistic\"}"), HasSubstr("did you mean \"statistics\"?"));
  EXPECT_THAT(Refused("{\"task\": \"run_ut\"}"),
              HasSubstr("found \"run_ut\", which this version does not support"));
  EXPECT_THAT(Refused("{\"statistics\": {\"summary_mode\": [\"l2nrm\"]}}"),
              HasSubstr("did you mean \"l2norm\"?"));
  EXPECT_THAT(
      Refused("{\"statistics\": {\"slice\": [{\"dims\": 1}]}}"),
      HasSubstr("\"slice\"; expected \"dim\", \"size\", \"begin\" or \"end\", found \"dims\""));
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
        "{\"weights\": \"sometimes\"}",
        "{\"weights\": true}",
        "{\"async_dump\": 1}",
        "{\"link_equal_tensors\": 1}",
        "{\"tensor_files\": \"zip\"}",
        "{\"enable_dataloader\": \"yes\"}",
        "{\"dump_enable\": 0}",
        "{\"is_deterministic\": 0}",
        "{\"seed\": -1}",
        "{\"seed\": 4294967296}",
        "{\"seed\": 1.0}",
        "{\"seed\": \"1\"}",
        "{\"seed\": true}",
        "{\"precision\": \"middle\"}",
        "{\"risk_level\": \"all\"}",
        "{\"custom_op_namespaces\": \"mine\"}",
        "{\"custom_op_namespaces\": [1]}",
        "{\"rank\": [-1]}",
        "{\"rank\": [\"-1\"]}",
        "{\"step\": [false]}",
        "{\"step\": [\" 1\"]}",
        "{\"step\": [\"1-2-3\"]}",
        "{\"step\": [null]}",
        "{\"step\": [[1]]}",
        "{\"step\": {\"0\": 1}}",
        "{\"statistics\": {\"data_mode_rule\": \"xor\"}}",
        "{\"statistics\": []}",
        "{\"statistics\": {\"list\": \"relu\"}}",
        "{\"statistics\": {\"list\": [1]}}",
        "{\"statistics\": {\"list\": [\"\"]}}",
        "{\"statistics\": {\"data_mode\": [\"all\", \"input\"]}}",
        "{\"statistics\": {\"summary_mode\": 1}}",
        "{\"statistics\": {\"summary_mode\": \"max\"}}",
        "{\"statistics\": {\"summary_mode\": [\"md5\", \"md4\"]}}",
        "{\"statistics\": {\"slice\": {}}}",
        "{\"statistics\": {\"slice\": [0]}}",
        "{\"statistics\": {\"slice\": [{\"dim\": -1}]}}",
        "{\"statistics\": {\"slice\": [{\"size\": -1}]}}",
        "{\"statistics\": {\"slice\": [{\"begin\": \"0\"}]}}",
        "{\"statistics\": {\"slice\": [{\"end\": true}]}}",
        "{\"statistics\": {\"request_id\": 7}}",
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

TEST(ParseConfig, KeysThatTheFrontEndActsOn) {
  const Config config = Parsed(R"({"async_dump": true, "risk_level": "CORE", "seed": 7,
    "is_deterministic": false, "enable_dataloader": true, "custom_op_namespaces": ["mine"],
    "dump_enable": false})");
  EXPECT_THAT(config.warnings, IsEmpty());
  EXPECT_TRUE(config.async_dump && config.enable_dataloader);
  EXPECT_EQ(config.risk_level, RiskLevel::kCore);
  EXPECT_EQ(Parsed(R"({"risk_level": "FOCUS"})").risk_level, RiskLevel::kFocus);
  EXPECT_EQ(config.seed, 7);
  EXPECT_EQ(config.is_deterministic, false);
  EXPECT_EQ(config.dump_enable, false);
  EXPECT_THAT(config.custom_op_namespaces, ElementsAre("mine"));
  EXPECT_THAT(Parsed(R"({"custom_op_namespaces": []})").custom_op_namespaces, IsEmpty());
  const Config functional = Parsed(R"({"custom_op_namespaces": ["_c10d_functional", "mine"]})");
  EXPECT_THAT(functional.custom_op_namespaces, ElementsAre("mine"));
  EXPECT_THAT(EnglishOf(functional.warnings), ElementsAre(HasSubstr("results have not arrived")));
  EXPECT_EQ(Parsed(R"({"seed": 4294967295})").seed, 4294967295);
}

TEST(ParseConfig, KeysOfOtherGenerations) {
  const Config config = Parsed(
      R"({"precision": "high", "acl_config": "acl.json",
    "statistics": {"host": "", "port": -1, "backward_input": ["a.pt"]}})");
  EXPECT_THAT(config.warnings, SizeIs(5));
  EXPECT_THAT(config.warnings[0].English(), HasSubstr("c.json:1: \"precision\" has no effect: "));
  EXPECT_THAT(config.warnings[1].English(),
              HasSubstr("c.json:1: \"acl_config\" has no effect: kernels of NPU"));
  for (const char* text : {"{\"statistics\": {\"host\": \"10.0.0.1\"}}",
                           "{\"statistics\": {\"online_run_ut\": true}}"}) {
    EXPECT_THAT(Refused(text), HasSubstr("is not possible in this version")) << text;
    EXPECT_THAT(Refused(text), HasSubstr("hint:  remove the key; ")) << text;
  }
}

TEST(ParseConfig, LevelL2IsAcceptedAndRecordsNothing) {
  const Config config = Parsed("{\n\"level\": \"L2\", \"statistics\": {\"list\": [\"a\"]}}");
  EXPECT_EQ(config.level, Level::kL2);
  EXPECT_THAT(EnglishOf(config.warnings),
              ElementsAre("c.json:2: level L2 records kernels of NPU devices only: nothing is "
                          "collected"));
  EXPECT_THAT(EnglishOf(Parsed("{}", {.level = "L2"}).warnings),
              ElementsAre(::testing::StartsWith("level L2 records kernels of NPU")));
  EXPECT_THAT(EnglishOf(Parsed(R"({"level": "L2", "task": "grad_probe"})").warnings),
              ElementsAre("\"level\" has no effect in task grad_probe"));
  EXPECT_THAT(EnglishOf(Parsed(R"({"level": "L2", "task": "structure"})").warnings),
              ElementsAre("task structure records modules: level mix is used"));
}

TEST(ParseConfig, UnsupportedTasksNameAnAlternative) {
  for (const char* task : {"acc_check", "run_ut", "exception_dump", "diff_check"}) {
    const std::string error = Refused(std::string("{\"task\": \"") + task + "\"}");
    EXPECT_THAT(error, HasSubstr("which this version does not support\nhint:  ")) << task;
  }
}

TEST(ParseConfig, OneScopeNameIsBothEnds) {
  EXPECT_THAT(Parsed(R"({"statistics": {"scope": ["Functional.relu.0.forward"]}})").scope,
              ElementsAre("Functional.relu.0.forward", "Functional.relu.0.forward"));
}

}  // namespace
}  // namespace msprobe::dump
