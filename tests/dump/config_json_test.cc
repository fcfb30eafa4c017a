#include "engine/dump/config/config_json.h"

#include <gtest/gtest.h>

namespace msprobe::dump {
namespace {

TEST(ConfigJsonTest, HasTheKeysOfTheFile) {
  const std::string_view file = R"({"task": "tensor", "level": "mix", "dump_path": "a\"b",
      "rank": [1, 0], "step": ["2-3"], "dump_enable": false, "risk_level": "CORE",
      "tensor": {"list": ["relu"], "data_mode": ["forward", "output"], "summary_mode": "md5"}})";
  const Result<Config> config = ParseConfig(file, "config.json");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(ConfigJson(*config),
            R"({"task": "tensor", "level": "mix", "dump_path": "a\"b", "rank": [0, 1], )"
            R"("step": [2, 3], "scope": [], "list": ["relu"], "tensor_list": [], )"
            R"("data_mode": ["forward", "output"], "summary_mode": "md5", "dump_enable": false, )"
            R"("extra_info": true, "async_dump": false, "risk_level": "CORE", )"
            R"("bench_path": null, "diff_nums": 1, "overflow_nums": 1, "request_id": null, )"
            R"("baseline": null, "custom_op_namespaces": ["_C_ascend"], "seed": null, )"
            R"("is_deterministic": null, "enable_dataloader": false})");
}

TEST(ConfigJsonTest, SpellsEachDataMode) {
  const auto modes = [](bool fi, bool fo, bool bi, bool bo) {
    Config config;
    config.data_mode = {fi, fo, bi, bo};
    const std::string json = ConfigJson(config);
    const size_t begin = json.find("\"data_mode\": ") + 13;
    return json.substr(begin, json.find(", \"summary", begin) - begin);
  };
  EXPECT_EQ(modes(true, true, true, true), R"(["all"])");
  EXPECT_EQ(modes(true, false, true, false), R"(["input"])");
  EXPECT_EQ(modes(false, false, true, false), R"(["backward", "input"])");
  EXPECT_EQ(modes(true, true, false, true),
            R"(["forward_input", "forward_output", "backward_output"])");
}

}  // namespace
}  // namespace msprobe::dump
