// The shell of `msprobe parse`: lines from a terminal or a pipe, each one command.
//
//   ParseShell shell({.allow_run = true});
//   MSPROBE_ASSIGN_OR_RETURN(const int code, shell.Read(STDIN_FILENO, out));
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line/verb.h"
#include "engine/base/messages/message.h"

namespace msprobe::cli {

struct ParseShellOptions {
  bool allow_run = false;  // `run LINE` and unknown lines run as commands of the system's shell
  bool exit_code = false;  // the result is kExitDiffers where vc or cn found a difference
};

class ParseShell {
 public:
  explicit ParseShell(const ParseShellOptions& options) : options_(options) {}

  // Reads lines until the end, or `quit`. The result: kExitError if a command failed, else
  // kExitDiffers if options say so; 0 when a person types the lines.
  Result<int> Read(int descriptor, Console& out);
  // One command, of its words. Errors are returned, not printed.
  Result<int> Do(const std::vector<std::string>& words, Console& out) const;

 private:
  bool DoLine(const std::string& line, Console& out, int* code) const;
  Result<int> RunLine(std::string_view line, Console& out) const;

  ParseShellOptions options_;
};

// Whether a word is a command of the shell.
bool IsParseCommand(std::string_view word);

// A line of commands for help: "  pt   print a tensor ..." for each.
Message ParseCommandsHelp();

// The words of a line as a POSIX shell cuts it: blanks separate, quotes and \ keep. Nothing is
// expanded. Error: a quote that is not closed.
Result<std::vector<std::string>> SplitShellWords(std::string_view line);

}  // namespace msprobe::cli
