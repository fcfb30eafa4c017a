#include "engine/model/precision_text.h"

#include <gmock/gmock.h>

namespace msprobe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PrecisionText, SaysTheDefaultDTypeAndEachAutocast) {
  EXPECT_EQ(DefaultDTypeIn("float32"), "float32");
  EXPECT_THAT(AutocastsIn("float32"), IsEmpty());
  constexpr std::string_view kTwo = "float64, autocast cpu bfloat16, autocast cuda float16";
  EXPECT_EQ(DefaultDTypeIn(kTwo), "float64");
  EXPECT_THAT(AutocastsIn(kTwo),
              ElementsAre(Autocast{"cpu", "bfloat16"}, Autocast{"cuda", "float16"}));
}

TEST(PrecisionText, PassesOverWhatItDoesNotKnow) {
  EXPECT_EQ(DefaultDTypeIn(""), "");
  EXPECT_THAT(AutocastsIn("float32, autocast cpu"), IsEmpty());
  EXPECT_THAT(AutocastsIn("float32, tf32 on, autocast cpu float16, autocast"),
              ElementsAre(Autocast{"cpu", "float16"}));
}

}  // namespace
}  // namespace msprobe
