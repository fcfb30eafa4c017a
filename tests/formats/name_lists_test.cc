#include "engine/formats/text/name_lists.h"

#include <gtest/gtest.h>

namespace msprobe::formats {
namespace {

const NameLists kShipped = {{"functional", {"gelu", "relu"}}, {"tensor", {"t", "abs"}}};

TEST(MergeNameLists, AddsNamesAndCategories) {
  const NameLists merged =
      MergeNameLists(kShipped, {{"functional", {"mine", "relu"}}, {"torch_npu", {"npu_fused"}}});
  EXPECT_EQ(merged, (NameLists{{"functional", {"gelu", "relu", "mine"}},
                               {"tensor", {"t", "abs"}},
                               {"torch_npu", {"npu_fused"}}}));
}

TEST(MergeNameLists, TakesOutNamesWithAMinusWhateverTheCaseOfTheCategory) {
  const NameLists merged =
      MergeNameLists(kShipped, {{"Tensor", {"-t"}}, {"Functional", {"-gelu"}}});
  EXPECT_EQ(merged, (NameLists{{"functional", {"relu"}}, {"tensor", {"abs"}}}));
}

TEST(MergeNameLists, KeepsWhatIsNotThereToBeTakenOut) {
  EXPECT_EQ(MergeNameLists(kShipped, {{"tensor", {"-absent"}}})[1].second,
            (std::vector<std::string>{"t", "abs", "-absent"}));
}

}  // namespace
}  // namespace msprobe::formats
