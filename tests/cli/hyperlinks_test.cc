#include "cli/command_line/hyperlinks.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace msprobe::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(HyperlinksTest, PlacesInFilesThatExist) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "hyperlinks_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "net.py") << "x\n";
  const std::string path = folder / "net.py";
  const std::string linked = LinkPlaces("  | " + path + ":41 in f: y = a.py:9\n");
  EXPECT_THAT(linked,
              StartsWith("  | \x1b]8;;file://" + path + "#41\x1b\\" + path + ":41\x1b]8;;"));
  EXPECT_THAT(linked, HasSubstr("in f: y = a.py:9\n"));
  EXPECT_EQ(LinkPlaces("timm/nosuch.py:41 in f"), "timm/nosuch.py:41 in f");
  EXPECT_EQ(LinkPlaces(".py: no place, x.py:"), ".py: no place, x.py:");
}

TEST(HyperlinksTest, TheEndOfAPathStays) {
  EXPECT_EQ(CutPlace("models/net.py:41", 40), "models/net.py:41");
  const std::string cut = CutPlace("/home/somebody/work/project/models/net.py:41", 24);
  EXPECT_LE(cut.size(), 24u);
  EXPECT_THAT(cut, StartsWith("..."));
  EXPECT_THAT(cut, HasSubstr("net.py:41"));
}

}  // namespace
}  // namespace msprobe::cli
