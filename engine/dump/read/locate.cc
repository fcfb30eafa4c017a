// Where the dumps below a path are: reader.h's FindDumps and LocateDump.
#include <algorithm>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/dump/graphs/graph_folder.h"
#include "engine/dump/read/file_kind.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/tag_folder.h"
#include "engine/dump/tensors/tensor_folder.h"
#include "engine/model/names.h"

namespace msprobe::dump {
namespace {

constexpr std::string_view kFileNames[] = {"dump.json", "debug.json"};

// Whether the file can be a dump. Not: tensor files, of which a folder has thousands, and other
// files beside a dump.
bool IsCandidate(std::string_view name) {
  for (const std::string_view end : {".npy", ".pt", ".pth", ".safetensors", ".csv", ".py"}) {
    if (name.ends_with(end)) return false;
  }
  return name != "stack.json" && name != "construct.json" && !name.ends_with("weights.json");
}

// The dump files directly in `folder`: dump.json or debug.json when it is there, else all
// files that read as a dump.
Result<std::vector<std::string>> DumpFilesIn(const std::string& folder) {
  constexpr size_t kMaxLooks = 256;  // files; a large folder of other files is not searched
  for (const std::string_view name : kFileNames) {
    std::string path = JoinPath(folder, name);
    if (IsLink(path)) {
      return InvalidArgument("{} is a symbolic link: links inside a dump are not followed"_t(path))
          .Hint("name the file it points to"_t);
    }
    if (!Exists(path)) continue;
    if (IsDirectory(path)) return InvalidDump(path).Expected("a file"_t).Found("a folder"_t);
    // The path may be a pipe or a device: opening it gives an error, for this rank only.
    return std::vector<std::string>{std::move(path)};
  }
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  std::vector<std::string> found;
  size_t looks = 0;
  for (const std::string& name : names) {
    if (!IsCandidate(name) || ++looks > kMaxLooks) continue;
    const FileKind kind = KindOfFileIn(folder, name);
    if (kind == FileKind::kPkl || kind == FileKind::kDumpJson)
      found.push_back(JoinPath(folder, name));
  }
  return found;
}

// "rank", "rank3" and "proc123" hold one dump each.
bool IsRankFolder(std::string_view name) {
  return name == "rank" || NumberAfter(name, "rank") >= 0 || NumberAfter(name, "proc") >= 0;
}

Status AddRanks(const std::string& folder, int step, std::vector<DumpLocation>* found) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  const size_t before = found->size();
  bool lines = false;
  for (const std::string& name : names) {
    const std::string rank = JoinPath(folder, name);
    if (!IsRankFolder(name) || !IsDirectory(rank)) continue;
    Result<std::vector<std::string>> files = DumpFilesIn(rank);
    if (!files.ok()) {  // a link in place of the dump: an error for this rank only
      found->push_back({rank, step, static_cast<int>(NumberAfter(name, "rank")), files.status()});
      continue;
    }
    for (std::string& file : *files) {
      lines = lines || (BaseName(file) != kFileNames[0] && BaseName(file) != kFileNames[1]);
      found->push_back({std::move(file), step, static_cast<int>(NumberAfter(name, "rank"))});
    }
  }
  // ptdbg_ascend without a device writes rank<process id>: a single such folder has no rank.
  if (lines && found->size() == before + 1) found->back().rank = -1;
  return Status::Ok();
}

// Ranks and steps with ranks directly below `folder`.
Status AddBelow(const std::string& folder, std::vector<DumpLocation>* found) {
  MSPROBE_RETURN_IF_ERROR(
      AddRanks(folder, static_cast<int>(NumberAfter(BaseName(folder), "step")), found));
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  for (const std::string& name : names) {
    const int64_t step = NumberAfter(name, "step");
    const std::string below = JoinPath(folder, name);
    if (step < 0 || !IsDirectory(below)) continue;
    MSPROBE_RETURN_IF_ERROR(AddRanks(below, static_cast<int>(step), found));
    // In the manual of ptdbg_ascend the folder with the version is inside the folder of the step.
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> inner, ListDirectory(below));
    for (const std::string& tag : inner) {
      const std::string path = JoinPath(below, tag);
      if (IsTagFolder(tag) && IsDirectory(path))
        MSPROBE_RETURN_IF_ERROR(AddRanks(path, static_cast<int>(step), found));
    }
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
    return NotFound(path).Expected("a dump.json, or a folder with dumps (step0/rank0/dump.json)"_t);
  if (!IsDirectory(path)) {
    found.push_back(Located(path));
    return found;
  }
  MSPROBE_ASSIGN_OR_RETURN(std::vector<std::string> files, DumpFilesIn(path));
  if (!files.empty()) {
    for (std::string& file : files) found.push_back(Located(std::move(file)));
    return found;
  }
  MSPROBE_RETURN_IF_ERROR(AddBelow(path, &found));
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
  for (const std::string& name : names) {
    const std::string below = JoinPath(path, name);
    if (IsTagFolder(name) && IsDirectory(below)) MSPROBE_RETURN_IF_ERROR(AddBelow(below, &found));
  }
  if (found.empty()) {
    for (GraphIteration& graph : FindGraphIterations(path)) {
      found.push_back({std::move(graph.path), graph.iteration, graph.rank});
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const DumpLocation& a, const DumpLocation& b) {
    return a.step != b.step ? a.step < b.step : a.rank < b.rank;
  });
  if (found.empty() && HoldsTensorFiles(path)) found.push_back({.path = path});
  return found;
}

Result<std::string> LocateDump(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<DumpLocation> found, FindDumps(path));
  if (found.empty()) {
    return NotFound(path)
        .Says("holds no dump"_t)
        .Expected("dump.json in it, or in a folder rank, rank0 or proc123 below it"_t);
  }
  if (found.size() > 1) {
    // Several files of one folder are listed with their own names.
    const bool beside = DirectoryName(found[0].path) == DirectoryName(found[1].path);
    std::string list;
    for (size_t i = 0; i < std::min<size_t>(found.size(), 3); ++i) {
      list += (i > 0 ? ", " : "") + (beside ? found[i].path : DirectoryName(found[i].path));
    }
    if (found.size() > 3) list += ", ...";
    return Status(ErrorCode::kInvalidArgument)
        .At(path)
        .Expected("one dump"_t)
        .Found(std::to_string(found.size()) + ": " + list)
        .Hint(beside ? "name one of these files"_t : "name one of these folders"_t);
  }
  MSPROBE_RETURN_IF_ERROR(found[0].refused);
  return found[0].path;
}

}  // namespace msprobe::dump
