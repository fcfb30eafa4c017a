// One version number: engine/base/version.h, pyproject.toml and CMakeLists.txt agree.
#include "engine/base/version.h"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace msprobe {
namespace {

const std::string kRoot = std::string(MSPROBE_TEST_DATA) + "/../..";

// The text of the first group of `pattern`, which must be found exactly once in `file`.
std::string OnlyMatch(const std::string& file, const std::string& pattern) {
  std::ifstream in(kRoot + "/" + file);
  EXPECT_TRUE(in) << file;
  std::stringstream text;
  text << in.rdbuf();
  const std::string content = text.str();
  const std::regex regex(pattern, std::regex::ECMAScript | std::regex::multiline);
  std::sregex_iterator match(content.begin(), content.end(), regex), end;
  if (match == end) {
    ADD_FAILURE() << file << " has nothing like " << pattern;
    return "";
  }
  const std::string found = (*match)[1];
  EXPECT_EQ(++match, end) << file << " has more than one " << pattern;
  return found;
}

TEST(Version, IsThatOfTheWheel) {
  EXPECT_EQ(OnlyMatch("pyproject.toml", "^version = \"([^\"]*)\"$"), kVersion);
}

TEST(Version, IsThatOfTheBuild) {
  EXPECT_EQ(OnlyMatch("CMakeLists.txt", "^project\\(msprobe VERSION ([^ )]*)"), kVersion);
}

TEST(Version, IsThreeNumbers) {
  const std::regex three("[0-9]+\\.[0-9]+\\.[0-9]+");
  EXPECT_TRUE(std::regex_match(kVersion.begin(), kVersion.end(), three)) << kVersion;
}

}  // namespace
}  // namespace msprobe
