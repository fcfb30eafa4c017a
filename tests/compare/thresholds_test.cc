#include "engine/compare/model/thresholds.h"

#include <gmock/gmock.h>

#include "engine/compare/model/rounding.h"

namespace msprobe::compare {
namespace {

using ::testing::HasSubstr;

ThresholdTable Parsed(std::string_view text) {
  Result<ThresholdTable> table = ThresholdTable::Parse(text, "mine.yaml");
  EXPECT_TRUE(table.ok()) << table.status().message();
  return table.ok() ? *table : ThresholdTable::Shipped();
}

TEST(Thresholds, AreTheOlderToolsNumbersAsShipped) {
  const Thresholds& t = ThresholdTable::Shipped().base();
  EXPECT_EQ(t.rules26.output_thousandth, 0.6);
  EXPECT_EQ(t.rules26.norm_factor, 10);
  EXPECT_EQ(t.rules8.cosine, 0.99);
  EXPECT_EQ(t.rules8.worst_max_abs_error, 1);
  EXPECT_EQ(t.highlight.max_abs_error, 1e10);
  EXPECT_EQ(t.highlight.input_relative, 0.01);
}

TEST(Thresholds, ShippedRoundingIsThatOfTheTableInTheCode) {
  // An override for another operation makes the table answer for every dtype.
  const ThresholdTable table = Parsed("overrides: [{operation: other, rounding: 1}]");
  const ThresholdTable other = Parsed("rounding: {float8_e5m2: 7}");
  for (const char* dtype : {"float64", "float32", "float16", "bfloat16", "float8_e4m3fn",
                            "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2", "complex64"}) {
    EXPECT_EQ(table.RoundingScale("Functional.linear", RoundingOf(dtype)), 1) << dtype;
    EXPECT_EQ(table.RoundingScale("Functional.other", RoundingOf(dtype)),
              1 / RoundingOf(dtype).explained)
        << dtype;
  }
  EXPECT_EQ(other.RoundingScale("Functional.linear", RoundingOf("torch.float8_e5m2")), 3.5);
}

TEST(Thresholds, AFileChangesOnlyWhatItNames) {
  const ThresholdTable table = Parsed("rules_8: {cosine: 0.5}\n");
  EXPECT_EQ(table.base().rules8.cosine, 0.5);
  EXPECT_EQ(table.base().rules8.max_abs_error, 0.001);
  EXPECT_EQ(Parsed("").base().rules8.cosine, 0.99);
}

TEST(Thresholds, OverridesAreForAnOperationADTypeOrBothAndTheLastCounts) {
  const ThresholdTable table = Parsed(
      "rounding: {bfloat16: 5}\n"
      "overrides:\n"
      "- {dtype: torch.float16, rules_8: {cosine: 0.8}, rounding: 20}\n"
      "- {operation: softmax, dtype: float16, rules_8: {cosine: 0.7}}\n"
      "- {operation: Linear, table26_rules: {norm_factor: 3}}\n");
  Thresholds scratch;
  const auto cosine = [&](std::string_view api, std::string_view dtype) {
    return table.For(api, dtype, &scratch).rules8.cosine;
  };
  EXPECT_EQ(cosine("Functional.gelu", "torch.float32"), 0.99);
  EXPECT_EQ(cosine("Functional.gelu", "torch.float16"), 0.8);
  EXPECT_EQ(cosine("Functional.softmax", "Float16"), 0.7);
  EXPECT_EQ(table.For("Module.net.fc.Linear", "torch.float32", &scratch).rules26.norm_factor, 3);
  EXPECT_EQ(table.RoundingScale("Functional.gelu", RoundingOf("torch.float16")), 2.5);
  EXPECT_EQ(table.RoundingScale("Functional.gelu", RoundingOf("torch.bfloat16")), 1.25);
}

TEST(Thresholds, ErrorsNameTheLine) {
  struct Case {
    const char *text, *message;
  };
  for (const Case& c : {
           Case{"rules_8:\n  cosin: 1\n", "mine.yaml:2: expected one of \"cosine\""},
           Case{"rules_9: {}\n", "mine.yaml:1: expected one of \"table26_rules\""},
           Case{"rules_8:\n  cosine: often\n", "mine.yaml:2: expected a number of 0 or more"},
           Case{"rules_8: {cosine: -1}\n", "expected a number of 0 or more, found \"-1\""},
           Case{"rules_8: {cosine: .nan}\n", "expected a number of 0 or more"},
           Case{"rules_8: 3\n", "keys and numbers below the section"},
           Case{"rounding: {float17: 1}\n", "a dtype such as float16, found \"float17\""},
           Case{"rounding: {int64: 1}\n", "a float or complex dtype; others are exact, found"},
           Case{"overrides: [{dtype: bool, rounding: 1}]\n", "others are exact, found \"bool\""},
           Case{"overrides: {}\n", "a list of overrides"},
           Case{"overrides:\n- {rounding: 1}\n", "mine.yaml:2: expected operation: or dtype:"},
           Case{"- 1\n", "sections such as table26_rules:"},
           Case{"rules_8: [\n", "expected YAML"},
       }) {
    const Result<ThresholdTable> table = ThresholdTable::Parse(c.text, "mine.yaml");
    ASSERT_FALSE(table.ok()) << c.text;
    EXPECT_EQ(table.status().code(), ErrorCode::kInvalidConfig);
    EXPECT_THAT(table.status().message(), HasSubstr(c.message)) << c.text;
  }
}

}  // namespace
}  // namespace msprobe::compare
