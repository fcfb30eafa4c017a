#include "engine/replay/reproducer.h"

#include <gtest/gtest.h>

namespace msprobe::replay {
namespace {

TEST(Reproducer, TextsAreLiterals) {
  EXPECT_EQ(PythonLiteral("relu"), "'relu'");
  EXPECT_EQ(PythonLiteral("it's \"a\" \\ {}"), "'it\\'s \"a\" \\\\ {}'");
  EXPECT_EQ(PythonLiteral(std::string_view("a\n\r\0\x7f", 5)), "'a\\x0a\\x0d\\x00\\x7f'");
  EXPECT_EQ(PythonLiteral("\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80"), "'\\xe9\\u2028\\U0001f600'");
  EXPECT_EQ(PythonLiteral("\xff\xc3"), "'\\ufffd\\ufffd'");
}

}  // namespace
}  // namespace msprobe::replay
