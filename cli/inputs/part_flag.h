// --part of `msprobe compare`: this process compares some ranks of two runs, other processes the
// others, and `msprobe merge_result` reports on all of them.
//
//   PartFlag part_;
//   part_.Add(flags);                                            // in AddFlags
//   MSPROBE_RETURN_IF_ERROR(part_.Parse());
//   MSPROBE_ASSIGN_OR_RETURN(compare::ComparedPart part, part_.Take(target, golden, &paired));
//   for (const DumpPair& pair : paired.pairs) Print("{}", pair.target);   // those of this part
#pragma once

#include <string>

#include "cli/command_line/console.h"
#include "cli/command_line/flags.h"
#include "cli/inputs/compare_inputs.h"
#include "engine/base/status.h"
#include "engine/compare/ranks/compared_part.h"

namespace msprobe::cli {

class PartFlag {
 public:
  void Add(Flags& flags);
  bool given() const { return !text_.empty(); }
  // kInvalidArgument for a text that is not I/N with I from 1 to N.
  Status Parse();
  // Whether this process finds out that two runs on equally many ranks are in different layouts:
  // all ranks are read for that, which one of the processes does.
  bool asks_for_layouts() const { return index_ == 1; }
  // Leaves the pairs of this part in `paired`; all are in the result. Error: sides that are joined.
  Result<compare::ComparedPart> Take(const std::string& target, const std::string& golden,
                                     PairedDumps* paired) const;
  // There are more parts than ranks: a file without a rank.
  static Result<int> EndEmpty(const compare::ComparedPart& part, const std::string& folder,
                              Console& out);

 private:
  std::string text_;
  int64_t index_ = 1, count_ = 1;
};

}  // namespace msprobe::cli
