#include "engine/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <set>
#include <unordered_set>
#include <utility>

#include "engine/base/file.h"
#include "engine/checkpoint/layout.h"
#include "engine/formats/text/json.h"

namespace msprobe::checkpoint {
namespace {

bool IsWhole(const CheckpointTensor& tensor) {
  return tensor.parts.size() == 1 && tensor.parts[0].piece.shape == tensor.shape;
}

// Copies a contiguous block to its place in a contiguous larger tensor, row by row.
void Place(const char* block, const std::vector<int64_t>& extents, const std::vector<int64_t>& at,
           const std::vector<int64_t>& whole, size_t element, char* out) {
  const size_t n = extents.size();
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < n; ++d) rows *= extents[d];
  const auto row_bytes = static_cast<size_t>(n == 0 ? 1 : extents[n - 1]) * element;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t rest = row, offset = n == 0 ? 0 : at[n - 1], stride = n == 0 ? 1 : whole[n - 1];
    for (size_t d = n - 1; n > 1 && d-- > 0; stride *= whole[d]) {
      offset += (at[d] + rest % extents[d]) * stride;
      rest /= extents[d];
    }
    std::memcpy(out + static_cast<size_t>(offset) * element,
                block + static_cast<size_t>(row) * row_bytes, row_bytes);
  }
}

// Checks that the parts fit into the tensor, before memory is allocated for a size that a file only
// claims.
Status CheckParts(const std::string& checkpoint, const CheckpointTensor& tensor, int64_t bytes) {
  int64_t placed = 0;
  for (const CheckpointTensor::Part& part : tensor.parts) {
    MSPROBE_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(tensor.dtype, part.piece.shape));
    if (__builtin_add_overflow(placed, size, &placed)) break;
  }
  if (placed == bytes) return Status::Ok();
  return InvalidDump(checkpoint)
      .Expected("all {} bytes of {}"_t(bytes, Excerpt(tensor.name)))
      .Found("parts of {} bytes"_t(placed));
}

}  // namespace

Checkpoint::Cost Checkpoint::CostOf(const CheckpointTensor& tensor) {
  Cost cost;
  for (const CheckpointTensor::Part& part : tensor.parts)
    cost.mapped = std::max(cost.mapped, SizeOf(part.piece));
  if (IsWhole(tensor)) return cost;
  // The whole tensor, and one part that must be made contiguous first.
  const Result<int64_t> bytes = CheckedByteSize(tensor.dtype, tensor.shape);
  cost.made = bytes.ok() ? static_cast<uint64_t>(*bytes) : 0;
  for (const CheckpointTensor::Part& part : tensor.parts) {
    if (part.piece.strides == ContiguousStrides(part.piece.shape)) continue;
    cost.made += cost.mapped;
    break;
  }
  return cost;
}

Result<formats::TensorFile> Checkpoint::Read(const CheckpointTensor& tensor) const {
  if (IsWhole(tensor)) {
    MSPROBE_ASSIGN_OR_RETURN(formats::TensorFile whole, ReadPiece(tensor.parts[0].piece));
    if (whole.shape == tensor.shape) return whole;
    return InvalidDump(*tensor.parts[0].piece.file)
        .Expected("{} of shape {}"_t(Excerpt(tensor.name), ShapeText(tensor.shape)))
        .Found(ShapeText(whole.shape));
  }
  const size_t element = DTypeSize(tensor.dtype);
  MSPROBE_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(tensor.dtype, tensor.shape));
  MSPROBE_RETURN_IF_ERROR(CheckParts(path_, tensor, bytes));
  // Zeroed: the parts of a damaged checkpoint may overlap and leave elements without a value.
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  const std::shared_ptr<char[]> whole(new (std::nothrow) char[size]());
  if (whole == nullptr) {
    return Unsupported("not enough memory for the {} bytes of {}"_t(bytes, Excerpt(tensor.name)));
  }
  std::vector<char> block;
  for (const CheckpointTensor::Part& part : tensor.parts) {
    MSPROBE_ASSIGN_OR_RETURN(const formats::TensorFile piece, ReadPiece(part.piece));
    if (piece.dtype != tensor.dtype || piece.shape != part.piece.shape) {
      return InvalidDump(*part.piece.file)
          .Expected("{} {} as a share of {}"_t(DTypeShortName(tensor.dtype),
                                               ShapeText(part.piece.shape), Excerpt(tensor.name)))
          .Found(fmt::format("{} {}", DTypeShortName(piece.dtype), ShapeText(piece.shape)));
    }
    const TensorView view = piece.view();
    const char* data = static_cast<const char*>(view.data);
    if (!view.IsContiguous()) {
      block.resize(static_cast<size_t>(view.numel()) * element);
      CopyContiguous(view, block.data());
      data = block.data();
    }
    if (view.numel() > 0) Place(data, piece.shape, part.at, tensor.shape, element, whole.get());
  }
  return formats::TensorFile{.dtype = tensor.dtype,
                             .shape = tensor.shape,
                             .strides = ContiguousStrides(tensor.shape),
                             .data = whole.get(),
                             .owner = whole};
}

void CheckpointBuilder::Add(CheckpointTensor tensor) { out_.tensors_.push_back(std::move(tensor)); }

