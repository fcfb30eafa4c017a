#include "engine/dump/read/file_kind.h"

#include "engine/base/file.h"
#include "engine/formats/tensors/tensor_file.h"
#include "engine/formats/text/json.h"

namespace msprobe::dump {
namespace {

// The header of a dump is a few lines; configurations and stacks have neither member.
bool IsDumpHeader(std::string_view text) {
  constexpr size_t kHeaderBytes = 64 * 1024;
  formats::JsonCursor json(text.substr(0, kHeaderBytes));
  formats::JsonText key;
  for (json.BeginObject(); json.NextKey(&key); json.Skip()) {
    if (key == "dump_data_dir" || (key == "data" && json.Peek() == '{')) return true;
  }
  return false;
}

// ["name", ...
bool IsLine(std::string_view text) {
  formats::JsonCursor json(text.substr(0, 4096));
  return json.BeginArray() && json.NextItem() && json.Peek() == '"';
}

}  // namespace

FileKind KindOf(std::string_view bytes) {
  if (formats::LooksLikeTensorFile(bytes)) return FileKind::kTensor;
  switch (formats::JsonCursor(bytes.substr(0, 4096)).Peek()) {
    case '{':
      return IsDumpHeader(bytes) ? FileKind::kDumpJson : FileKind::kOther;
    case '[':
      return IsLine(bytes) ? FileKind::kPkl : FileKind::kOther;
    default:
      return FileKind::kOther;
  }
}

FileKind KindOfFileIn(const std::string& folder, std::string_view name) {
  const Result<MappedFile> file = MappedFile::OpenBelow(folder, name);
  return file.ok() ? KindOf(file->bytes()) : FileKind::kOther;
}

}  // namespace msprobe::dump
