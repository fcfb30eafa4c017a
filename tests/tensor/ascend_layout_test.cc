#include "engine/tensor/ascend_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "engine/tensor/tensor_view.h"

namespace msprobe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using enum AscendLayout;
using Shape = std::vector<int64_t>;

int64_t Count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Elements of any size; each has its number in the first bytes (a byte: modulo 251, so not 0).
std::vector<char> Numbered(int64_t count, size_t size) {
  std::vector<char> bytes(static_cast<size_t>(count) * size);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t number = size == 1 ? 1 + i % 251 : i + 1;
    std::memcpy(bytes.data() + static_cast<size_t>(i) * size, &number,
                std::min(size, sizeof number));
  }
  return bytes;
}

struct Pair {
  AscendLayout plain, padded;
  Shape shape, expected;
};

TEST(AscendLayout, EveryPaddedLayoutComesBack) {
  const Pair pairs[] = {
      {kNCHW, kNC1HWC0, {2, 19, 3, 5}, {2, 2, 3, 5, 16}},
      {kNHWC, kNC1HWC0, {2, 3, 5, 19}, {2, 2, 3, 5, 16}},
      {kHWCN, kNC1HWC0, {3, 5, 19, 2}, {2, 2, 3, 5, 16}},
      {kNCHW, kFractalZ, {17, 5, 3, 2}, {6, 2, 16, 16}},
      {kNHWC, kFractalZ, {17, 3, 2, 20}, {12, 2, 16, 16}},
      {kHWCN, kFractalZ, {3, 2, 5, 17}, {6, 2, 16, 16}},
      {kND, kFractalNZ, {17, 33}, {3, 2, 16, 16}},
      {kND, kFractalNZ, {2, 3, 4, 40}, {2, 3, 3, 1, 16, 16}},
      {kND, kFractalNZ, {21}, {2, 1, 16, 16}},
      {kNCHW, kFractalNZ, {2, 3, 4, 40}, {2, 3, 3, 1, 16, 16}},
      {kNHWC, kFractalNZ, {2, 3, 4, 40}, {2, 3, 3, 1, 16, 16}},
      {kNCDHW, kNDC1HWC0, {2, 17, 3, 4, 5}, {2, 3, 2, 4, 5, 16}},
      {kND, kNDC1HWC0, {2, 17, 3, 4, 5}, {2, 3, 2, 4, 5, 16}},
      {kNCHW, kNC1HWC0, {1, 16, 1, 1}, {1, 1, 1, 1, 16}},
      {kNCHW, kNC1HWC0, {0, 3, 4, 5}, {0, 1, 4, 5, 16}},
  };
  for (const size_t size : {1, 2, 4, 8, 16}) {
    for (const Pair& p : pairs) {
      SCOPED_TRACE(std::string(AscendLayoutName(p.plain)) + ShapeText(p.shape) + " " +
                   std::string(AscendLayoutName(p.padded)));
      const auto there = PlanLayout({p.plain, p.shape}, p.padded, {}, 16);
      ASSERT_TRUE(there.ok()) << there.status().ToString();
      EXPECT_EQ(there->shape, p.expected);
      ASSERT_EQ(there->elements, Count(p.expected));
      const std::vector<char> elements = Numbered(Count(p.shape), size);
      std::vector<char> stored(static_cast<size_t>(there->elements) * size, 'x');
      ConvertLayout(*there, elements.data(), size, stored.data());
      const auto back = PlanLayout({p.padded, there->shape}, p.plain, {p.plain, p.shape}, 16);
      ASSERT_TRUE(back.ok()) << back.status().ToString();
      EXPECT_EQ(back->shape, p.shape);
      std::vector<char> again(static_cast<size_t>(back->elements) * size, 'y');
      ConvertLayout(*back, stored.data(), size, again.data());
      EXPECT_EQ(again, elements);
    }
  }
}

TEST(AscendLayout, PaddingIsZeroAndElementsStandWhereCannPutsThem) {
  const auto plan = PlanLayout({kNCHW, {1, 2, 1, 2}}, kNC1HWC0, {}, 4);
  ASSERT_TRUE(plan.ok());
  const uint16_t elements[] = {1, 2, 3, 4};  // c0: 1 2, c1: 3 4
  uint16_t stored[8];
  ConvertLayout(*plan, elements, 2, stored);
  EXPECT_THAT(stored, ElementsAre(1, 3, 0, 0, 2, 4, 0, 0));
}

