#include "cli/command_line/console.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cli/command_line/hyperlinks.h"
#include "engine/base/display_width.h"
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

std::string MakeLinesPrintable(std::string_view text) {
  std::string printable;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    printable += MakePrintable(text.substr(from, end - from)) + '\n';
    from = end + 1;
  }
  return printable;
}

Console::Console()
    : is_terminal_(::isatty(STDOUT_FILENO) == 1),
      colors_(is_terminal_ && !Set("NO_COLOR") && !TerminalIsDumb()) {
  winsize size{};
  if (is_terminal_ && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) {
    width_ = size.ws_col;
    if (size.ws_row >= 16) height_ = size.ws_row;
  }
  if (::isatty(STDERR_FILENO) == 1 && !TerminalIsDumb()) {
    winsize errors{};
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &errors) == 0 && errors.ws_col > 0;
    progress_ = std::make_unique<ProgressLine>(STDERR_FILENO, known ? errors.ws_col : width_);
  }
}

Console::~Console() {
  ClearProgress();
  (void)Flush();
}

void Console::Write(std::string_view text) {
  // Links are for the same terminals as colours.
  if (colors_) {
    buffer_ += LinkPlaces(text);
  } else {
    buffer_ += text;
  }
  if (buffer_.size() > (1u << 16)) (void)Flush();  // an error is kept for the next Flush()
}

Status Console::Flush() {
  if (!buffer_.empty()) {
    ClearProgress();
    const int error = WriteAll(STDOUT_FILENO, buffer_);
    if (error != 0 && failed_.ok()) failed_ = IoError("standard output", "write"_t, error);
    buffer_.clear();
  }
  return failed_;
}

void Console::Line(const Message& key, const Message& text) { LineAsIs(key, text.Shown()); }

void Console::LineAsIs(const Message& key, std::string_view text) {
  if (text.empty()) return;
  constexpr int kColumns = 9;
  const std::string shown = key.Shown();
  const int missing = std::max(0, kColumns - DisplayWidth(shown));
  Print("  {}{} {}\n", shown, std::string(static_cast<size_t>(missing), ' '), MakePrintable(text));
}

void Console::Warn(const Message& line) {
  if (!line.empty()) WriteError(MakePrintable(line.Shown()) + '\n');
}

void Console::Error(const Status& status) { WriteError(MakeLinesPrintable(status.ToString())); }

void Console::WriteError(std::string_view lines) {
  (void)Flush();
  ClearProgress();
  (void)WriteAll(STDERR_FILENO, lines);
}

void Console::Interrupted(int signal) {
  if (progress_) progress_->Clear();
  const char* name = ::strsignal(signal);
  const std::lock_guard lock(last_words_mutex_);
  (void)WriteAll(
      STDERR_FILENO,
      "stopped ({}): {}"_t(name == nullptr ? "signal"_t : Message(std::string(name)), last_words_)
              .Shown() +
          '\n');
}

void Console::SetLastWords(Message text) {
  const std::lock_guard lock(last_words_mutex_);
  last_words_ = std::move(text);
}

void Console::ClearProgress() {
  if (progress_) progress_->Clear();
}

}  // namespace msprobe::cli
