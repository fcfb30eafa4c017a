#include "engine/formats/tensors/ascend_dump.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "engine/formats/archive/byte_order.h"
#include "engine/formats/tensors/protobuf_fields.h"

namespace msprobe::formats {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxTensors = 1 << 16;

struct Type {
  uint64_t number;
  std::string_view name;
  std::optional<DType> dtype;
};
// OutputDataType of dump_data.proto. Quantised and dual types are stored as integers.
constexpr Type kTypes[] = {
    {0, "DT_UNDEFINED", {}},
    {1, "DT_FLOAT", DType::kFloat32},
    {2, "DT_FLOAT16", DType::kFloat16},
    {3, "DT_INT8", DType::kInt8},
    {4, "DT_UINT8", DType::kUInt8},
    {5, "DT_INT16", DType::kInt16},
    {6, "DT_UINT16", DType::kUInt16},
    {7, "DT_INT32", DType::kInt32},
    {8, "DT_INT64", DType::kInt64},
    {9, "DT_UINT32", DType::kUInt32},
    {10, "DT_UINT64", DType::kUInt64},
    {11, "DT_BOOL", DType::kBool},
    {12, "DT_DOUBLE", DType::kFloat64},
    {13, "DT_STRING", {}},
    {14, "DT_DUAL_SUB_INT8", DType::kInt8},
    {15, "DT_DUAL_SUB_UINT8", DType::kUInt8},
    {16, "DT_COMPLEX64", DType::kComplex64},
    {17, "DT_COMPLEX128", DType::kComplex128},
    {18, "DT_QINT8", DType::kInt8},
    {19, "DT_QINT16", DType::kInt16},
    {20, "DT_QINT32", DType::kInt32},
    {21, "DT_QUINT8", DType::kUInt8},
    {22, "DT_QUINT16", DType::kUInt16},
    {23, "DT_RESOURCE", {}},
    {24, "DT_STRING_REF", {}},
    {25, "DT_DUAL", {}},
    {26, "DT_VARIANT", {}},
    {27, "DT_BF16", DType::kBFloat16},
    {28, "DT_INT4", {}},
    {29, "DT_UINT1", {}},
    {30, "DT_INT2", {}},
    {31, "DT_UINT2", {}},
};

struct Format {
  uint64_t number;
  AscendLayout layout;
};
// OutputFormat of dump_data.proto.
constexpr Format kFormats[] = {
    {0, AscendLayout::kNCHW},       {1, AscendLayout::kNHWC},     {2, AscendLayout::kND},
    {3, AscendLayout::kNC1HWC0},    {4, AscendLayout::kFractalZ}, {16, AscendLayout::kHWCN},
    {29, AscendLayout::kFractalNZ}, {30, AscendLayout::kNCDHW},   {32, AscendLayout::kNDC1HWC0},
};

std::optional<AscendLayout> LayoutOf(uint64_t number) {
  for (const Format& format : kFormats) {
    if (format.number == number) return format.layout;
  }
  return std::nullopt;
}

// The numbers of the fields in OpOutput and in OpInput, which differ.
struct FieldNumbers {
  uint32_t data_type, format, shape, original, data, size, original_shape, sub_format;
};
constexpr FieldNumbers kOutputFields = {1, 2, 3, 4, 5, 6, 7, 8};
constexpr FieldNumbers kInputFields = {1, 2, 3, 0, 4, 5, 6, 7};

// What the header says of one stretch of bytes after it.
struct Stretch {
  uint64_t size = 0;
  std::string_view data;  // elements inside of the header
  uint64_t type = 0;
};

class Reader {
 public:
  explicit Reader(MappedFile file) : file_(std::make_shared<MappedFile>(std::move(file))) {}

  Result<AscendDump> Read() {
    const std::string_view bytes = file_->bytes();
    if (bytes.size() <= kLengthBytes) {
      return InvalidDump(file_->path(), 0)
          .Expected("a dump file of CANN"_t)
          .Found("{} bytes"_t(bytes.size()));
    }
    const auto length = LoadLittle<uint64_t>(bytes.data());
    if (length > bytes.size() - kLengthBytes) {
      return InvalidDump(file_->path(), 0)
          .Expected("a header of at most {} bytes"_t(bytes.size() - kLengthBytes))
          .Found("a length of {}"_t(length));
    }
    MSPROBE_RETURN_IF_ERROR(Header(bytes.substr(kLengthBytes, length)));
    MSPROBE_RETURN_IF_ERROR(Elements(kLengthBytes + length));
    AscendDump& dump = dump_;
    for (size_t i = 0; i < inputs_.size(); ++i) dump.tensors.push_back(std::move(inputs_[i].first));
    for (size_t i = 0; i < outputs_.size(); ++i)
      dump.tensors.push_back(std::move(outputs_[i].first));
    return std::move(dump);
  }

