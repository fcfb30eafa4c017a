#include "cli/command_line/progress_line.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

namespace msprobe::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The end of a pipe that stands for the terminal.
class Terminal {
 public:
  Terminal() { EXPECT_EQ(::pipe2(ends_, O_NONBLOCK), 0); }
  ~Terminal() { ::close(ends_[0]), ::close(ends_[1]); }
  int fd() const { return ends_[1]; }
  std::string Written() {
    std::string text(1 << 16, '\0');
    const ssize_t n = ::read(ends_[0], text.data(), text.size());
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }

 private:
  int ends_[2];
};

TEST(EstimateText, PerCentAndTimeLeft) {
  EXPECT_EQ(EstimateText(0, 0, 200, 0), "0%");
  EXPECT_EQ(EstimateText(0, 30, 200, 0.5), "15%") << "too early for an estimate";
  EXPECT_EQ(EstimateText(0, 50, 200, 10), "25%, 30 s left");
  EXPECT_EQ(EstimateText(100, 150, 200, 10), "75%, 10 s left") << "100 were done before";
  EXPECT_EQ(EstimateText(0, 1, 200, 2), "0%, 7 min left");
  EXPECT_EQ(EstimateText(0, 1, 200, 200), "0%, 11.1 h left");
  EXPECT_EQ(EstimateText(0, 199, 200, 10), "99%, 1 s left");
  EXPECT_EQ(EstimateText(0, 200, 200, 10), "100%");
  EXPECT_EQ(EstimateText(0, 300, 200, 10), "100%");
}

TEST(ProgressLine, IsDrawnAtMostTenTimesASecond) {
  Terminal terminal;
  const auto begin = std::chrono::steady_clock::now();
  uint64_t calls = 0;
  double seconds = 0;
  {
    ProgressLine line(terminal.fd(), 80);
    for (; seconds < 0.55; ++calls) {
      line.Show("comparing tensors", calls, uint64_t{1} << 40);
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    line.Clear();
  }
  const std::string written = terminal.Written();
  size_t drawn = 0;
  for (size_t at = 0; (at = written.find("comparing", at)) != written.npos; ++at) ++drawn;
  EXPECT_GE(drawn, 1u) << calls << " calls in " << seconds << " s";
  EXPECT_LE(static_cast<double>(drawn), 10 * seconds) << calls << " calls";
  EXPECT_THAT(written, StartsWith("\r\x1b[Kcomparing tensors: 0%"));
  EXPECT_THAT(written, EndsWith("\r\x1b[K")) << "it is cleared";
}

TEST(ProgressLine, ShortWorkShowsNothing) {
  Terminal terminal;
  {
    ProgressLine line(terminal.fd(), 80);
    line.Show("reading", 1, 2);
    line.Clear();
  }
  EXPECT_EQ(terminal.Written(), "");
}

TEST(ProgressLine, TheNewestTextIsShownWithoutAnotherCall) {
  Terminal terminal;
  ProgressLine line(terminal.fd(), 40);
  line.Show("reading a file with a very long name that does not fit", 1, 4);
  line.Show("comparing tensors of a step with a very long name", 1, 4);
  std::string written;
  for (int i = 0; i < 500 && written.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    written = terminal.Written();
  }
  EXPECT_THAT(written, HasSubstr("comparing"));
  EXPECT_THAT(written, EndsWith("a very long name: 25%"));
  EXPECT_LE(written.size(), 39 + std::string("\r\x1b[K").size());
}

}  // namespace
}  // namespace msprobe::cli
