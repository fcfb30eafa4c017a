#include "engine/dump/session/reference_dump.h"

#include <fmt/format.h>

#include <filesystem>

#include "engine/base/file.h"

namespace msprobe::dump {
namespace {

const DumpLocation* Choose(const std::vector<DumpLocation>& dumps, int rank) {
  const DumpLocation* only = nullptr;
  int candidates = 0, exact = 0;
  for (const DumpLocation& dump : dumps) {
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
  const Message named = "\"{}\" of the configuration names it"_t(key);
  Result<std::vector<DumpLocation>> dumps = FindDumps(path);
  if (!dumps.ok()) return Status(dumps.status()).Hint(named);
  if (dumps->empty()) {
    return NotFound(path)
        .Says("holds no dump"_t)
        .Expected("an earlier dump of this program: step0/rank0/dump.json in it"_t)
        .Hint(named);
  }
  if (WritesOver(dump_path, dumps->front().path)) {
    return Status(ErrorCode::kInvalidArgument)
        .At(path)
        .Says("this run would write over the dump that it is compared with"_t)
        .Hint("choose another \"dump_path\""_t);
  }
  return dumps;
}

Result<std::vector<DumpLocation>> DumpsOfStep(const std::string& path, int64_t step) {
  if (const std::string own = JoinPath(path, fmt::format("step{}", step)); IsDirectory(own)) {
    Result<std::vector<DumpLocation>> dumps = FindDumps(own);
    if (!dumps.ok() || !dumps->empty()) return dumps;
  }
  MSPROBE_ASSIGN_OR_RETURN(std::vector<DumpLocation> dumps, FindDumps(path));
  std::erase_if(dumps, [&](const DumpLocation& d) { return d.step != step && d.step >= 0; });
  return dumps;
}

Result<std::optional<DumpLocation>> FindReference(const std::string& path, int64_t step,
                                                  std::optional<int> rank) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<DumpLocation> dumps, DumpsOfStep(path, step));
  const DumpLocation* location = Choose(dumps, rank.value_or(-1));
  return location == nullptr ? std::nullopt : std::optional(*location);
}

Message WhyNoReference(const std::string& path, int64_t step) {
  const Result<std::vector<DumpLocation>> dumps = DumpsOfStep(path, step);
  if (!dumps.ok()) return dumps.status().AsMessage();
  if (dumps->empty()) return "{} holds no dump of this step"_t(path);
  if (dumps->size() == 1)
    return "{} holds 1 dump of this step and not exactly one of this rank"_t(path);
  return "{} holds {} dumps of this step and not exactly one of this rank"_t(path, dumps->size());
}

}  // namespace msprobe::dump
