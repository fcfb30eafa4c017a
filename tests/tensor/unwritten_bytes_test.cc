#include "engine/tensor/unwritten_bytes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace msprobe {
namespace {

struct Strided {
  std::vector<int64_t> shape, strides;
  TensorView On(const std::vector<int16_t>& memory, int64_t offset) const {
    return {.data = memory.data() + offset,
            .dtype = DType::kInt16,
            .ndim = static_cast<int>(shape.size()),
            .shape = shape.data(),
            .strides = strides.data()};
  }
};

TEST(UnwrittenBytesTest, APartThatIsWrittenIsNotShown) {
  const std::vector<int16_t> memory(10);
  UnwrittenBytes bytes(memory.data(), 20);
  const Strided front{{4}, {1}}, back{{6}, {1}}, all{{10}, {1}};
  bytes.Write(front.On(memory, 0));
  EXPECT_FALSE(bytes.Shows(front.On(memory, 0)));
  EXPECT_TRUE(bytes.Shows(back.On(memory, 4)));
  EXPECT_TRUE(bytes.Shows(all.On(memory, 0)));
  EXPECT_FALSE(bytes.empty());
  bytes.Write(back.On(memory, 4));
  EXPECT_FALSE(bytes.Shows(all.On(memory, 0)));
  EXPECT_TRUE(bytes.empty());
}

// Random views, written and asked for, beside one flag for each element.
TEST(UnwrittenBytesTest, AgreesWithAFlagForEachElement) {
  constexpr int64_t kElements = 60;
  std::mt19937 random(11);
  const auto pick = [&](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  for (int round = 0; round < 400; ++round) {
    const std::vector<int16_t> memory(kElements);
    std::vector<bool> written(kElements, false);
    UnwrittenBytes bytes(memory.data(), 2 * kElements);
    for (int i = 0; i < 12; ++i) {
      Strided view;
      int64_t lowest = 0, highest = 0;
      for (int64_t d = pick(0, 3); d > 0; --d) {
        view.shape.push_back(pick(0, 4));
        view.strides.push_back(pick(-5, 7));
        const int64_t reach = (view.shape.back() - 1) * view.strides.back();
        if (view.shape.back() > 0) (reach < 0 ? lowest : highest) += reach;
      }
      if (highest - lowest >= kElements) continue;
      const int64_t offset = pick(-lowest, kElements - 1 - highest);
      std::vector<int64_t> elements = {offset};
      for (size_t d = 0; d < view.shape.size(); ++d) {
        std::vector<int64_t> next;
        for (const int64_t e : elements) {
          for (int64_t k = 0; k < view.shape[d]; ++k) next.push_back(e + k * view.strides[d]);
        }
        elements = next;
      }
      bool shows = false;
      for (const int64_t e : elements) shows = shows || !written[e];
      ASSERT_EQ(bytes.Shows(view.On(memory, offset)), shows) << ShapeText(view.shape);
      if (pick(0, 1) == 0) continue;
      bytes.Write(view.On(memory, offset));
      for (const int64_t e : elements) written[e] = true;
    }
  }
}

TEST(UnwrittenBytesTest, TooManyRunsStayUnwritten) {
  const std::vector<int16_t> memory(20000);
  UnwrittenBytes bytes(memory.data(), 40000);
  const Strided every_second{{10000}, {2}}, first{{1}, {1}}, outside{{1}, {1}};
  bytes.Write(every_second.On(memory, 0));
  EXPECT_TRUE(bytes.Shows(first.On(memory, 0)));
  EXPECT_TRUE(bytes.Shows(every_second.On(memory, 1)));
  EXPECT_FALSE(bytes.Shows(outside.On(memory, 20000))) << "behind the allocation";
}

}  // namespace
}  // namespace msprobe
