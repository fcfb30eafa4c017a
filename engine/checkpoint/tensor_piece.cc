#include "engine/checkpoint/tensor_piece.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <new>
#include <utility>

#include "engine/base/pages.h"
#include "engine/formats/archive/zip.h"
#include "engine/formats/tensors/pt.h"
#include "engine/formats/tensors/safetensors.h"

namespace msprobe::checkpoint {
namespace {

// "['model']['a.weight'][0]" -> "model.a.weight.0"
std::string Dotted(std::string_view reached) {
  std::string name;
  while (!reached.empty()) {
    const bool quoted = reached.starts_with("['");
    const size_t end = reached.find(quoted ? "']" : "]");
    if (end == std::string_view::npos) break;
    const size_t begin = quoted ? 2 : 1;
    if (!name.empty()) name += '.';
    name += reached.substr(begin, end - begin);
    reached.remove_prefix(end + begin);
  }
  return name.empty() ? "tensor" : name;
}

Status ListPt(MappedFile mapped, const std::shared_ptr<const std::string>& path,
              std::vector<TensorPiece>* pieces, PickleVisitor* visitor) {
  const std::string_view bytes = mapped.bytes();
  MSPROBE_ASSIGN_OR_RETURN(
      formats::PtFile file,
      formats::ReadPt(std::move(mapped), {.verify_storages = false, .keep_objects = true}));
  if (visitor != nullptr) visitor->Visit(file.tree);
  const auto inside = [&](const void* data) {
    const char* const p = static_cast<const char*>(data);
    return p >= bytes.data() && p <= bytes.data() + bytes.size();
  };
  const auto offset = [&](const void* data) {
    return static_cast<uint64_t>(static_cast<const char*>(data) - bytes.data());
  };
  std::map<uint64_t, std::shared_ptr<StorageCheck>> checks;
  for (formats::PtTensor& tensor : file.tensors) {
    TensorPiece piece{.name = Dotted(tensor.name),
                      .file = path,
                      .dtype = tensor.tensor.dtype,
                      .shape = tensor.tensor.shape,
                      .strides = tensor.tensor.strides};
    if (inside(tensor.tensor.data)) {
      piece.offset = offset(tensor.tensor.data);
    } else {
      piece.held = std::move(tensor.tensor);
    }
    if (tensor.checksum && !tensor.storage.empty()) {
      std::shared_ptr<StorageCheck>& check = checks[offset(tensor.storage.data())];
      if (check == nullptr) {
        check = std::make_shared<StorageCheck>();
        check->offset = offset(tensor.storage.data());
        check->size = tensor.storage.size();
        check->checksum = *tensor.checksum;
      }
      piece.check = check;
    }
    pieces->push_back(std::move(piece));
  }
  return Status::Ok();
}

Status ListSafetensors(MappedFile mapped, const std::shared_ptr<const std::string>& path,
                       std::vector<TensorPiece>* pieces) {
  MSPROBE_ASSIGN_OR_RETURN(const formats::SafetensorsFile file,
                           formats::SafetensorsFile::Open(std::move(mapped)));
  for (const formats::SafetensorsEntry& entry : file.entries()) {
    TensorPiece piece{.name = entry.name,
                      .file = path,
                      .dtype = entry.dtype,
                      .shape = entry.shape,
                      .strides = ContiguousStrides(entry.shape),
                      .offset = entry.offset};
    pieces->push_back(std::move(piece));
  }
  return Status::Ok();
}

// The number of bytes from the first element to the end of the last one in memory.
uint64_t Reach(const TensorPiece& piece) {
  if (std::find(piece.shape.begin(), piece.shape.end(), 0) != piece.shape.end()) return 0;
  int64_t last = 0;
  for (size_t d = 0; d < piece.shape.size(); ++d) last += (piece.shape[d] - 1) * piece.strides[d];
  return (static_cast<uint64_t>(last) + 1) * DTypeSize(piece.dtype);
}

}  // namespace

Status ListPieces(const std::string& path, std::vector<TensorPiece>* pieces,
                  PickleVisitor* visitor) {
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const auto name = std::make_shared<const std::string>(path);
  if (formats::LooksLikeSafetensors(file.bytes()))
    return ListSafetensors(std::move(file), name, pieces);
  return ListPt(std::move(file), name, pieces, visitor);
}

uint64_t SizeOf(const TensorPiece& piece) {
  if (piece.archive_size > 0) return piece.archive_size;
  if (piece.held) return 0;
  return std::max(Reach(piece), piece.check ? piece.check->size : 0);
}

Result<formats::TensorFile> ReadPiece(const TensorPiece& piece) {
  const std::string& path = *piece.file;
  MSPROBE_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  if (piece.archive_size > 0) {
    MSPROBE_ASSIGN_OR_RETURN(
        formats::PtFile file,
        formats::ReadPt(std::move(mapped), {.offset = piece.offset, .size = piece.archive_size}));
    if (file.tensors.size() != 1) {
      return InvalidDump(path, piece.offset)
          .Expected("one tensor, {}"_t(Excerpt(piece.name)))
          .Found(fmt::format("{}", file.tensors.size()));
    }
    return std::move(file.tensors[0].tensor);
  }
  const auto file = std::make_shared<const MappedFile>(std::move(mapped));
  const std::string_view bytes = file->bytes();
  const uint64_t reach = piece.held ? 0 : Reach(piece);
  const bool there = piece.offset <= bytes.size() && reach <= bytes.size() - piece.offset;
  if (!there || (piece.check && piece.check->offset + piece.check->size > bytes.size())) {
    return InvalidDump(path, piece.offset)
        .Expected("the elements of {}, as when the file was opened"_t(Excerpt(piece.name)))
        .Found("a file of {} bytes"_t(bytes.size()));
  }
  if (piece.check) {
    StorageCheck& check = *piece.check;
    std::call_once(check.once, [&] {
      check.intact = formats::Crc32(bytes.substr(check.offset, check.size)) == check.checksum;
    });
    if (!check.intact) {
      return InvalidDump(path, check.offset)
          .Says("the elements of {} do not have the checksum that was stored with them"_t(
              Excerpt(piece.name)))
          .Hint("the file is damaged: copy it again"_t);
    }
  }
  if (piece.held) return *piece.held;
  formats::TensorFile tensor{.dtype = piece.dtype,
                             .shape = piece.shape,
                             .strides = piece.strides,
                             .data = bytes.data() + piece.offset,
                             .owner = file};
  // A file may have data at any offset; elements in memory must be aligned.
  if (piece.offset % DTypeSize(piece.dtype) != 0) {
    const std::shared_ptr<char[]> copy(new (std::nothrow) char[reach]);
    if (copy == nullptr) return Unsupported("{}: not enough memory for {} bytes"_t(path, reach));
    CopyAndForget(bytes.substr(piece.offset, reach), copy.get());
    tensor.data = copy.get();
    tensor.owner = copy;
  }
  return tensor;
}

}  // namespace msprobe::checkpoint
