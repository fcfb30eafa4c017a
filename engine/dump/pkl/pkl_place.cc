#include "engine/dump/pkl/pkl_place.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <set>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/dump/write/folder_claim.h"

namespace msprobe::dump {
namespace {

// Moves the content of the folder `below` in the tag folder to the same folder in a new tag folder:
// from "d/ptdbg_dump_v0.1/rank3" to "d/ptdbg_dump_v0.1_1/rank3", or "..._2/rank3" if that exists.
Status MoveAside(const std::string& tag_folder, const std::string& below) {
  const std::string folder = JoinPath(tag_folder, below);
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  if (names.empty()) return Status::Ok();
  std::string other;
  for (int i = 1; other.empty() || Exists(other); ++i)
    other = JoinPath(fmt::format("{}_{}", tag_folder, i), below);
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(other));
  for (const std::string& name : names) {
    const std::string from = JoinPath(folder, name);
    if (std::rename(from.c_str(), JoinPath(other, name).c_str()) != 0)
      return IoError(from, "rename"_t, errno);
  }
  Log(LogLevel::kWarning,
      "{} held an earlier dump, which is now in {}; another "
      "dump_tag keeps runs apart"_t(folder, other));
  return Status::Ok();
}

// "d/x_rank1.pkl" of "d/x.pkl".
std::string WithRank(const std::string& path, int rank) {
  const size_t slash = path.rfind('/');
  size_t dot = path.rfind('.');
  if (dot == path.npos || (slash != path.npos && dot < slash)) dot = path.size();
  return fmt::format("{}_rank{}{}", path.substr(0, dot), rank, path.substr(dot));
}

}  // namespace

Result<PklStyle> PlacePklFiles(PklStyle style, std::optional<int> rank) {
  if (style.tag_folder.empty()) {
    if (rank.value_or(0) <= 0 || style.file_for_each) return style;
    style.file = WithRank(style.file, *rank);
    const std::string_view stem = style.stem;  // the data folder is the stem and a time
    if (!style.data_folder.empty() && style.data != PklData::kStorages) {
      const std::string folder = style.data_folder;
      style.data_folder = fmt::format("{}_rank{}{}", folder.substr(0, stem.size()), *rank,
                                      folder.substr(stem.size()));
    } else if (style.data == PklData::kStorages) {
      style.data_folder = WithRank(style.data_folder, *rank);
    }
    return style;
  }
  const std::string wanted = fmt::format("rank{}", rank.value_or(0));
  const std::string given = ClaimFolder(style.tag_folder, style.step_folder, wanted);
  const std::string rank_folder = given == wanted ? wanted : fmt::format("rank{}", ::getpid());
  const std::string below = JoinPath(style.step_folder, rank_folder);
  const std::string folder = JoinPath(style.tag_folder, below);
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
  static auto* ours = new std::set<std::string>;  // never destroyed: used until the process ends
  if (ours->insert(folder).second) MSPROBE_RETURN_IF_ERROR(MoveAside(style.tag_folder, below));
  style.file = style.file_for_each ? folder : JoinPath(folder, style.stem + ".pkl");
  if (style.data == PklData::kNpy) style.data_folder = JoinPath(folder, style.stem);
  return style;
}

}  // namespace msprobe::dump
