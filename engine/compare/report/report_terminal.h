// The comparison on one screen.
#pragma once

#include <string>

#include "engine/compare/explain/findings.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct TerminalOptions {
  int width = 100;      // columns; less than 60 counts as 60, more than 100 as 100
  int lines = 24;       // at most; more only when the finding itself needs more
  bool colors = false;  // ANSI escapes; they do not count as columns
  // For a file or a pipe: nothing is cut, `lines` does not count, and no name is broken in two.
  bool whole = false;
};

// Names of calls and places in files (train.py:41) are never cut: a longer one is broken over
// lines. On a terminal, code and paths of dumps may be cut, in a way that shows. The text ends with
// a newline. Its own characters are ASCII; names and source lines keep their UTF-8, and control
// characters become '?'.
//
//   std::fputs(TerminalReport(comparison, {.colors = isatty(1)}).c_str(), stdout);
std::string TerminalReport(const Comparison& comparison, const TerminalOptions& options = {});
// The same of what FindingsOf has found already.
std::string TerminalReport(const Findings& found, const TerminalOptions& options);

}  // namespace msprobe::compare
