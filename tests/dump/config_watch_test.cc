#include "engine/dump/config/config_watch.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

using std::chrono::milliseconds;

class ConfigWatchTest : public ::testing::Test {
 protected:
  // Polls `later`: returns the dump_path, "(error)", or "" if there is no answer.
  std::string Look(milliseconds later, bool enabled = true) {
    now_ += later;
    const std::optional<Result<Config>> answer = watch_.Poll(now_, enabled);
    if (!answer) return "";
    return answer->ok() ? (*answer)->dump_path : "(error)";
  }
  void Write(const std::string& text) { folder_.Write("config.json", text); }

  TemporaryFolder folder_;
  const std::string path_ = folder_.Write("config.json", R"({"dump_path": "first"})");
  ConfigWatch::Clock::time_point now_;
  ConfigWatch watch_{path_, {.level = "L0"}, now_};
};

TEST_F(ConfigWatchTest, AChangeIsReadOnceAndNotBeforeItIsTime) {
  EXPECT_EQ(Look(milliseconds(1000)), "");
  Write(R"({"dump_path": "second one"})");
  EXPECT_EQ(Look(milliseconds(499)), "");
  EXPECT_EQ(Look(milliseconds(1)), "second one");
  EXPECT_EQ(Look(milliseconds(500)), "");
  Write(R"({"dump_path": "third"})");
  EXPECT_EQ(Look(milliseconds(2999), /*enabled=*/false), "");
  EXPECT_EQ(Look(milliseconds(1), /*enabled=*/false), "third");
}

TEST_F(ConfigWatchTest, ArgumentsStayInForce) {
  Write(R"({"level": "mix", "dump_path": "x"})");
  const std::optional<Result<Config>> answer = watch_.Poll(now_ + milliseconds(500), true);
  ASSERT_TRUE(answer && answer->ok());
  EXPECT_EQ((*answer)->level, Level::kL0);
}

TEST_F(ConfigWatchTest, AnUnusableFileIsReadAgain) {
  Write("{");
  EXPECT_EQ(Look(milliseconds(500)), "(error)");
  EXPECT_EQ(Look(milliseconds(500)), "(error)");
  std::remove(path_.c_str());
  EXPECT_EQ(Look(milliseconds(500)), "(error)");
  Write(R"({"dump_path": "good"})");
  EXPECT_EQ(Look(milliseconds(500)), "good");
  watch_.RejectConfig();
  EXPECT_EQ(Look(milliseconds(500)), "good");
  EXPECT_EQ(Look(milliseconds(500)), "");
}

}  // namespace
}  // namespace msprobe::dump
