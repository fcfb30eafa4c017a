#include "cli/console.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "engine/base/text.h"

namespace msprobe::cli {
namespace {

bool Set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool TerminalIsDumb() {
  const char* term = std::getenv("TERM");
  return term == nullptr || std::string_view(term) == "dumb";
}

int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace

std::string MakePrintable(std::string_view text) {
  std::string out;
  AppendValidUtf8(&out, text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return out;
}

Console::Console()
    : is_terminal_(::isatty(STDOUT_FILENO) == 1),
      colors_(is_terminal_ && !Set("NO_COLOR") && !TerminalIsDumb()),
      progress_(::isatty(STDERR_FILENO) == 1 && !TerminalIsDumb()) {
  winsize size{};
  if (is_terminal_ && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) {
    width_ = size.ws_col;
    if (size.ws_row >= 16) height_ = size.ws_row;
  }
}

Console::~Console() {
  ClearProgress();
  (void)Flush();
}

void Console::Write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() > (1u << 16)) (void)Flush();  // an error is kept for the next Flush()
}

Status Console::Flush() {
  if (!buffer_.empty()) {
    ClearProgress();
    const int error = WriteAll(STDOUT_FILENO, buffer_);
    if (error != 0 && failed_.ok()) failed_ = IoError("standard output", "write", error);
    buffer_.clear();
  }
  return failed_;
}

void Console::Warn(std::string_view text) {
  (void)Flush();
  ClearProgress();
  (void)WriteAll(STDERR_FILENO, text);
}

void Console::Error(const Status& status) { Warn(status.ToString()); }

void Console::ShowProgress(std::string_view text) {
  std::string line = "\r\x1b[K";
  line += text.substr(0, static_cast<size_t>(std::max(20, width_ - 1)));
  (void)WriteAll(STDERR_FILENO, line);
  progress_shown_ = true;
}

void Console::ClearProgress() {
  if (!progress_shown_) return;
  (void)WriteAll(STDERR_FILENO, "\r\x1b[K");
  progress_shown_ = false;
}

}  // namespace msprobe::cli