Status CheckpointBuilder::AddFile(const std::string& path) {
  std::vector<TensorPiece> pieces;
  MSPROBE_RETURN_IF_ERROR(ListPieces(path, &pieces));
  std::unordered_set<std::string_view> taken;
  for (const CheckpointTensor& tensor : out_.tensors_) taken.insert(tensor.name);
  const bool clash = std::any_of(pieces.begin(), pieces.end(), [&](const TensorPiece& piece) {
    return taken.contains(piece.name);
  });
  out_.tensors_.reserve(out_.tensors_.size() + pieces.size());
  for (TensorPiece& piece : pieces) {
    CheckpointTensor tensor;
    tensor.name = clash ? fmt::format("{}.{}", BaseName(path), piece.name) : piece.name;
    tensor.dtype = piece.dtype;
    tensor.shape = piece.shape;
    tensor.parts.push_back({std::move(piece), {}});
    Add(std::move(tensor));
  }
  return Status::Ok();
}

Status CheckpointBuilder::AddFiles(const std::vector<std::string>& paths) {
  Status last;
  size_t read = 0;
  for (const std::string& path : paths) {
    Status status = AddFile(path);
    if (status.ok()) {
      ++read;
    } else if (paths.size() > 1) {
      out_.notes_.push_back(status.AsMessage());
    }
    if (!status.ok()) last = std::move(status);
  }
  return read > 0 ? Status::Ok() : last;
}

Status CheckpointBuilder::AddIndexed(const std::string& folder, const std::string& index_name) {
  const std::string path = JoinPath(folder, index_name);
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  formats::JsonCursor json(file.bytes());
  std::set<std::string> names, files;
  formats::JsonText key, text;
  for (json.BeginObject(); json.NextKey(&key);) {
    if (!(key == "weight_map")) {
      json.Skip();
      continue;
    }
    for (json.BeginObject(); json.NextKey(&key);) {
      std::string name, of;
      formats::AppendJsonText(&name, key);
      if (!json.String(&text)) break;
      formats::AppendJsonText(&of, text);
      names.insert(std::move(name));
      files.insert(std::move(of));
    }
  }
  if (json.failed()) return json.Error(path);
  if (files.empty())
    return InvalidDump(path).Expected("\"weight_map\" with a file"_t).Found("none"_t);
  for (const std::string& name : files) {
    if (name.find('/') != std::string::npos || name == "..") {
      return InvalidDump(path).Expected("files beside it"_t).Found(Excerpt(name));
    }
    MSPROBE_RETURN_IF_ERROR(AddFile(JoinPath(folder, name)));
  }
  for (const CheckpointTensor& tensor : out_.tensors_) names.erase(tensor.name);
  if (!names.empty()) {
    out_.notes_.push_back("{} names {} tensors that no file has, the first being {}"_t(
        path, names.size(), Excerpt(*names.begin())));
  }
  return Finish("{} of {} files"_t(index_name, files.size()));
}

Status CheckpointBuilder::Finish(Message layout) {
  out_.layout_ = std::move(layout);
  if (out_.tensors_.empty()) {
    return InvalidArgument()
        .At(out_.path_)
        .Expected("a checkpoint with tensors"_t)
        .Found("none in it"_t)
        .Hint("pass the file or folder that holds the model's state_dict"_t);
  }
  // Makes names unique: {"a.b": t} and {"a": {"b": t}} both give the name a.b.
  std::unordered_set<std::string> taken;
  for (CheckpointTensor& tensor : out_.tensors_) {
    const std::string name = tensor.name;
    for (int i = 2; !taken.insert(tensor.name).second; ++i)
      tensor.name = fmt::format("{}#{}", name, i);
  }
  return Status::Ok();
}

Result<Checkpoint> Checkpoint::Open(const std::string& path) {
  Checkpoint out;
  out.path_ = path;
  CheckpointBuilder builder(&out);
  MSPROBE_ASSIGN_OR_RETURN(const CheckpointLayout layout, FindLayout(path));
  switch (layout.kind) {
    case CheckpointLayout::Kind::kNone:
      return InvalidArgument()
          .At(path)
          .Expected("a checkpoint: .pt, .bin, .pth or .safetensors, or a folder of them"_t)
          .Found(IsDirectory(path) ? "a folder without one"_t : "another file"_t);
    case CheckpointLayout::Kind::kFiles:
      MSPROBE_RETURN_IF_ERROR(builder.AddFiles(layout.files));
      if (const size_t count = layout.files.size() - out.notes_.size(); count == 1) {
        MSPROBE_RETURN_IF_ERROR(builder.Finish("1 file"_t));
      } else {
        MSPROBE_RETURN_IF_ERROR(builder.Finish("{} files"_t(count)));
      }
      break;
    case CheckpointLayout::Kind::kIndexed:
      MSPROBE_RETURN_IF_ERROR(builder.AddIndexed(layout.folder, layout.files[0]));
      break;
    case CheckpointLayout::Kind::kMegatron:
      MSPROBE_RETURN_IF_ERROR(builder.AddMegatron(layout.folder));
      break;
    case CheckpointLayout::Kind::kDistributed:
      MSPROBE_RETURN_IF_ERROR(builder.AddDistributed(layout.folder));
      break;
  }
  return out;
}

bool LooksLikeCheckpoint(const std::string& path) {
  const Result<CheckpointLayout> layout = FindLayout(path);
  return layout.ok() && layout->kind != CheckpointLayout::Kind::kNone;
}

}  // namespace msprobe::checkpoint
