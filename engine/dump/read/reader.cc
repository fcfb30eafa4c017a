#include "engine/dump/read/reader.h"

#include <fmt/format.h>

#include "engine/base/messages/message.h"
#include "engine/base/pages.h"
#include "engine/dump/graphs/graph_folder.h"
#include "engine/dump/pkl/pkl_file.h"
#include "engine/dump/read/dump_file.h"
#include "engine/dump/read/file_kind.h"
#include "engine/dump/read/side_files.h"
#include "engine/dump/tensors/tensor_data.h"
#include "engine/dump/tensors/tensor_folder.h"

namespace msprobe::dump {
namespace {

constexpr char kTensorFolder[] = "dump_tensor_data";

// A pack that cannot be read costs the elements of its tensors only.
void AddPack(Dump* dump) {
  auto archives = std::make_shared<TensorArchives>();
  if (const Status opened = archives->OpenPack(dump->tensor_folder); !opened.ok()) {
    dump->AddNote(opened.AsMessage());
  } else if (const formats::TensorPack* pack = archives->pack()) {
    if (pack->ignored_bytes() > 0)
      dump->AddNote(
          "{}: {} bytes of an unfinished tensor ignored"_t(pack->path(), pack->ignored_bytes()));
    dump->archives = std::move(archives);
  }
}

Status ReadJson(MappedFile file, const ReadOptions& options, MemoryShare* memory, Dump* dump) {
  std::vector<std::string_view> stack_keys;
  DumpFileLayout layout;
  const uint64_t size = file.bytes().size();
  MSPROBE_RETURN_IF_ERROR(ReadDumpFile(dump->path, file.bytes(), dump, &stack_keys, &layout,
                                       file.bytes().size() >= kLargeFile, memory,
                                       options.parse_numbers));
  dump->files.push_back(std::move(file));
  if (options.tensor_folder) {
    dump->tensor_folder = *options.tensor_folder;
    if (dump->tensor_folder.empty() && dump->task == Task::kTensor) dump->task = Task::kStatistics;
  } else if (std::string folder = JoinPath(dump->folder, kTensorFolder); IsLink(folder)) {
    dump->AddNote("{} is a symbolic link: links inside a dump are not followed"_t(folder));
  } else if (IsDirectory(folder)) {
    dump->tensor_folder = std::move(folder);
  }
  if (!dump->tensor_folder.empty()) AddPack(dump);
  MSPROBE_RETURN_IF_ERROR(memory->Holds(MemoryOf(*dump), size));
  if (!options.side_files) return Status::Ok();
  MSPROBE_RETURN_IF_ERROR(ReadStacks(stack_keys, dump, memory));
  return ReadParents(dump, memory);
}

}  // namespace

Result<Dump> ReadDump(const std::string& path, MemoryBudget* budget, const ReadOptions& options) {
  if (options.tensor_folder && !options.tensor_folder->empty() &&
      !IsDirectory(*options.tensor_folder)) {
    return NotFound(*options.tensor_folder)
        .Expected("the folder with the tensor files of {}"_t(path));
  }
  Dump dump;
  MSPROBE_ASSIGN_OR_RETURN(dump.path, LocateDump(path));
  if (IsDirectory(dump.path)) {
    return IsGraphIteration(dump.path) ? ReadGraphIteration(dump.path)
                                       : ReadTensorFolder(dump.path);
  }
  dump.folder = DirectoryName(dump.path);
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(dump.path));
  const FileKind kind = KindOf(file.bytes());
  const uint64_t size = file.bytes().size();
  MemoryShare memory(budget, dump.path);
  if (kind == FileKind::kTensor) return ReadTensorFolder(dump.path);
  MSPROBE_RETURN_IF_ERROR(kind == FileKind::kPkl
                              ? ReadPklFile(std::move(file), options, &memory, &dump)
                              : ReadJson(std::move(file), options, &memory, &dump));
  if (options.side_files) {
    MSPROBE_RETURN_IF_ERROR(ReadWeights(&dump));
    if (kind != FileKind::kPkl) MSPROBE_RETURN_IF_ERROR(ReadSignatures(&dump));
    if (kind != FileKind::kPkl) MSPROBE_RETURN_IF_ERROR(ReadCompiledCode(&dump));
  }
  MSPROBE_RETURN_IF_ERROR(memory.Holds(MemoryOf(dump), size));
  // Side files are rarely read again; a small dump file is read again as a whole.
  for (const MappedFile& read : dump.files) {
    if (read.path() != dump.path || read.bytes().size() >= kLargeFile) ForgetPages(read.bytes());
  }
  return dump;
}

}  // namespace msprobe::dump
