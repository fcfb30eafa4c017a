#include "engine/base/text_buffer.h"

#include <gtest/gtest.h>

#include <string>

namespace msprobe {
namespace {

TEST(TextBuffer, HoldsWhatAStringWould) {
  const std::string source =
      "The quick brown fox jumps over the lazy dog, twice. And again, and on.";
  TextBuffer buffer;
  std::string expected;
  for (size_t round = 0; round < 3; ++round) {
    for (size_t length = 0; length <= source.size(); ++length) {
      buffer += std::string_view(source).substr(source.size() - length);
      expected += source.substr(source.size() - length);
      buffer += ',';
      expected += ',';
      buffer.Number(1.0 / static_cast<double>(length + 1));
      AppendPythonFloat(&expected, 1.0 / static_cast<double>(length + 1));
      buffer.Integer(-static_cast<int64_t>(length));
      AppendInteger(&expected, -static_cast<int64_t>(length));
    }
  }
  EXPECT_EQ(buffer.view(), expected);
  TextBuffer moved = std::move(buffer);
  EXPECT_EQ(moved.view(), expected);
  moved.Truncate(3);
  moved += "x";
  EXPECT_EQ(moved.view(), expected.substr(0, 3) + "x");
  moved.Clear();
  EXPECT_EQ(moved.view(), "");
}

}  // namespace
}  // namespace msprobe
