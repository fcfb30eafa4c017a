// The level is read once a process, so every case runs in a forked child.
#include "engine/base/log.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace msprobe {
namespace {

// What `body` writes to standard error in a child, and the child's process id.
struct Output {
  std::string text;
  pid_t pid = 0;
};

Output InChild(const char* level, const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
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
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof(buffer))) > 0;)
    output.text.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(output.pid, &status, 0), output.pid);
  EXPECT_EQ(status, 0);
  return output;
}

void LogEveryLevel() {
  Log(LogLevel::kDebug, "d");
  Log(LogLevel::kInfo, "i");
  Log(LogLevel::kWarning, "w");
  Log(LogLevel::kError, "e");
  Log(LogLevel::kSilent, "s");
}

// The message of each line, in order.
std::string Messages(const std::string& text) {
  std::istringstream lines(text);
  std::string messages;
  for (std::string line; std::getline(lines, line);) messages += line.substr(line.size() - 1);
  return messages;
}

TEST(Log, LineIsTimeProcessLevelMessage) {
  const Output output = InChild(nullptr, [] { Log(LogLevel::kWarning, "the disk is full"); });
  const std::regex line(
      R"(20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \((\d+)\) \[WARNING\] the disk is full\n)");
  std::smatch match;
  ASSERT_TRUE(std::regex_match(output.text, match, line)) << output.text;
  EXPECT_EQ(match[1], std::to_string(output.pid));
}

TEST(Log, NamesTheRankOnceItIsKnown) {
  const Output output = InChild(nullptr, [] {
    Log(LogLevel::kInfo, "a");
    SetLogRank(0);
    Log(LogLevel::kInfo, "b");
    SetLogRank(12);
    Log(LogLevel::kError, "c");
    SetLogRank(-1);
    Log(LogLevel::kInfo, "d");
  });
  const std::regex head(R"(\d\S+ \S+ \(\d+\) )");
  EXPECT_EQ(std::regex_replace(output.text, head, ""),
            "[INFO] a\n[rank 0] [INFO] b\n[rank 12] [ERROR] c\n[INFO] d\n");
}

TEST(Log, LevelIsAThreshold) {
  EXPECT_EQ(Messages(InChild("0", LogEveryLevel).text), "diwe");
  EXPECT_EQ(Messages(InChild("1", LogEveryLevel).text), "iwe");
  EXPECT_EQ(Messages(InChild("2", LogEveryLevel).text), "we");
  EXPECT_EQ(Messages(InChild("3", LogEveryLevel).text), "e");
  EXPECT_EQ(Messages(InChild("4", LogEveryLevel).text), "");
}

TEST(Log, WhatIsNoLevelIsTheDefault) {
  for (const char* level : {static_cast<const char*>(nullptr), "", "5", "-1", "10", "info"})
    EXPECT_EQ(Messages(InChild(level, LogEveryLevel).text), "iwe") << (level ? level : "(unset)");
}

// A name out of a hostile file must not move the cursor, ring, or start a line of its own.
TEST(Log, ControlCharactersBecomeUnderscores) {
  const std::string hostile(
      "a\nb\rc\td\x1b[31me\x7f"
      "f\0g",
      17);
  const Output output = InChild(nullptr, [&] { Log(LogLevel::kInfo, hostile); });
  EXPECT_EQ(output.text.substr(output.text.find(']') + 2), "a_b_c_d_[31me_f_g\n");
}

TEST(Log, TextBeyondAsciiIsKept) {
  const Output output = InChild(nullptr, [] { Log(LogLevel::kInfo, "\xc3\xa9 \xe2\x82\xac"); });
  EXPECT_EQ(output.text.substr(output.text.find(']') + 2), "\xc3\xa9 \xe2\x82\xac\n");
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
  const std::regex line(R"(\S+ \S+ \(\d+\) \[INFO\] (\d/\d+)\.{200})");
  std::istringstream lines(output.text);
  std::set<std::string> seen;
  for (std::string text; std::getline(lines, text);) {
    std::smatch match;
    ASSERT_TRUE(std::regex_match(text, match, line)) << text;
    seen.insert(match[1]);
  }
  EXPECT_EQ(seen.size(), 400u);
}

}  // namespace
}  // namespace msprobe
