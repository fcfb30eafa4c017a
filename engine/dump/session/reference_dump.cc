#include "engine/dump/session/reference_dump.h"

#include <fmt/format.h>

#include <filesystem>

namespace msprobe::dump {
namespace {

const DumpLocation* Choose(const std::vector<DumpLocation>& dumps, int64_t step, int rank) {
  const DumpLocation* only = nullptr;
  int candidates = 0, exact = 0;
  for (const DumpLocation& dump : dumps) {
    if (dump.step != step && dump.step >= 0) continue;
    ++candidates;
    exact += dump.rank == rank;
    if (only == nullptr || dump.rank == rank) only = &dump;
  }
  if (exact == 1) return only;
  return candidates == 1 && (only->rank < 0 || rank < 0) ? only : nullptr;
}

// Whether a run that writes to `dump_path` would overwrite the reference dump `file`.
bool WritesOver(const std::string& dump_path, const std::string& file) {
  std::error_code error;  // set if a folder does not exist: then the two are different
  return std::filesystem::equivalent(dump_path, DirectoryName(DirectoryName(DirectoryName(file))),
                                     error);
}

}  // namespace

Result<std::vector<DumpLocation>> CheckReference(std::string_view key, const std::string& path,
                                                 const std::string& dump_path) {
  const std::string named = fmt::format("\"{}\" of the configuration names it", key);
  Result<std::vector<DumpLocation>> dumps = FindDumps(path);
  if (!dumps.ok()) return Status(dumps.status()).Hint(named);
  if (dumps->empty()) {
    return NotFound(path)
        .Says("holds no dump")
        .Expected("an earlier dump of this program: step0/rank0/dump.json in it")
        .Hint(named);
  }
  if (WritesOver(dump_path, dumps->front().path)) {
    return Status(ErrorCode::kInvalidArgument)
        .At(path)
        .Says("this run would write over the dump that it is compared with")
        .Hint("choose another \"dump_path\"");
  }
  return dumps;
}

Result<std::optional<DumpLocation>> FindReference(const std::string& path, int64_t step,
                                                  std::optional<int> rank) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<DumpLocation> dumps, FindDumps(path));
  const DumpLocation* location = Choose(dumps, step, rank.value_or(-1));
  return location == nullptr ? std::nullopt : std::optional(*location);
}

}  // namespace msprobe::dump