TEST(AscendLayout, PaddedToPaddedByWayOfTheOriginal) {
  const LayoutShape original{kHWCN, {3, 2, 5, 17}};
  const auto weight = PlanLayout(original, kFractalZ, {}, 16);
  const auto image = PlanLayout(original, kNC1HWC0, {}, 16);
  const auto across = PlanLayout({kFractalZ, weight->shape}, kNC1HWC0, original, 16);
  ASSERT_TRUE(across.ok()) << across.status().ToString();
  const std::vector<char> elements = Numbered(Count(original.shape), 4);
  std::vector<char> a(static_cast<size_t>(weight->elements) * 4);
  std::vector<char> b(static_cast<size_t>(image->elements) * 4), c(b.size());
  ConvertLayout(*weight, elements.data(), 4, a.data());
  ConvertLayout(*image, elements.data(), 4, b.data());
  ConvertLayout(*across, a.data(), 4, c.data());
  EXPECT_EQ(b, c);
}

TEST(AscendLayout, TheOriginalIsTheLayoutThatFits) {
  const LayoutShape stored{kNC1HWC0, {2, 1, 4, 5, 16}};
  EXPECT_EQ(OriginalOf(stored, {2, 3, 4, 5})->layout, kNCHW);
  EXPECT_EQ(OriginalOf(stored, {2, 4, 5, 3})->layout, kNHWC);
  EXPECT_EQ(OriginalOf(stored, {4, 5, 3, 2})->layout, kHWCN);
  EXPECT_TRUE(OriginalOf({kNC1HWC0, {4, 1, 4, 4, 16}}, {4, 4, 4, 4}).ok()) << "all agree";
  EXPECT_THAT(OriginalOf(stored, {2, 3, 9, 9}).status().message(), HasSubstr("does not fit"));
  EXPECT_THAT(OriginalOf({kFractalZ, {9, 1, 16, 16}}, {3, 3, 3, 3}).status().message(),
              testing::Not(HasSubstr("can be")));
  EXPECT_THAT(OriginalOf({kFractalZ, {6, 1, 16, 16}}, {2, 3, 2, 3}).status().message(),
              HasSubstr("can be"));
}

TEST(AscendLayout, RefusesWhatItCannotKnow) {
  const LayoutShape stored{kNC1HWC0, {2, 1, 4, 5, 16}};
  const auto message = [](const Result<LayoutPlan>& plan) { return plan.status().message(); };
  EXPECT_THAT(message(PlanLayout(stored, kNCHW, {}, 16)), HasSubstr("without padding is needed"));
  EXPECT_THAT(message(PlanLayout(stored, kNCHW, {kNCHW, {2, 17, 4, 5}}, 16)), HasSubstr("fits"));
  EXPECT_THAT(message(PlanLayout(stored, kNCHW, {kNCHW, {2, 3, 4}}, 16)), HasSubstr("4 extents"));
  EXPECT_THAT(message(PlanLayout({kNCHW, {2, 3, 4, 5}}, kNCDHW, {}, 16)), HasSubstr("not convert"));
  EXPECT_THAT(message(PlanLayout(stored, kND, {kND, {2, 3, 4, 5}}, 16)), HasSubstr("not convert"));
  EXPECT_THAT(message(PlanLayout(stored, kFractalNZ, {kND, {2, 3}}, 16)), HasSubstr("not convert"));
  EXPECT_FALSE(PlanLayout({kNC1HWC0, {2, 1, 4, 5, 0}}, kNCHW, {kNCHW, {2, 3, 4, 5}}, 16).ok());
  EXPECT_FALSE(PlanLayout({kNCHW, {2, -3, 4, 5}}, kNHWC, {}, 16).ok());
  EXPECT_FALSE(PlanLayout({kNCHW, {int64_t{1} << 40, 1 << 20, 1 << 20, 1}}, kNHWC, {}, 16).ok());
  EXPECT_EQ(AscendLayoutFromName("NC1HWC1"), std::nullopt);
  for (int i = 0; i < kAscendLayoutCount; ++i) {
    const auto layout = static_cast<AscendLayout>(i);
    EXPECT_EQ(AscendLayoutFromName(AscendLayoutName(layout)), layout);
  }
}

}  // namespace
}  // namespace msprobe
