#include "engine/base/memory_size.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/base/temporary_folder.h"

namespace msprobe {
namespace {

TEST(MemorySizeTest, AmountsAsPeopleWriteThem) {
  EXPECT_EQ(*ParseMemorySize("4GB"), uint64_t{4} << 30);
  EXPECT_EQ(*ParseMemorySize("1.5 GiB"), uint64_t{3} << 29);
  EXPECT_EQ(*ParseMemorySize("512m"), uint64_t{512} << 20);
  EXPECT_EQ(*ParseMemorySize("800000000"), 800000000u);
  EXPECT_EQ(*ParseMemorySize("7B"), 7u);
  for (const char* text : {"", "GB", "4XB", "4GBs", "-1GB", "0", "nan", "inf", "1e30GB", "4iB"}) {
    EXPECT_FALSE(ParseMemorySize(text).ok()) << text;
  }
}

TEST(MemorySizeTest, RoundedUpForPeople) {
  EXPECT_EQ(MemorySizeText(1), "1 MB");
  EXPECT_EQ(MemorySizeText(uint64_t{300} << 20), "300 MB");
  EXPECT_EQ(MemorySizeText((uint64_t{1} << 30) + 1), "1.1 GB");
}

TEST(MemorySizeTest, AsAnArgumentItCanBeReadAgain) {
  EXPECT_EQ(MemorySizeFlag(1), "32MB");
  EXPECT_EQ(MemorySizeFlag(uint64_t{300} << 20), "320MB");
  EXPECT_EQ(MemorySizeFlag(uint64_t{1000} << 20), "1GB");
  EXPECT_EQ(MemorySizeFlag((uint64_t{1} << 30) + 1), "1.25GB");
  for (uint64_t bytes = 1; bytes < uint64_t{1} << 40; bytes = bytes * 3 + 1)
    EXPECT_GE(*ParseMemorySize(MemorySizeFlag(bytes)), bytes);
}

TEST(MemorySizeTest, AvailableMemoryIsNotZero) { EXPECT_GT(AvailableMemory(), uint64_t{16} << 20); }

class AvailableTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    root_.Write(path.substr(1), text);
  }
  void SetUp() override {
    Write("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\nSwapFree: 0 kB\n");
  }
  uint64_t Available() { return AvailableMemoryBelow(root_.path()); }
  TemporaryFolder root_;
};

TEST_F(AvailableTest, OfTheMachine) {
  EXPECT_EQ(Available(), 8000u << 10);
  Write("/proc/meminfo", "MemAvailable: 8000 kB\nSwapFree: 500 kB\n");
  EXPECT_EQ(Available(), 8500u << 10);
}

TEST_F(AvailableTest, OfAGroupAndThoseAroundIt) {
  Write("/proc/self/cgroup", "0::/jobs/7\n");
  Write("/sys/fs/cgroup/jobs/7/memory.max", "max\n");
  Write("/sys/fs/cgroup/jobs/7/memory.current", "1000\n");
  Write("/sys/fs/cgroup/jobs/memory.max", "1000000\n");
  Write("/sys/fs/cgroup/jobs/memory.current", "600000\n");
  EXPECT_EQ(Available(), 400000u);
  // Memory of the file cache can be reclaimed, so it counts as available.
  Write("/sys/fs/cgroup/jobs/memory.stat", "anon 1\ninactive_file 100000\nactive_file 50000\n");
  EXPECT_EQ(Available(), 550000u);
}

TEST_F(AvailableTest, OfAContainerThatSeesItsOwnGroupOnly) {
  Write("/proc/self/cgroup", "9:pids:/docker/a\n4:cpu,memory:/docker/a\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "200000\n");
  Write("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 60000\n");
  EXPECT_EQ(Available(), 560000u);
}

TEST_F(AvailableTest, ASystemThatReportsNoMemoryHasNoLimit) {
  Write("/proc/meminfo", "");
  EXPECT_EQ(Available(), UINT64_MAX);
}

}  // namespace
}  // namespace msprobe
