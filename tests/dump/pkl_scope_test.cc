#include "engine/dump/config/pkl_scope.h"

#include <gtest/gtest.h>

namespace msprobe::dump {
namespace {

// The indices of the wanted calls among `names`, as digits.
std::string WantedNames(const PklStyle& style, const std::vector<std::string>& names) {
  PklScope scope(style);
  std::string wanted;
  for (size_t i = 0; i < names.size(); ++i) {
    if (scope.Wants(names[i])) wanted += std::to_string(i);
  }
  return wanted;
}

const std::vector<std::string> kCounted = {"Tensor_abs_1_forward",       "Tensor_abs_10_forward",
                                           "Functional_relu_0_forward",  "Torch_cat_0_forward",
                                           "Functional_relu_0_backward", "Tensor_abs_1_backward"};
const std::vector<std::string> kNumbered = {"0_Tensor_abs_forward", "1_Functional_relu_forward",
                                            "2_Torch_cat_forward", "10_Functional_relu_backward"};

TEST(PklScope, AllAndApiStackWantEverything) {
  EXPECT_EQ(WantedNames({.mode = PklMode::kAll}, kCounted), "012345");
  EXPECT_EQ(WantedNames({.mode = PklMode::kApiStack}, kCounted), "012345");
  EXPECT_EQ(WantedNames({.mode = PklMode::kStack}, kCounted), "012345");
}

TEST(PklScope, ANumberAtTheEndIsAWholeOne) {
  EXPECT_EQ(WantedNames({.mode = PklMode::kList, .scope = {"Tensor_abs_1"}}, kCounted), "05");
  EXPECT_EQ(WantedNames({.mode = PklMode::kList, .scope = {"Tensor_abs"}}, kCounted), "015");
  EXPECT_EQ(WantedNames({.mode = PklMode::kList, .scope = {"Torch_cat_0_forward", "Tensor_abs_10"}},
                        kCounted),
            "13");
  EXPECT_EQ(WantedNames({.dialect = PklDialect::kNumbered, .mode = PklMode::kList, .scope = {"1_"}},
                        kNumbered),
            "1");
}

TEST(PklScope, ARangeIncludesBothEndsAndComesOnceAStep) {
  const PklStyle style{.mode = PklMode::kRange,
                       .scope = {"Functional_relu_0_forward", "Functional_relu_0_backward"}};
  EXPECT_EQ(WantedNames(style, kCounted), "234");
  PklScope scope(style);
  for (const std::string& name : kCounted) (void)scope.Wants(name);
  EXPECT_FALSE(scope.Wants("Functional_relu_0_forward"));
  scope.NewStep();
  EXPECT_TRUE(scope.Wants("Functional_relu_0_forward"));
}

TEST(PklScope, OfNumberedCallsOnlyTheNumbersCount) {
  EXPECT_EQ(
      WantedNames(
          {.dialect = PklDialect::kNumbered, .mode = PklMode::kRange, .scope = {"1_whatever", "2"}},
          kNumbered),
      "12");
  EXPECT_EQ(
      WantedNames(
          {.dialect = PklDialect::kNumbered, .mode = PklMode::kStack, .scope = {"0_x", "1_y"}},
          kNumbered),
      "01");
}

TEST(PklScope, ApiListIsAPartOfTheNameWhateverItsCase) {
  EXPECT_EQ(WantedNames({.mode = PklMode::kApiList, .api_list = {"RELU", "cat"}}, kCounted), "234");
}

TEST(NumberInFront, IsAtTheBeginning) {
  EXPECT_EQ(NumberInFront("7_Functional_relu_forward"), 7);
  EXPECT_EQ(NumberInFront("7"), 7);
  EXPECT_EQ(NumberInFront("Functional_relu_7_forward"), -1);
}

}  // namespace
}  // namespace msprobe::dump
