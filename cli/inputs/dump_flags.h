// Flags that say where the tensor files of the two dumps are, when they were moved.
//
//   dumps_.Add(flags);                                                     // in AddFlags
//   MSPROBE_ASSIGN_OR_RETURN(Dump target, dumps_.Read(true, pair, &budget));
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line/flags.h"
#include "cli/inputs/compare_inputs.h"
#include "engine/base/status.h"
#include "engine/compare/layouts/join_ranks.h"
#include "engine/compare/ranks/rank_copy.h"
#include "engine/dump/read/reader.h"

namespace msprobe::cli {

class DumpFlags {
 public:
  void Add(Flags& flags) {
    flags.Text("--target-data", &target_, "the folder with the target's tensor files"_t)
        .TypeName("FOLDER");
    flags.Text("--golden-data", &golden_, "the folder with the golden's tensor files"_t)
        .TypeName("FOLDER");
    flags.Switch("--no-tensor-files", &no_files_,
                 "do not read tensor files: compare statistics or checksums"_t);
  }
  bool given() const { return !target_.empty() || !golden_.empty(); }
  bool no_files() const { return no_files_; }
  // Of a dump that is one of several ranks.
  ReadOptions OptionsOfRank() const {
    ReadOptions options;
    if (no_files_) options.tensor_folder = "";
    return options;
  }
  // From now on the dumps are read from copies, which lie in `folder`: there is one of each.
  void ReadFrom(std::vector<compare::RankCopy> copies, std::string folder) {
    for (compare::RankCopy& copy : copies) copies_.emplace(copy.path, std::move(copy));
    folder_ = std::move(folder);
  }

  // Reads one side of the pair, which is one dump.
  Result<Dump> Read(bool is_target, const DumpPair& pair, MemoryBudget* budget) const {
    const std::string& folder = is_target ? target_ : golden_;
    ReadOptions options;
    if (no_files_ || !folder.empty()) options.tensor_folder = no_files_ ? "" : folder;
    return Read(is_target ? pair.target : pair.golden, budget, options);
  }

  // Reads a side that has several ranks. Their elements are read only to tell which rank is wrong.
  Result<std::deque<compare::layouts::RankDump>> ReadRanks(
      const std::vector<DumpPair::RankPath>& paths, MemoryBudget* budget) const {
    std::deque<compare::layouts::RankDump> ranks;
    for (const DumpPair::RankPath& rank : paths) {
      MSPROBE_ASSIGN_OR_RETURN(Dump dump, Read(rank.path, budget, OptionsOfRank()));
      ranks.push_back({rank.rank, std::move(dump)});
    }
    return ranks;
  }

 private:
  Result<Dump> Read(const std::string& path, MemoryBudget* budget,
                    const ReadOptions& options) const {
    const auto copy = copies_.find(path);
    return copy == copies_.end() ? dump::ReadDump(path, budget, options)
                                 : compare::ReadRankCopy(copy->second, folder_, budget, options);
  }

  std::string target_, golden_;
  bool no_files_ = false;
  std::map<std::string, compare::RankCopy> copies_;  // by the path of the dump
  std::string folder_;                               // of the copies
};

}  // namespace msprobe::cli
