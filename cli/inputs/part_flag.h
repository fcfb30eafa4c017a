// --part of `msprobe compare`: this process compares some ranks of two runs, other processes the
// others, and `msprobe merge_result` reports on all of them.
//
//   PartFlag part_;
//   part_.Add(flags);                                            // in AddFlags
//   MSPROBE_RETURN_IF_ERROR(part_.Parse());
//   compare::ComparedPart part = part_.Take(target, golden, &paired);
//   for (const DumpPair& pair : paired.pairs) Print("{}", pair.target);   // those of this part
//
// Ranks that are joined (compare/layouts) are compared all at once: a part copies its ranks without
// their elements, and `msprobe merge_result` joins and compares the copies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command_line/console.h"
#include "cli/command_line/flags.h"
#include "cli/inputs/compare_inputs.h"
#include "cli/inputs/dump_flags.h"
#include "engine/base/status.h"
#include "engine/compare/ranks/compared_part.h"
#include "engine/model/memory_budget.h"

namespace msprobe::cli {

class PartFlag {
 public:
  void Add(Flags& flags);
  bool given() const { return !text_.empty(); }
  // kInvalidArgument for a text that is not I/N with I from 1 to N.
  Status Parse();
  // Part 1 finds out whether two runs on equally many ranks are in different layouts: all ranks are
  // read for that. The other parts do what its file in `folder` says; without that file they
  // compare rank by rank, and merge_result says so where part 1 does not.
  void ChooseLayouts(const std::string& target, const std::string& golden,
                     const std::string& folder, PairOptions* options) const;
  // Leaves the pairs of this part in `paired`; all are in the result. None of them is joined.
  compare::ComparedPart Take(const std::string& target, const std::string& golden,
                             PairedDumps* paired) const;
  // Where ranks are joined: copies those of this part into `folder`. Errors: those of KnowFile. A
  // rank that cannot be read has its error in the result.
  Result<compare::ComparedPart> Copy(const std::string& target, const std::string& golden,
                                     const PairedDumps& paired, const DumpFlags& dumps,
                                     const std::string& folder, MemoryBudget::Options memory,
                                     Console& out) const;
  // There are more parts than ranks: a file without a rank.
  static Result<int> EndEmpty(const compare::ComparedPart& part, const std::string& folder,
                              Console& out);
  // Of Copy: writes the part, and says so; kExitError where a rank could not be copied.
  static Result<int> EndCopies(const compare::ComparedPart& part, const std::string& folder,
                               Console& out);

 private:
  const Flags* flags_ = nullptr;
  std::string text_;
  int64_t index_ = 1, count_ = 1;
};

// Whether some ranks are joined.
bool AreJoined(const PairedDumps& paired);

// A dump that is copied: its rank, and the name of its copy.
struct DumpToCopy {
  int rank = -1;
  std::string path, place;
};
// Each dump once. And the pairs that are made of the copies.
std::vector<DumpToCopy> DumpsToCopy(const PairedDumps& paired);
std::vector<compare::PairOfCopies> PlacesOf(const PairedDumps& paired);

// The flags of a comparison that all parts have alike, and what the files that they name hold now.
struct FlagsOfParts {
  std::vector<std::string> words;
  std::vector<compare::KnownFile> named;
};
Result<FlagsOfParts> FlagsOfAllParts(const Flags& flags);

}  // namespace msprobe::cli
