// A proof as sentences: how the values of a call are known to be those of the golden, and the same
// of the values that they were made of, back to where their bits are equal or the recording begins.
//
//   const ProofChain chain = ChainOf(comparison, /*pair=*/3, /*most=*/100);
//   for (const ProofLine& line : chain.lines) Print(line.depth, line.text.Shown());
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct ProofLine {
  int depth = 0;         // 0: of the call itself
  Message text;          // "Torch.mm.0.forward.output.0 is the golden's, bit for bit"
  bool exposed = false;  // a result of the step is made of it, with nothing right between
};

struct ProofChain {
  std::vector<ProofLine> lines;  // each value once, below the value that was made of it
  bool more = false;             // values farther away are left out
  bool exposed = false;          // of a line
  bool holds = true;             // the checker refused no step of the comparison
};

// Of a comparison with Decided::proofs. `pair`: an index into Comparison::pairs. A call that only
// the golden makes has no lines. `value`: the name of one value of the call; "": all; if there
// are more than `most`, first those that make a result of the step wrong.
ProofChain ChainOf(const Comparison& comparison, int32_t pair, size_t most,
                   std::string_view value = "");

// Why the first refused step does not hold, with its value; "": all hold.
Message RefusalOf(const Comparison& comparison);

}  // namespace msprobe::compare
