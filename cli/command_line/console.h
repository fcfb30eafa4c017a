// The terminal of a verb: results go to standard output, progress and errors to standard error.
//
//   out.Print("{} records\n", n);
//   out.Tell("written: {}"_t(path));          // a line, in the language of the reader
//   // replaces itself; nothing unless a person is watching
//   out.Progress("reading {}"_t(path));
//   out.ProgressOf("comparing"_t, 45, 100);   // with per cent and the time left
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "cli/command_line/progress_line.h"
#include "engine/base/status.h"

namespace msprobe::cli {

// Makes text of a dump safe for a terminal: control characters, which could move the cursor, become
// '?'.
std::string MakePrintable(std::string_view text);
// The same for each line; the ends of lines stay.
std::string MakeLinesPrintable(std::string_view text);

// Not for two threads at once, but for Progress.
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
  // A line for people, in their language and safe for a terminal. What a program may parse is
  // printed with Print or Write.
  void Tell(const Message& line) { Write(MakePrintable(line.Shown()) + '\n'); }
  // A line of a result, in the reader's language: "  reason    run 1 ended with exit code 1".
  // Nothing is printed for an empty text.
  void Line(const Message& key, const Message& text);
  // The same with a text of the program that is looked at, which stays as it is: a name, a line.
  void LineAsIs(const Message& key, std::string_view text);
  void Progress(const Message& text) {
    if (progress_) progress_->Show(text.Shown());
  }
  void ProgressOf(const Message& label, uint64_t done, uint64_t all) {
    if (progress_) progress_->Show(label.Shown(), done, all);
  }
  void ClearProgress();
  // Prints a line to standard error, after the text that was printed before, as Tell does. Nothing
  // is printed for an empty text.
  void Warn(const Message& line);
  // The same with text that programs read; whole lines.
  void WriteError(std::string_view lines);
  void Error(const Status& status);
  // The last words when a signal ends the program. Called on another thread.
  void Interrupted(int signal);
  // What Interrupted says of the work that was stopped, without an end of line.
  void SetLastWords(Message text);

  Status Flush();

  bool colors() const { return colors_; }  // a terminal, and neither NO_COLOR nor TERM=dumb
  int width() const { return width_; }     // columns; 100 when not a terminal
  int height() const { return height_; }   // lines; 24 when not a terminal
  bool is_terminal() const { return is_terminal_; }

 private:
  std::string buffer_;
  Status failed_;
  bool is_terminal_, colors_;
  int width_ = 100, height_ = 24;
  std::mutex last_words_mutex_;
  Message last_words_ = "files that were not complete are removed"_t;
  std::unique_ptr<ProgressLine> progress_;  // null: nobody is watching
};

}  // namespace msprobe::cli
