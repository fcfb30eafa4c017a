#include <fmt/format.h>

#include <utility>

#include "engine/base/atomic_file.h"
#include "engine/base/messages/message.h"
#include "engine/formats/archive/byte_order.h"
#include "engine/formats/archive/zip.h"
#include "engine/formats/tensors/pickle_opcodes.h"
#include "engine/formats/tensors/pt.h"
#include "engine/formats/tensors/pt_storage.h"

namespace msprobe::formats {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
constexpr size_t kSharedBytes = 1 << 20;  // from this size on a second thread makes the checksum
constexpr uint64_t kDataAlignment = 64;   // as torch: a mapped tensor starts on a cache line

// The opcodes of one tensor's pickle, as torch.save writes them, without the memo (nothing is
// referred to twice).
class PickleText {
 public:
  void Op(Opcode opcode) { text_ += static_cast<char>(opcode); }
  void Bool(bool value) { Op(value ? Opcode::kNewTrue : Opcode::kNewFalse); }
  void Global(std::string_view module, std::string_view name) {
    Op(Opcode::kGlobal);
    text_ += fmt::format("{}\n{}\n", module, name);
  }
  void String(std::string_view value) {
    Op(Opcode::kBinUnicode);
    AppendLittle<uint32_t>(&text_, static_cast<uint32_t>(value.size()));
    text_ += value;
  }
  void Integer(uint64_t value) {  // below 2^63
    if (value < 256) {
      Op(Opcode::kBinInt1);
      text_ += static_cast<char>(value);
    } else if (value <= 0x7fffffff) {
      Op(Opcode::kBinInt);
      AppendLittle<uint32_t>(&text_, static_cast<uint32_t>(value));
    } else {
      Op(Opcode::kLong1);
      text_ += '\x08';
      AppendLittle<uint64_t>(&text_, value);
    }
  }
  void Integers(std::span<const int64_t> values) {
    Op(Opcode::kMark);
    for (const int64_t value : values) Integer(static_cast<uint64_t>(value));
    Op(Opcode::kTuple);
  }
  void EmptyOrderedDict() {
    Global("collections", "OrderedDict");
    Op(Opcode::kEmptyTuple);
    Op(Opcode::kReduce);
  }
  std::string text_ = "\x80\x02";
};

std::string ComposePickle(DType dtype, std::span<const int64_t> shape, uint64_t numel,
                          const PtWriteOptions& options) {
  const std::string_view storage = StorageOfDType(dtype);
  const std::vector<int64_t> strides = ContiguousStrides(shape);
  PickleText p;
  if (options.is_parameter) {
    p.Global("torch._utils", "_rebuild_parameter");
    p.Op(Opcode::kMark);
  }
  p.Global("torch._utils", storage.empty() ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  p.Op(Opcode::kMark);
  p.Op(Opcode::kMark);
  p.String("storage");
  if (storage.empty()) {
    p.Global("torch.storage", "UntypedStorage");
  } else {
    p.Global("torch", storage);
  }
  p.String("0");
  p.String("cpu");
  p.Integer(storage.empty() ? numel * DTypeSize(dtype) : numel);
  p.Op(Opcode::kTuple);
  p.Op(Opcode::kBinPersId);
  p.Integer(0);
  p.Integers(shape);
  p.Integers(strides);
  p.Bool(options.requires_grad && !options.is_parameter);
  p.EmptyOrderedDict();
  if (storage.empty()) p.Global("torch", DTypeShortName(dtype));
  p.Op(Opcode::kTuple);
  p.Op(Opcode::kReduce);
  if (options.is_parameter) {
    p.Bool(options.requires_grad);
    p.EmptyOrderedDict();
    p.Op(Opcode::kTuple);
    p.Op(Opcode::kReduce);
  }
  p.Op(Opcode::kStop);
  return std::move(p.text_);
}

}  // namespace

std::string PtLayout::Suffix(uint32_t checksum) const {
  std::string suffix = suffix_, bytes;
  AppendLittle<uint32_t>(&bytes, checksum);
  for (const size_t place : checksum_places_) suffix.replace(place, bytes.size(), bytes);
  return suffix;
}

Result<PtLayout> MakePtLayout(DType dtype, std::span<const int64_t> shape,
                              const PtWriteOptions& options) {
  const std::string_view name = options.archive_name;
  if (name.empty() || name == "." || name == ".." || name.size() > 1024 ||
      name.find_first_of(std::string_view("/\\\0", 3)) != std::string_view::npos) {
    return InvalidArgument().Expected("an archive name without '/'"_t).Found(Excerpt(name, 60));
  }
  const Result<int64_t> size = CheckedByteSize(dtype, shape);
  if (!size.ok() || shape.size() > static_cast<size_t>(kMaxTensorDimensions)) {
    return InvalidArgument()
        .Expected("a tensor of at most {} dimensions and 2^63 bytes"_t(kMaxTensorDimensions))
        .Found("shape {}"_t(ShapeText(shape)));
  }
  PtLayout layout;
  layout.data_size_ = static_cast<uint64_t>(*size);
  const std::string folder = std::string(name) + "/";
  ZipComposer zip;
  zip.Add(folder + "data.pkl",
          ComposePickle(dtype, shape, layout.data_size_ / DTypeSize(dtype), options));
  zip.Add(folder + "byteorder", "little");
  zip.Add(folder + "version", "3\n");
  zip.Begin(folder + "data/0", layout.data_size_, kDataAlignment);
  layout.prefix_ = zip.Take();
  const auto suffix = [&](uint32_t checksum) {
    ZipComposer end = zip;
    end.End(checksum);
    end.Finish();
    return end.Take();
  };
  layout.suffix_ = suffix(0);
  // After the data and in the directory: where the suffix for another checksum differs.
  const std::string other = suffix(~0u);
  size_t at = 0;
  for (size_t& place : layout.checksum_places_) {
    while (layout.suffix_[at] == other[at]) ++at;
    place = at;
    at += sizeof(uint32_t);
  }
  return layout;
}

Status WritePt(const std::string& path, const PtLayout& layout, std::string_view data,
               ThreadPool* pool) {
  if (data.size() != layout.data_size()) {
    return Internal(
        "{}: {} bytes of data for a layout of {}"_t(path, data.size(), layout.data_size()));
  }
  MSPROBE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  if (pool != nullptr && pool->threads() > 1 && data.size() >= kSharedBytes) {
    Status written;
    uint32_t checksum = 0;
    pool->ParallelFor(2, [&](size_t i) {
      if (i == 0) written = file.Write({layout.prefix(), data});
      if (i == 1) checksum = Crc32(data);
    });
    MSPROBE_RETURN_IF_ERROR(written);
    MSPROBE_RETURN_IF_ERROR(file.Write({layout.Suffix(checksum)}));
    return file.Commit();
  }
  // In pieces, so that the data is loaded from memory once: for the checksum; the write then finds
  // it in the cache.
  std::string_view prefix = layout.prefix();
  uint32_t checksum = 0;
  while (true) {
    const std::string_view piece = data.substr(0, kPieceBytes);
    data.remove_prefix(piece.size());
    checksum = Crc32(piece, checksum);
    if (data.empty()) {
      MSPROBE_RETURN_IF_ERROR(file.Write({prefix, piece, layout.Suffix(checksum)}));
      return file.Commit();
    }
    MSPROBE_RETURN_IF_ERROR(file.Write({prefix, piece}));
    prefix = {};
  }
}

Status WritePt(const std::string& path, const PtLayout& layout, const TensorView& view,
               ThreadPool* pool) {
  if (view.IsContiguous()) {
    return WritePt(path, layout, {static_cast<const char*>(view.data), layout.data_size()}, pool);
  }
  std::string copy(layout.data_size(), '\0');
  CopyContiguous(view, copy.data());
  return WritePt(path, layout, copy, pool);
}

Status WritePt(const std::string& path, const TensorView& view, const PtWriteOptions& options,
               ThreadPool* pool) {
  MSPROBE_ASSIGN_OR_RETURN(const PtLayout layout, MakePtLayout(view.dtype, view.dims(), options));
  return WritePt(path, layout, view, pool);
}

}  // namespace msprobe::formats
