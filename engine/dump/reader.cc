#include "engine/dump/reader.h"

#include <algorithm>

#include "engine/dump/dump_file.h"
#include "engine/dump/names.h"
#include "engine/dump/side_files.h"

namespace msprobe {
namespace {

constexpr std::string_view kFileNames[] = {"dump.json", "debug.json"};

// The dump file directly in `folder`; "" when there is none.
std::string DumpFileIn(const std::string& folder) {
  for (const std::string_view name : kFileNames) {
    std::string path = JoinPath(folder, name);
    if (IsRegularFile(path)) return path;
  }
  return "";
}

// "rank", "rank3" and "proc123" hold one dump each.
bool IsRankFolder(std::string_view name) {
  return name == "rank" || NumberAfter(name, "rank") >= 0 || NumberAfter(name, "proc") >= 0;
}

Status AddRanks(const std::string& folder, int step, std::vector<DumpLocation>* found) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  for (const std::string& name : names) {
    if (!IsRankFolder(name)) continue;
    std::string file = DumpFileIn(JoinPath(folder, name));
    if (!file.empty())
      found->push_back({std::move(file), step, static_cast<int>(NumberAfter(name, "rank"))});
  }
  return Status::Ok();
}

// Step and rank of a single file, from the folders it lies in.
DumpLocation Located(std::string file) {
  const std::string folder = DirectoryName(file);
  DumpLocation location{.path = std::move(file)};
  location.rank = static_cast<int>(NumberAfter(BaseName(folder), "rank"));
  location.step = static_cast<int>(NumberAfter(BaseName(DirectoryName(folder)), "step"));
  return location;
}

}  // namespace

Result<std::vector<DumpLocation>> FindDumps(const std::string& path) {
  std::vector<DumpLocation> found;
  if (!Exists(path))
    return NotFound(path).Expected("a dump.json, or a folder with dumps (step0/rank0/dump.json)");
  if (!IsDirectory(path)) {
    found.push_back(Located(path));
    return found;
  }
  if (std::string file = DumpFileIn(path); !file.empty()) {
    found.push_back(Located(std::move(file)));
    return found;
  }
  MSPROBE_RETURN_IF_ERROR(
      AddRanks(path, static_cast<int>(NumberAfter(BaseName(path), "step")), &found));
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
  for (const std::string& name : names) {
    const int64_t step = NumberAfter(name, "step");
    const std::string folder = JoinPath(path, name);
    if (step >= 0 && IsDirectory(folder))
      MSPROBE_RETURN_IF_ERROR(AddRanks(folder, static_cast<int>(step), &found));
  }
  std::stable_sort(found.begin(), found.end(), [](const DumpLocation& a, const DumpLocation& b) {
    return a.step != b.step ? a.step < b.step : a.rank < b.rank;
  });
  return found;
}

Result<std::string> LocateDump(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<DumpLocation> found, FindDumps(path));
  if (found.empty()) {
    return NotFound(path)
        .Says("holds no dump")
        .Expected("dump.json in it, or in a folder rank, rank0 or proc123 below it");
  }
  if (found.size() > 1) {
    std::string folders;
    for (size_t i = 0; i < std::min<size_t>(found.size(), 3); ++i) {
      folders += (i > 0 ? ", " : "") + DirectoryName(found[i].path);
    }
    if (found.size() > 3) folders += ", ...";
    return Status(ErrorCode::kInvalidArgument)
        .At(path)
        .Expected("one dump")
        .Found(std::to_string(found.size()) + ": " + folders)
        .Hint("name one of these folders");
  }
  return found[0].path;
}

Result<Dump> ReadDump(const std::string& path) {
  Dump dump;
  MSPROBE_ASSIGN_OR_RETURN(dump.path, LocateDump(path));
  dump.folder = DirectoryName(dump.path);
  if (std::string folder = JoinPath(dump.folder, "dump_tensor_data"); IsDirectory(folder)) {
    dump.tensor_folder = std::move(folder);
  }
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(dump.path));
  std::vector<std::string_view> stack_keys;
  DumpFileLayout layout;
  MSPROBE_RETURN_IF_ERROR(ReadDumpFile(dump.path, file.bytes(), &dump, &stack_keys, &layout));
  dump.files.push_back(std::move(file));
  MSPROBE_RETURN_IF_ERROR(ReadStacks(stack_keys, &dump));
  MSPROBE_RETURN_IF_ERROR(ReadParents(&dump));
  MSPROBE_RETURN_IF_ERROR(ReadWeights(&dump));
  return dump;
}

}  // namespace msprobe