 private:
  using Described = std::pair<AscendTensor, Stretch>;

  Status Damaged(const ProtobufFields& fields) const {
    return InvalidDump(file_->path(), fields.offset())
        .Expected(fields.expected())
        .Found("something else: the header is damaged"_t);
  }

  Status Header(std::string_view header) {
    ProtobufFields fields(header, kLengthBytes);
    for (ProtobufField f; fields.Next(&f);) {
      if (f.number == 1 && f.is_bytes()) dump_.version = f.bytes;
      if (f.number == 2 && f.is_number()) dump_.time = f.value;
      if (f.number == 6 && f.is_bytes()) dump_.op_name = f.bytes;
      if ((f.number == 3 || f.number == 4) && f.is_bytes()) {
        MSPROBE_RETURN_IF_ERROR(Tensor(f, f.number == 4));
      }
    }
    return fields.failed() ? Damaged(fields) : Status::Ok();
  }

  Status Tensor(const ProtobufField& message, bool is_input) {
    std::vector<Described>& list = is_input ? inputs_ : outputs_;
    if (list.size() == kMaxTensors) {
      return InvalidDump(file_->path(), message.offset)
          .Expected("at most {} tensors"_t(kMaxTensors));
    }
    auto& [tensor, stretch] = list.emplace_back();
    tensor.is_input = is_input;
    tensor.index = static_cast<int64_t>(list.size()) - 1;
    const FieldNumbers& numbers = is_input ? kInputFields : kOutputFields;
    uint64_t format = 0;
    std::vector<int64_t>& shape = tensor.elements.shape;
    ProtobufFields fields(message.bytes, message.offset);
    for (ProtobufField f; fields.Next(&f);) {
      if (f.number == numbers.data && f.is_bytes()) stretch.data = f.bytes;
      if (f.number == numbers.format && f.is_number()) format = f.value;
      if (f.is_number()) Number(f, numbers, &tensor, &stretch);
      if (f.is_bytes()) MSPROBE_RETURN_IF_ERROR(Nested(f, numbers, &tensor));
    }
    if (fields.failed()) return Damaged(fields);
    tensor.layout = LayoutOf(format);
    tensor.layout_name =
        tensor.layout ? AscendLayoutName(*tensor.layout) : fmt::format("format {}", format);
    tensor.elements.strides = ContiguousStrides(shape);
    return Status::Ok();
  }

  static void Number(const ProtobufField& f, const FieldNumbers& numbers, AscendTensor* tensor,
                     Stretch* stretch) {
    if (f.number == numbers.data_type) stretch->type = f.value;
    if (f.number == numbers.size) stretch->size = f.value;
    if (f.number == numbers.sub_format && f.value > 1)
      tensor->groups = static_cast<uint32_t>(f.value);
  }

  // A field that is a message itself.
  Status Nested(const ProtobufField& f, const FieldNumbers& numbers, AscendTensor* tensor) {
    if (f.number == numbers.shape) return Shape(f, &tensor->elements.shape);
    if (f.number == numbers.original_shape) return Shape(f, &tensor->original_shape);
    if (f.number == numbers.original) return Original(f, tensor);
    return Status::Ok();
  }

  Status Original(const ProtobufField& message, AscendTensor* tensor) {
    ProtobufFields fields(message.bytes, message.offset);
    tensor->original_layout = AscendLayout::kNCHW;  // proto3 does not write a number 0
    for (ProtobufField f; fields.Next(&f);) {
      if (f.number == 4 && f.is_number()) tensor->original_layout = LayoutOf(f.value);
    }
    return fields.failed() ? Damaged(fields) : Status::Ok();
  }

