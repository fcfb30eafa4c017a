#include "engine/dump/write/provenance.h"

#include <algorithm>
#include <string_view>

#include "engine/base/file.h"
#include "engine/base/text.h"

namespace msprobe::dump {
namespace {

constexpr int kMaxParents = 64;
constexpr size_t kLargestFile = 64 << 20;  // packed-refs of the largest repositories

std::string Contents(const std::string& path) {
  const Result<MappedFile> file = MappedFile::Open(path);
  return file.ok() && file->bytes().size() <= kLargestFile ? std::string(file->bytes())
                                                           : std::string();
}

bool IsRevision(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string Resolved(const std::string& directory, std::string_view path) {
  return path.starts_with('/') ? std::string(path) : JoinPath(directory, path);
}

// The folder that holds HEAD: ".git" itself, or the folder that the ".git" file of a worktree
// names.
std::string GitFolder(const std::string& directory) {
  std::string dot_git = JoinPath(directory, ".git");
  if (IsDirectory(dot_git)) return dot_git;
  const std::string text = Contents(dot_git);
  constexpr std::string_view kPrefix = "gitdir: ";
  if (!text.starts_with(kPrefix)) return {};
  return Resolved(directory, Trim(std::string_view(text).substr(kPrefix.size())));
}

// A reference out of packed-refs: lines of "<revision> <name>".
std::string Packed(const std::string& folder, std::string_view name) {
  const std::string text = Contents(JoinPath(folder, "packed-refs"));
  for (const std::string_view line : Split(text, '\n')) {
    const size_t blank = line.find(' ');
    if (blank != std::string_view::npos && line.substr(blank + 1) == name &&
        IsRevision(line.substr(0, blank)))
      return std::string(line.substr(0, blank));
  }
  return {};
}

}  // namespace

std::string GitRevision(const std::string& directory) {
  std::string folder, place = directory;
  for (int i = 0; i < kMaxParents && folder.empty(); ++i) {
    folder = GitFolder(place);
    const std::string parent = DirectoryName(place);
    if (parent == place || parent.empty()) break;
    place = parent;
  }
  if (folder.empty()) return {};
  const std::string head = Contents(JoinPath(folder, "HEAD"));
  const std::string_view text = Trim(head);
  if (IsRevision(text)) return std::string(text);
  constexpr std::string_view kPrefix = "ref: ";
  if (!text.starts_with(kPrefix)) return {};
  const std::string_view name = text.substr(kPrefix.size());
  if (!name.starts_with("refs/") || name.find("..") != std::string_view::npos) return {};
  // The references of a worktree are in the repository to which it belongs.
  const std::string common_file = Contents(JoinPath(folder, "commondir"));
  const std::string common = common_file.empty() ? folder : Resolved(folder, Trim(common_file));
  for (const std::string& where : {folder, common}) {
    const std::string loose = Contents(JoinPath(where, name));
    if (IsRevision(Trim(loose))) return std::string(Trim(loose));
  }
  return Packed(common, name);
}

}  // namespace msprobe::dump
