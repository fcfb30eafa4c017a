#include "engine/operator_dumps/operator_files.h"

#include <algorithm>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/formats/tensors/tensor_pack.h"

namespace msprobe::operator_dumps {
namespace {

constexpr int kMostFolders = 64;  // below each other

Status List(const std::string& root, const std::string& below, int depth, OperatorFolder* out) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(JoinPath(root, below)));
  for (const std::string& name : names) {
    const std::string relative = below.empty() ? name : JoinPath(below, name);
    const std::string path = JoinPath(root, relative);
    if (IsDirectory(path)) {
      if (!IsLink(path) && depth < kMostFolders)
        MSPROBE_RETURN_IF_ERROR(List(root, relative, depth + 1, out));
      continue;
    }
    if (!IsRegularFile(path)) continue;
    if (name == formats::kPackName) {  // as if its tensors were files of the folder
      const Result<formats::TensorPack> pack =
          formats::TensorPack::Open(JoinPath(root, below), name);
      if (!pack.ok()) {
        out->others.push_back(relative);
        continue;
      }
      for (const formats::PackEntry& entry : pack->entries())
        out->files.push_back(below.empty() ? entry.name : JoinPath(below, entry.name));
      continue;
    }
    MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    const bool known =
        formats::LooksLikeTensorFile(file.bytes()) || formats::LooksLikeAscendDump(file.bytes());
    (known ? out->files : out->others).push_back(relative);
  }
  return Status::Ok();
}

}  // namespace

Result<OperatorFolder> ListOperatorFiles(const std::string& path) {
  OperatorFolder found;
  if (!Exists(path)) return NotFound(path).Expected("a dump of operators, or a folder of them"_t);
  if (!IsDirectory(path)) {
    found.files.push_back(BaseName(path));
    return found;
  }
  MSPROBE_RETURN_IF_ERROR(List(path, "", 0, &found));
  std::sort(found.files.begin(), found.files.end(), NaturalLess);
  return found;
}

Result<std::vector<OperatorValue>> ReadOperatorFile(const std::string& path) {
  std::vector<OperatorValue> values;
  if (formats::IsInPack(path)) {
    MSPROBE_ASSIGN_OR_RETURN(values.emplace_back().tensor.elements, formats::ReadTensorFile(path));
    return values;
  }
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  if (!formats::LooksLikeTensorFile(file.bytes()) && formats::LooksLikeAscendDump(file.bytes())) {
    MSPROBE_ASSIGN_OR_RETURN(formats::AscendDump dump, formats::ReadAscendDump(std::move(file)));
    for (formats::AscendTensor& tensor : dump.tensors) {
      const std::string suffix =
          (tensor.is_input ? "input." : "output.") + std::to_string(tensor.index);
      values.push_back({suffix, std::move(tensor)});
    }
    return values;
  }
  MSPROBE_ASSIGN_OR_RETURN(formats::TensorFile tensor, formats::ReadTensorFile(std::move(file)));
  values.emplace_back().tensor.elements = std::move(tensor);
  return values;
}

}  // namespace msprobe::operator_dumps
