// One version number: engine/base/version.h, pyproject.toml and CMakeLists.txt agree.
#include "engine/base/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace msprobe {
namespace {

const std::string kRoot = std::string(MSPROBE_TEST_DATA) + "/../..";

// The text after `key` up to one of `ends`; `key` must begin exactly one line of `file`.
std::string ValueOf(const std::string& file, const std::string& key, const char* ends) {
  std::ifstream in(kRoot + "/" + file);
  EXPECT_TRUE(in) << file;
  std::string value;
  int found = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    value = line.substr(key.size(), line.find_first_of(ends, key.size()) - key.size());
    ++found;
  }
  EXPECT_EQ(found, 1) << "lines of " << file << " that begin with " << key;
  return value;
}

TEST(Version, IsThatOfTheWheel) {
  EXPECT_EQ(ValueOf("pyproject.toml", "version = \"", "\""), kVersion);
}

TEST(Version, IsThatOfTheBuild) {
  EXPECT_EQ(ValueOf("CMakeLists.txt", "project(msprobe VERSION ", " )"), kVersion);
}

TEST(Version, IsThreeNumbers) {
  EXPECT_THAT(std::string(kVersion), ::testing::MatchesRegex("[0-9]+[.][0-9]+[.][0-9]+"));
}

}  // namespace
}  // namespace msprobe
