#include "engine/dump/config/api_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/english.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ApiRulesTest : public ::testing::Test {
 protected:
  Result<ApiRules> Read(std::string_view risk, std::string_view ignored) {
    return ApiRules::Read(folder_.Write("risk.yaml", risk), folder_.Write("ignore.yaml", ignored));
  }
  TemporaryFolder folder_;
};

TEST_F(ApiRulesTest, RiskLevels) {
  const Result<ApiRules> rules =
      Read("core: [linear, Distributed.*, Tensor.to]\nlow: [to, linear, cat]", "");
  ASSERT_TRUE(rules.ok()) << rules.status().ToString();
  struct Case {
    const char *prefix, *api;
    bool core, focus;
  };
  for (const Case& c :
       {Case{"Functional", "linear", true, true}, Case{"Distributed", "send", true, true},
        Case{"Tensor", "to", true, true}, Case{"Torch", "to", false, false},
        Case{"Torch", "cat", false, false}, Case{"Torch", "add", false, true}}) {
    EXPECT_EQ(rules->Records(RiskLevel::kCore, c.prefix, c.api), c.core) << c.prefix << c.api;
    EXPECT_EQ(rules->Records(RiskLevel::kFocus, c.prefix, c.api), c.focus) << c.prefix << c.api;
    EXPECT_TRUE(rules->Records(RiskLevel::kAll, c.prefix, c.api));
  }
}

TEST_F(ApiRulesTest, IgnoredValues) {
  Result<ApiRules> rules = Read("", "Torch:\n  add:\n    input: [0, other]\n    output: all\n");
  ASSERT_TRUE(rules.ok()) << rules.status().ToString();
  EXPECT_EQ(rules->IgnoredValuesOf("Tensor", "add"), nullptr);
  const formats::IgnoreRule* rule = rules->IgnoredValuesOf("Torch", "add");
  ASSERT_NE(rule, nullptr);
  EXPECT_TRUE(rule->input.Has(0) && rule->input.Has("other"));
  EXPECT_FALSE(rule->input.Has(1) || rule->input.Has("out"));
  EXPECT_TRUE(rule->output.Has(5));
}

TEST_F(ApiRulesTest, NamesThatNothingListsAreToldOnce) {
  Result<ApiRules> rules = Read("",
                                "Torch:\n  add: {input: all}\n  adds: {input: all}\n"
                                "NPU:\n  fused: {input: [0]}\n"
                                "Toch:\n  add: {output: [0]}\n");
  ASSERT_TRUE(rules.ok()) << rules.status().ToString();
  rules->IgnoredValuesOf("Torch", "add");
  EXPECT_THAT(EnglishOf(rules->UnusedRules()),  // rules for the NPU: this machine has none
              ElementsAre(HasSubstr("ignore.yaml:3: no API is listed as Torch.adds"),
                          HasSubstr("ignore.yaml:7: no API is listed as Toch.add")));
}

TEST_F(ApiRulesTest, WrongFilesNameTheLine) {
  for (const char* text :
       {"- a", "Torch: [add]", "Torch:\n  add: all", "Torch: {add: {in: [0]}}",
        "Torch: {add: {input: 0}}", "Torch: {add: {input: [-1]}}", "Torch: {add: {output: [name]}}",
        "Torch: {add: {input: [[0]]}}", "Torch: {"}) {
    const Status status = Read("", text).status();
    EXPECT_EQ(status.code(), ErrorCode::kInvalidConfig) << text;
    EXPECT_THAT(status.message(), HasSubstr("ignore.yaml:")) << text;
  }
  EXPECT_THAT(Read("cor: [a]", "").status().message(),
              HasSubstr("risk.yaml: expected \"core\" or \"low\", found \"cor\""));
}

}  // namespace
}  // namespace msprobe::dump
