// The folders of .npy files beside a pkl file.
#include <fmt/format.h>

#include <algorithm>

#include "engine/base/messages/message.h"
#include "engine/dump/pkl/pkl_file.h"
#include "engine/model/text_arena.h"

namespace msprobe::dump {
namespace {

// "body" of "body.pkl".
std::string_view StemOf(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == name.npos || dot == 0 ? name : name.substr(0, dot);
}

// The folder with the stem of the file; if it does not exist, the folders of ptdbg_ascend 0.1
// ("body_20230104_134530") in the order of their times.
Result<std::vector<std::string>> DataFolders(const Dump& dump) {
  const std::string file = BaseName(dump.path);
  const std::string stem(StemOf(file));
  const auto is_folder = [&](const std::string& name) {
    const std::string path = JoinPath(dump.folder, name);
    return IsDirectory(path) && !IsLink(path);
  };
  if (stem != file && is_folder(stem)) return std::vector<std::string>{stem};
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(dump.folder));
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const bool timed = name.size() > stem.size() + 1 && name.starts_with(stem + "_") &&
                       name.find_first_not_of("0123456789_", stem.size()) == name.npos;
    if (timed && is_folder(name)) found.push_back(name);
  }
  return found;
}

// Index of the run that wrote `folder`; the last run if no run has a folder of this name.
size_t RunOf(const std::string& folder, const std::vector<std::string>& folders, size_t runs) {
  const size_t end = folder.find_last_not_of('/');
  const std::string name = BaseName(folder.substr(0, end + 1));
  const auto found = std::find(folders.begin(), folders.end(), name);
  const bool known = found != folders.end() && folders.size() == runs;
  return known ? static_cast<size_t>(found - folders.begin()) : runs - 1;
}

}  // namespace

Status ReadPklFile(MappedFile file, const ReadOptions& options, MemoryShare* memory, Dump* dump) {
  std::vector<int32_t> segments;
  MSPROBE_RETURN_IF_ERROR(ReadPklLines(dump->path, file.bytes(), dump, &segments, memory));
  dump->files.push_back(std::move(file));
  if (dump->task == Task::kTensor) return Status::Ok();  // the elements are in the lines
  if (options.tensor_folder && options.tensor_folder->empty()) return Status::Ok();
  MSPROBE_ASSIGN_OR_RETURN(std::vector<std::string> folders, DataFolders(*dump));
  const auto runs = static_cast<size_t>(*std::max_element(segments.begin(), segments.end())) + 1;
  size_t only_run = runs;  // index of the only run that has tensors; `runs`: all runs have some
  if (options.tensor_folder) {
    if (runs > 1) {
      only_run = RunOf(*options.tensor_folder, folders, runs);
      dump->AddNote(only_run + 1 == runs
                        ? "{} runs in one file: the tensors of the last are in {}"_t(
                              runs, *options.tensor_folder)
                        : "{} runs in one file: the tensors of the {}. are in {}"_t(
                              runs, only_run + 1, *options.tensor_folder));
    }
    folders = {*options.tensor_folder};
  }
  if (folders.empty()) return Status::Ok();
  dump->task = Task::kTensor;
  const bool one = folders.size() == 1;
  dump->tensor_folder = options.tensor_folder ? folders[0]
                        : one                 ? JoinPath(dump->folder, folders[0])
                                              : dump->folder;
  if (!one && runs != folders.size()) {
    dump->AddNote(runs == 1 ? "{} folders of tensors for 1 run: all are looked for in {}"_t(
                                  folders.size(), folders.back())
                            : "{} folders of tensors for {} runs: all are looked for in {}"_t(
                                  folders.size(), runs, folders.back()));
  }
  TextArena arena;
  for (Leaf& leaf : dump->leaves) {
    if (leaf.kind != LeafKind::kTensor) continue;
    if (only_run < runs && static_cast<size_t>(segments[leaf.record]) != only_run) continue;
    const size_t run =
        runs == folders.size() ? static_cast<size_t>(segments[leaf.record]) : folders.size() - 1;
    leaf.data_name = arena.Copy(one ? fmt::format("{}.npy", leaf.name)
                                    : fmt::format("{}/{}.npy", folders[run], leaf.name));
  }
  arena.Release(&dump->arena);
  return Status::Ok();
}

}  // namespace msprobe::dump
