// A process reads the level only once, so every case runs in a forked child.
#include "engine/base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace msprobe {
namespace {

// The text that `body` writes to standard error in a child, and the child's process id.
struct Output {
  std::string text;
  std::vector<std::string> writes;  // one for each write(2)
  pid_t pid = 0;
};

Output InChild(const char* level, const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_DIRECT), 0);  // each read returns one write
  Output output;
  output.pid = ::fork();
  if (output.pid == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    level ? ::setenv("MSPROBE_LOG_LEVEL", level, 1) : ::unsetenv("MSPROBE_LOG_LEVEL");
    ::setenv("TZ", "UTC", 1);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof(buffer))) > 0;) {
    output.writes.emplace_back(buffer, static_cast<size_t>(n));
    output.text += output.writes.back();
  }
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(output.pid, &status, 0), output.pid);
  EXPECT_EQ(status, 0);
  return output;
}

void LogEveryLevel() {
  Log(LogLevel::kDebug, "d"_t);
  Log(LogLevel::kInfo, "i"_t);
  Log(LogLevel::kWarning, "w"_t);
  Log(LogLevel::kError, "e"_t);
  Log(LogLevel::kSilent, "s"_t);
}

// The lines without their time and process.
std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line.substr(line.find('[')));
  return lines;
}

// The last character of each line, in order.
std::string Messages(const std::string& text) {
  std::string messages;
  for (const std::string& line : Lines(text)) messages += line.back();
  return messages;
}

TEST(Log, LineIsTimeProcessLevelMessage) {
  const Output output = InChild(nullptr, [] { Log(LogLevel::kWarning, "the disk is full"_t); });
  EXPECT_THAT(
      output.text,
      ::testing::MatchesRegex("20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} [(]" +
                              std::to_string(output.pid) + "[)] \\[WARNING\\] the disk is full\n"));
}

TEST(Log, NamesTheRankOnceItIsKnown) {
  const Output output = InChild(nullptr, [] {
    Log(LogLevel::kInfo, "a"_t);
    SetLogRank(0);
    Log(LogLevel::kInfo, "b"_t);
    SetLogRank(12);
    Log(LogLevel::kError, "c"_t);
    SetLogRank(-1);
    Log(LogLevel::kInfo, "d"_t);
  });
  EXPECT_EQ(Lines(output.text), (std::vector<std::string>{"[INFO] a", "[rank 0] [INFO] b",
                                                          "[rank 12] [ERROR] c", "[INFO] d"}));
}

TEST(Log, LevelIsAThreshold) {
  EXPECT_EQ(Messages(InChild("0", LogEveryLevel).text), "diwe");
  EXPECT_EQ(Messages(InChild("1", LogEveryLevel).text), "iwe");
  EXPECT_EQ(Messages(InChild("2", LogEveryLevel).text), "we");
  EXPECT_EQ(Messages(InChild("3", LogEveryLevel).text), "e");
  EXPECT_EQ(Messages(InChild("4", LogEveryLevel).text), "");
}

TEST(Log, AnInvalidLevelIsTheDefault) {
  for (const char* level : {static_cast<const char*>(nullptr), "", "5", "-1", "30", "info"})
    EXPECT_EQ(Messages(InChild(level, LogEveryLevel).text), "iwe") << (level ? level : "(unset)");
}

// A name from a hostile file must not move the cursor, ring the bell or start a new line.
TEST(Log, ControlCharactersBecomeUnderscores) {
  const std::string hostile(
      "a\nb\rc\td\x1b[31me\x7f"
      "f\0g",
      17);
  const Output output = InChild(nullptr, [&] { Log(LogLevel::kInfo, hostile); });
  EXPECT_EQ(output.text.substr(output.text.find(']') + 2), "a_b_c_d_[31me_f_g\n");
}

TEST(Log, TextBeyondAsciiIsKept) {
  const Output output = InChild(nullptr, [] { Log(LogLevel::kInfo, "\xc3\xa9 \xe2\x82\xac"_t); });
  EXPECT_EQ(output.text.substr(output.text.find(']') + 2), "\xc3\xa9 \xe2\x82\xac\n");
}

// So that lines of several processes on one terminal stay whole.
TEST(Log, ALineIsOneWrite) {
  const Output output = InChild(nullptr, [] {
    Log(LogLevel::kInfo, std::string(2000, 'a'));
    Log(LogLevel::kError, ""_t);
  });
  ASSERT_EQ(output.writes.size(), 2u);
  EXPECT_EQ(output.writes[0].back(), '\n');
}

TEST(Log, LinesOfManyThreadsStayWhole) {
  const Output output = InChild(nullptr, [] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < 100; ++i)
          Log(LogLevel::kInfo, std::to_string(t) + "/" + std::to_string(i) + std::string(200, '.'));
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  std::set<std::string> seen;
  for (const std::string& line : Lines(output.text)) {
    ASSERT_THAT(line, ::testing::MatchesRegex("\\[INFO\\] [0-3]/[0-9]+[.]{200}"));
    seen.insert(line);
  }
  EXPECT_EQ(seen.size(), 400u);
}

}  // namespace
}  // namespace msprobe
