#include "engine/base/text_ref.h"

#include <gtest/gtest.h>

#include <string>

namespace msprobe {
namespace {

TEST(TextRefTest, IsTheTextItWasMadeOf) {
  static_assert(sizeof(TextRef) == 8);
  for (const size_t size : {0, 1, 40, 65534, 65535, 65536, 1 << 20}) {
    const std::string text(size, 'x');
    const TextRef ref = text;
    if (size > 0) {
      EXPECT_EQ(ref.view().data(), text.data());
    }
    EXPECT_EQ(ref.view(), text) << size;
    EXPECT_EQ(ref.size(), size);
    EXPECT_EQ(ref.empty(), size == 0) << size;
  }
  EXPECT_TRUE(TextRef().empty());
  EXPECT_EQ(TextRef(), "");
}

TEST(TextRefTest, EqualTextsInOtherPlacesAreEqual) {
  const std::string a(70000, 'a'), b(70000, 'a'), c = std::string(69999, 'a') + "c";
  EXPECT_EQ(TextRef(a), TextRef(b));
  EXPECT_EQ(TextRef(a), b);
  EXPECT_NE(TextRef(a), TextRef(c));
  EXPECT_LT(TextRef("ab"), TextRef("b"));
  EXPECT_EQ(TextRef("torch.float32"), std::string_view("torch.float32"));
}

}  // namespace
}  // namespace msprobe
