#include "engine/compare/ranks/rank_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/weights_file.h"
#include "engine/kernels/byte_checksums.h"

namespace msprobe::compare {
namespace {

constexpr std::string_view kWeights = "weights.json";
// What a reader looks for beside a dump.
constexpr std::string_view kBeside[] = {"stack.json", "construct.json", "signatures.json",
                                        "coverage.json", kWeights};

// The name of a file or folder, and nothing that leads elsewhere.
bool IsName(std::string_view name) {
  constexpr size_t kLongest = 255;
  const auto is_odd = [](char c) { return c == '/' || static_cast<unsigned char>(c) < ' '; };
  return !name.empty() && name != "." && name != ".." && name.size() <= kLongest &&
         std::ranges::none_of(name, is_odd);
}

// "step0/rank3" of "runs/new/step0/rank3": what readers know of a dump by its folder.
std::string FolderNames(const std::string& folder) {
  const auto name = [](const std::string& text) { return IsName(text) ? text : "run"; };
  return JoinPath(name(BaseName(DirectoryName(folder))), name(BaseName(folder)));
}

KnownFile Know(std::string name, std::string_view bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  return {.name = std::move(name),
          .bytes = static_cast<int64_t>(bytes.size()),
          .crc = kernels::UpdateCrc32(0, data, bytes.size())};
}

std::string FolderOf(const std::string& folder, const std::string& place) {
  return JoinPath(JoinPath(folder, kRankCopies), place);
}

Status CheckFile(const KnownFile& file, const RankCopy& copy, const std::string& folder) {
  const std::string name = fmt::format("{}/{}/{}", kRankCopies, copy.place, file.name);
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::OpenBelow(folder, name));
  const KnownFile found = Know("", mapped.bytes());
  if (found.bytes == file.bytes && found.crc == file.crc) return Status::Ok();
  return InvalidDump(JoinPath(folder, name))
      .Expected("the {} bytes that were copied of {}"_t(file.bytes, copy.dump))
      .Found("{} bytes, which are not these"_t(found.bytes))
      .Hint("compare its part once more: the copy is damaged"_t);
}

}  // namespace

Result<KnownFile> KnowFile(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return Know(path, file.bytes());
}

std::vector<FileToCopy> FilesToCopy(const std::string& dump) {
  const std::string folder = DirectoryName(dump), names = FolderNames(folder);
  std::vector<FileToCopy> files = {{dump, JoinPath(names, BaseName(dump))}};
  for (const std::string_view name : kBeside)
    files.push_back({JoinPath(folder, name), JoinPath(names, name)});
  const std::string next = dump::FolderOfNextStep(folder);
  if (!next.empty())
    files.push_back({JoinPath(next, kWeights), JoinPath(FolderNames(next), kWeights)});
  return files;
}

Result<RankCopy> WriteRankCopy(const std::string& path, const std::string& folder,
                               const std::string& place, std::span<const ContentOfCopy> files) {
  RankCopy copy{.path = path, .dump = path, .place = place};
  const std::string whole = FolderOf(folder, place);
  std::error_code not_there;
  std::filesystem::remove_all(whole, not_there);
  for (const ContentOfCopy& file : files) {
    const std::string to = JoinPath(whole, file.name);
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(DirectoryName(to)));
    MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(to, file.bytes));
    copy.files.push_back(Know(file.name, file.bytes));
  }
  return copy;
}

Result<RankCopy> CopyRank(const std::string& path, const std::string& folder,
                          const std::string& place, MemoryBudget* budget,
                          const ReadOptions& options) {
  MSPROBE_ASSIGN_OR_RETURN(const Dump dump, dump::ReadDump(path, budget, options));
  if (!dump.path.ends_with(".json")) {
    return Unsupported("{} is no dump.json: a part of ranks that are joined has only these"_t(path))
        .Hint("leave --part out: one process compares the runs"_t);
  }
  std::vector<MappedFile> mapped;
  std::vector<ContentOfCopy> files;
  for (const FileToCopy& file : FilesToCopy(dump.path)) {
    if (!files.empty() && !IsRegularFile(file.path)) continue;
    MSPROBE_ASSIGN_OR_RETURN(mapped.emplace_back(), MappedFile::Open(file.path));
    files.push_back({file.name, mapped.back().bytes()});
  }
  MSPROBE_ASSIGN_OR_RETURN(RankCopy copy, WriteRankCopy(path, folder, place, files));
  copy.dump = dump.path;
  copy.tensor_folder = dump.tensor_folder;
  copy.note = dump.note;
  return copy;
}

Result<Dump> ReadRankCopy(const RankCopy& copy, const std::string& folder, MemoryBudget* budget,
                          const ReadOptions& options) {
  if (!copy.failed.ok()) return copy.failed;
  for (const KnownFile& file : copy.files) MSPROBE_RETURN_IF_ERROR(CheckFile(file, copy, folder));
  ReadOptions own = options;
  if (!own.tensor_folder && !copy.tensor_folder.empty()) {
    if (!IsDirectory(copy.tensor_folder)) {
      return NotFound(copy.tensor_folder)
          .Expected("the elements of {}, which are not copied"_t(copy.dump))
          .Hint(
              "type the command where both runs can be read, or compare all parts once more with "
              "--no-tensor-files"_t);
    }
    own.tensor_folder = copy.tensor_folder;
  }
  const std::string path = JoinPath(FolderOf(folder, copy.place), copy.files[0].name);
  Result<Dump> dump = dump::ReadDump(path, budget, own);
  if (!dump.ok()) {
    Status failed = std::move(dump).status();
    if (failed.path() != path) return failed;
    const std::optional<uint64_t> offset = failed.offset();
    return std::move(failed).At(copy.dump, offset);
  }
  dump->path = copy.dump;
  if (copy.note) dump->note = *copy.note;
  return dump;
}

bool StaysInFolder(const RankCopy& copy) {
  const auto stays = [](const KnownFile& file) {
    const std::vector<std::string_view> names = Split(file.name, '/');
    return names.size() == 3 && std::ranges::all_of(names, IsName) && names[2].ends_with(".json");
  };
  return !copy.failed.ok() ||
         (IsName(copy.place) && !copy.files.empty() && std::ranges::all_of(copy.files, stays));
}

}  // namespace msprobe::compare
