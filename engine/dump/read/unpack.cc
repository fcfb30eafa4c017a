#include "engine/dump/read/unpack.h"

#include <fmt/format.h>

#include "engine/base/file.h"
#include "engine/dump/read/reader.h"
#include "engine/formats/tensors/npy.h"
#include "engine/formats/tensors/pt.h"
#include "engine/formats/tensors/tensor_pack.h"

namespace msprobe::dump {
namespace {

constexpr char kPackFolder[] = "dump_tensor_data";

Result<UnpackedTensors> UnpackOne(const std::string& path, const std::string& folder) {
  MSPROBE_ASSIGN_OR_RETURN(const formats::TensorPack pack,
                           formats::TensorPack::Open(DirectoryName(path), BaseName(path)));
  UnpackedTensors done{.pack = path, .folder = folder, .ignored_bytes = pack.ignored_bytes()};
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
  for (const formats::PackEntry& entry : pack.entries()) {
    MSPROBE_ASSIGN_OR_RETURN(const formats::TensorFile tensor, pack.Read(entry));
    const std::string file = JoinPath(folder, entry.name);
    MSPROBE_RETURN_IF_ERROR(entry.name.ends_with(".npy") ? formats::WriteNpy(file, tensor.view())
                                                         : formats::WritePt(file, tensor.view()));
    ++done.files;
    done.bytes += entry.size;
  }
  return done;
}

}  // namespace

std::string PackOf(const std::string& path) {
  if (IsRegularFile(path))
    return BaseName(path) == "dump.json" ? PackOf(DirectoryName(path)) : path;
  for (const std::string& folder : {path, JoinPath(path, kPackFolder)}) {
    if (std::string pack = JoinPath(folder, formats::kPackName); IsRegularFile(pack)) return pack;
  }
  return "";
}

Result<std::vector<UnpackedTensors>> UnpackTensors(const std::string& path,
                                                   const std::string& output) {
  std::vector<std::string> packs;
  if (const std::string pack = PackOf(path); !pack.empty()) {
    packs.push_back(pack);
  } else {
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<DumpLocation> dumps, FindDumps(path));
    for (const DumpLocation& dump : dumps) {
      if (std::string found = PackOf(DirectoryName(dump.path)); !found.empty())
        packs.push_back(std::move(found));
    }
  }
  if (packs.empty()) {
    return NotFound(path)
        .Expected("a pack of tensors, or a dump with {}/{}"_t(std::string(kPackFolder),
                                                              std::string(formats::kPackName)))
        .Hint("\"tensor_files\": \"packed\" in config.json makes a run write packs"_t);
  }
  if (!output.empty() && packs.size() > 1) {
    return InvalidArgument("{} has {} packs, and files of one name in each"_t(path, packs.size()))
        .Hint("unpack one dump into a folder, or all of them without --output"_t);
  }
  std::vector<UnpackedTensors> all;
  for (const std::string& pack : packs) {
    MSPROBE_ASSIGN_OR_RETURN(UnpackedTensors done,
                             UnpackOne(pack, output.empty() ? DirectoryName(pack) : output));
    all.push_back(std::move(done));
  }
  return all;
}

}  // namespace msprobe::dump
