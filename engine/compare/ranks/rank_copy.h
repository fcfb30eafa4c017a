// A copy of the dump of one rank, without the elements of its tensors, in the folder of a result:
// what joining (compare/layouts) needs of a rank, for a machine that does not have its dump.
//
//   const std::string place = "target_step0_rank3";
//   MSPROBE_ASSIGN_OR_RETURN(RankCopy copy, CopyRank("new/step0/rank3/dump.json", "out", place));
//   MSPROBE_ASSIGN_OR_RETURN(Dump dump, ReadRankCopy(copy, "out"));
//
// A copy has the files that a reader of the dump reads, in folders of the same two names:
// out/compare_ranks/target_step0_rank3/step0/rank3/dump.json. Weights with which the next step
// began are those that this one left, and are copied, too: .../step1/rank3/weights.json.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/model/memory_budget.h"
#include "engine/model/read_options.h"
#include "engine/model/table.h"

namespace msprobe::compare {

inline constexpr char kRankCopies[] = "compare_ranks";  // the folder of all copies

// A file, and what its content was.
struct KnownFile {
  std::string name;
  int64_t bytes = 0, crc = 0;
};
// Of the bytes of a file. `path`: for errors of reading it.
Result<KnownFile> KnowFile(const std::string& path);

struct RankCopy {
  std::string path;              // of the dump that was copied, as it was typed
  std::string dump;              // the same as ReadDump names it
  std::string tensor_folder;     // of its elements, which are not copied; "": it has none
  std::optional<Message> note;   // Dump::note of the dump; nullopt: as the copy says
  std::string place;             // the folder of this copy, below that of all copies
  std::vector<KnownFile> files;  // below it; the dump is the first
  Status failed;                 // why there is no copy
};

// The files of a dump of which a copy consists, where they are. All but the first may be missing.
struct FileToCopy {
  std::string path, name;  // RankCopy::files has the name
};
std::vector<FileToCopy> FilesToCopy(const std::string& dump);

// A copy of what another machine has of these files. Replaces a copy that is there. Errors: kIo.
struct ContentOfCopy {
  std::string name;
  std::string_view bytes;
};
Result<RankCopy> WriteRankCopy(const std::string& path, const std::string& folder,
                               const std::string& place, std::span<const ContentOfCopy> files);

// Replaces a copy that is there. Errors: those of ReadDump, which must be able to read the dump;
// kUnsupported for a dump that is no .json file; kIo.
Result<RankCopy> CopyRank(const std::string& path, const std::string& folder,
                          const std::string& place, MemoryBudget* budget = nullptr,
                          const ReadOptions& options = {});

// As ReadDump would read the dump that was copied: with its path, and its elements where it was.
// Errors: `failed`; kInvalidDump where a file is not as it was written; kNotFound where elements
// are not on this machine, unless `options` say that none are read.
Result<Dump> ReadRankCopy(const RankCopy& copy, const std::string& folder,
                          MemoryBudget* budget = nullptr, const ReadOptions& options = {});

// Whether the names in a copy, which may come from a damaged file, stay below its folder.
bool StaysInFolder(const RankCopy& copy);

}  // namespace msprobe::compare