  // Message Shape: its field 1 has the extents, packed or one by one.
  Status Shape(const ProtobufField& message, std::vector<int64_t>* shape) {
    ProtobufFields fields(message.bytes, message.offset);
    for (ProtobufField f; fields.Next(&f);) {
      if (f.number != 1) continue;
      if (f.is_number()) MSPROBE_RETURN_IF_ERROR(Extent(f.value, f.offset, shape));
      if (f.is_bytes()) MSPROBE_RETURN_IF_ERROR(PackedExtents(f, shape));
    }
    return fields.failed() ? Damaged(fields) : Status::Ok();
  }

  Status PackedExtents(const ProtobufField& f, std::vector<int64_t>* shape) {
    ProtobufFields packed(f.bytes, f.offset);
    for (uint64_t value = 0; packed.NextVarint(&value);)
      MSPROBE_RETURN_IF_ERROR(Extent(value, packed.offset(), shape));
    return packed.failed() ? Damaged(packed) : Status::Ok();
  }

  Status Extent(uint64_t value, size_t offset, std::vector<int64_t>* shape) const {
    if (value >> 62 != 0 || shape->size() == kMaxTensorDimensions) {
      return InvalidDump(file_->path(), offset)
          .Expected("at most {} extents below 2^62"_t(kMaxTensorDimensions))
          .Found("{} after {} extents"_t(value, shape->size()));
    }
    shape->push_back(static_cast<int64_t>(value));
    return Status::Ok();
  }

  // The bytes after the header: of inputs, then of outputs. Buffers follow; they are not read.
  Status Elements(size_t offset) {
    const std::string_view bytes = file_->bytes();
    for (std::vector<Described>* list : {&inputs_, &outputs_}) {
      for (auto& [tensor, stretch] : *list) {
        std::string_view data = stretch.data;
        if (data.empty()) {
          if (stretch.size > bytes.size() - offset) {
            return InvalidDump(file_->path(), offset)
                .Expected("{} bytes of {} {}"_t(
                    stretch.size, std::string(tensor.is_input ? "input" : "output"), tensor.index))
                .Found("{} bytes and the end of the file"_t(bytes.size() - offset));
          }
          data = bytes.substr(offset, stretch.size);
          offset += stretch.size;
        }
        Attach(data, stretch.type, &tensor);
      }
    }
    return Status::Ok();
  }

  void Attach(std::string_view data, uint64_t type, AscendTensor* tensor) {
    TensorFile& elements = tensor->elements;
    const bool known = type < std::size(kTypes);
    if (!known || !kTypes[type].dtype) {
      tensor->problem = known ? "the dtype {}"_t(kTypes[type].name) : "dtype {}"_t(type);
      return;
    }
    elements.dtype = *kTypes[type].dtype;
    const Result<int64_t> size = CheckedByteSize(elements.dtype, elements.shape);
    if (!size.ok() || static_cast<uint64_t>(*size) > data.size()) {
      tensor->problem = data.empty()
                            ? "no elements were stored"_t
                            : "{} bytes for {} {}"_t(data.size(), DTypeShortName(elements.dtype),
                                                     ShapeText(elements.shape));
      return;
    }
    elements.data = data.data();
    elements.owner = file_;
    const size_t align = std::min<size_t>(DTypeSize(elements.dtype), 8);
    if (reinterpret_cast<uintptr_t>(data.data()) % align == 0) return;
    auto copy = std::make_shared<std::vector<uint64_t>>((static_cast<size_t>(*size) + 7) / 8);
    if (*size > 0) std::memcpy(copy->data(), data.data(), static_cast<size_t>(*size));
    elements.data = copy->data();
    elements.owner = std::move(copy);
  }

  std::shared_ptr<MappedFile> file_;
  AscendDump dump_;
  std::vector<Described> inputs_, outputs_;
};

}  // namespace

bool LooksLikeAscendDump(std::string_view bytes) {
  if (bytes.size() <= kLengthBytes) return false;
  const auto length = LoadLittle<uint64_t>(bytes.data());
  const auto tag = static_cast<uint8_t>(bytes[kLengthBytes]);
  const bool is_field = tag == 0x0a || tag == 0x10 || tag == 0x1a || tag == 0x22 || tag == 0x2a ||
                        tag == 0x32;  // a field of DumpData, with its wire type
  return length > 0 && length <= bytes.size() - kLengthBytes && is_field;
}

Result<AscendDump> ReadAscendDump(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  return ReadAscendDump(std::move(file));
}

Result<AscendDump> ReadAscendDump(MappedFile file) { return Reader(std::move(file)).Read(); }

}  // namespace msprobe::formats
