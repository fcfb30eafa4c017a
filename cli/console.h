// The terminal of a verb: results go to standard output, progress and errors to standard error.
//
//   out.Print("{} records\n", n);
//   out.Progress("reading {}", path);      // replaces itself; nothing unless a person is watching
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "engine/base/status.h"

namespace msprobe::cli {

// Makes text of a dump safe for a terminal: control characters, which could move the cursor, become
// '?'.
std::string MakePrintable(std::string_view text);

// Not for two threads at once.
class Console {
 public:
  Console();
  ~Console();  // flushes and ignores errors; call Flush() to see them
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  template <typename... Args>
  void Print(fmt::format_string<Args...> format, Args&&... args) {
    Write(fmt::format(format, std::forward<Args>(args)...));
  }
  void Write(std::string_view text);
  template <typename... Args>
  void Progress(fmt::format_string<Args...> format, Args&&... args) {
    if (progress_) ShowProgress(fmt::format(format, std::forward<Args>(args)...));
  }
  void ClearProgress();
  // Prints to standard error, after the text that was printed before.
  void Warn(std::string_view text);
  void Error(const Status& status);

  Status Flush();

  bool colors() const { return colors_; }  // a terminal, and neither NO_COLOR nor TERM=dumb
  int width() const { return width_; }     // columns; 100 when not a terminal
  int height() const { return height_; }   // lines; 24 when not a terminal
  bool is_terminal() const { return is_terminal_; }

 private:
  void ShowProgress(std::string_view text);
  std::string buffer_;
  Status failed_;
  bool is_terminal_, colors_, progress_;
  bool progress_shown_ = false;
  int width_ = 100, height_ = 24;
};

}  // namespace msprobe::cli
