// Where the code of a call is, and where the code of the two runs parts.
//
//   const CodePlace place = CodePlaceOf(comparison, comparison.first.pair);
//   // {"net.py:24 in forward: return self.norm(x)", "train.py:7 in main: y = net(x.float())",
//   //  "old.py:7 in main: y = net(x)"}
#pragma once

#include <cstdint>
#include <string>

#include "engine/compare/model/comparison.h"
#include "engine/dump/read/source_line.h"

namespace msprobe::compare {

// "train.py:41 in forward: y = gelu(x)": the user's line that made the call. A backward call has
// the line of its forward call; a call that only the golden has, the golden's. "" where no stack
// was recorded.
std::string SourceLineOf(const Comparison& comparison, int32_t pair);
// The same as two lines: that of the model, and that of the user's own code which called it.
dump::SourcePlace SourcePlaceOf(const Comparison& comparison, int32_t pair);

struct CodePlace {
  std::string line;  // as SourceLineOf
  // The lines of the program from which `line` was called, where they say more. Of a line in a
  // package: the one that called the package, as dump::SourcePlace has it. Where the code of the
  // two runs parts: the innermost caller that the other run does not execute; of a call that only
  // one run makes, the outermost of those that follow each other, which is the statement that the
  // other run does not have. Both: "net.py:55 in forward: ... <- train.py:7 in main: ...". Else "".
  std::string caller;
  // Of a call of both runs: the golden's line, where `line` is another one there; else the
  // innermost of its callers that the target does not execute. Else "".
  std::string golden;
};
// Lines are compared by function and code, without comments, wherever they stand: files move, and
// lines move in them.
CodePlace CodePlaceOf(const Comparison& comparison, int32_t pair);

// The golden's line of a first divergence that only the target has: the first call that the golden
// makes in its place. "": it makes none, or the code is the same.
std::string GoldenLineOfRegion(const Comparison& comparison, const FirstDivergence& first);

}  // namespace msprobe::compare
