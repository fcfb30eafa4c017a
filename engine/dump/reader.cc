#include "engine/dump/reader.h"

#include "engine/base/pages.h"
#include "engine/dump/dialect.h"
#include "engine/dump/dump_file.h"
#include "engine/dump/line_file.h"
#include "engine/dump/side_files.h"
#include "engine/dump/tensor_folder.h"

namespace msprobe {
namespace {

constexpr char kTensorFolder[] = "dump_tensor_data";
constexpr size_t kLargeFile = size_t{32} << 20;  // from here on pages are given back when read

Status ReadJson(MappedFile file, Dump* dump) {
  std::vector<std::string_view> stack_keys;
  DumpFileLayout layout;
  MSPROBE_RETURN_IF_ERROR(ReadDumpFile(dump->path, file.bytes(), dump, &stack_keys, &layout,
                                       file.bytes().size() >= kLargeFile));
  dump->files.push_back(std::move(file));
  if (std::string folder = JoinPath(dump->folder, kTensorFolder); IsLink(folder)) {
    dump->AddNote(folder + " is a symbolic link: links inside a dump are not followed");
  } else if (IsDirectory(folder)) {
    dump->tensor_folder = std::move(folder);
  }
  MSPROBE_RETURN_IF_ERROR(ReadStacks(stack_keys, dump));
  MSPROBE_RETURN_IF_ERROR(ReadParents(dump));
  return ReadWeights(dump);
}

}  // namespace

Result<Dump> ReadDump(const std::string& path) {
  Dump dump;
  MSPROBE_ASSIGN_OR_RETURN(dump.path, LocateDump(path));
  if (IsDirectory(dump.path)) return ReadTensorFolder(dump.path);
  dump.folder = DirectoryName(dump.path);
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(dump.path));
  const FileKind kind = KindOf(file.bytes());
  if (kind == FileKind::kTensor) return ReadTensorFolder(dump.path);
  MSPROBE_RETURN_IF_ERROR(kind == FileKind::kLines ? ReadLineFile(std::move(file), &dump)
                                                   : ReadJson(std::move(file), &dump));
  for (const MappedFile& large : dump.files) {
    if (large.bytes().size() >= kLargeFile) ForgetPages(large.bytes());
  }
  return dump;
}

}  // namespace msprobe
