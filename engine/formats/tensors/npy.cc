#include "engine/formats/tensors/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>

#include "engine/base/atomic_file.h"
#include "engine/base/messages/message.h"
#include "engine/base/pages.h"
#include "engine/formats/archive/byte_order.h"
#include "engine/formats/tensors/npy_header.h"

namespace msprobe::formats {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;  // of the data in files we write

struct NpyType {
  std::string_view code;  // without the byte order
  DType dtype;
};
constexpr NpyType kNpyTypes[] = {
    {"f8", DType::kFloat64},   {"f4", DType::kFloat32},     {"f2", DType::kFloat16},
    {"b1", DType::kBool},      {"i8", DType::kInt64},       {"i4", DType::kInt32},
    {"i2", DType::kInt16},     {"i1", DType::kInt8},        {"u8", DType::kUInt64},
    {"u4", DType::kUInt32},    {"u2", DType::kUInt16},      {"u1", DType::kUInt8},
    {"c8", DType::kComplex64}, {"c16", DType::kComplex128},
};

// MindSpore's own code, which NumPy does not know. Files that we write never have it.
constexpr std::string_view kMindSporeBFloat16 = "E2";

std::optional<DType> DTypeOfCode(std::string_view code) {
  if (code == kMindSporeBFloat16) return DType::kBFloat16;
  for (const NpyType& type : kNpyTypes) {
    if (type.code == code) return type.dtype;
  }
  return std::nullopt;
}

const NpyType* TypeOf(DType dtype) {
  for (const NpyType& type : kNpyTypes) {
    if (type.dtype == dtype) return &type;
  }
  return nullptr;
}

Status RefuseType(const std::string& path, std::string_view descr) {
  const char kind = descr.size() > 1 ? descr[1] : '\0';
  const auto what =
      kind == 'O' ? "{}: dtype {} is an array of Python objects: reading it would run code"_t
      : kind == 'V'
          ? "{}: dtype {} is raw bytes without a type (bfloat16 and float8 arrays are saved like "
            "this)"_t
      : kind == 'U' || kind == 'S' || kind == 'M' || kind == 'm'
          ? "{}: dtype {} is text or dates"_t
          : "{}: dtype {} is not an element type NumPy has for tensors"_t;
  return Unsupported(what(path, Excerpt(descr)))
      .Hint(kind == 'V' ? "save it as .pt, or array.astype(numpy.float32)"_t
                        : "convert it first: array.astype(numpy.float32)"_t);
}

// One scalar of `size` bytes at a time, from big to little endian.
void SwapBytes(char* data, size_t bytes, size_t size) {
  for (size_t i = 0; i < bytes; i += size) std::reverse(data + i, data + i + size);
}

}  // namespace

bool LooksLikeNpy(std::string_view bytes) { return bytes.starts_with(kMagic); }

Result<TensorFile> ReadNpy(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  return ReadNpy(std::move(file));
}

namespace {

struct Npy {
  TensorFile tensor;  // without elements
  size_t data_at = 0, size = 0;
  bool swap = false;
};

Result<Npy> ReadHeader(const MappedFile& file) {
  const std::string& path = file.path();
  const std::string_view bytes = file.bytes();
  if (bytes.substr(0, kMagic.size()) != kMagic || bytes.size() < kMagic.size() + 4) {
    return InvalidDump(path, 0)
        .Expected("a .npy file, beginning with \\x93NUMPY"_t)
        .Found(bytes.empty() ? "an empty file"_t : Excerpt(bytes, 8));
  }
  const auto major = static_cast<uint8_t>(bytes[6]), minor = static_cast<uint8_t>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) {
    return InvalidDump(path, 6)
        .Expected("npy version 1.0, 2.0 or 3.0"_t)
        .Found(fmt::format("{}.{}", major, minor));
  }
  const size_t start = major == 1 ? 10 : 12;
  if (bytes.size() < start)
    return InvalidDump(path, 8)
        .Expected("the length of the header"_t)
        .Found("the end of the file"_t);
  const uint64_t length =
      major == 1 ? LoadLittle<uint16_t>(bytes.data() + 8) : LoadLittle<uint32_t>(bytes.data() + 8);
  if (length > bytes.size() - start) {
    return InvalidDump(path, 8)
        .Expected("a header of {} bytes"_t(length))
        .Found("{} bytes up to the end of the file"_t(bytes.size() - start));
  }
  MSPROBE_ASSIGN_OR_RETURN(const NpyHeader header,
                           ParseNpyHeader(bytes.substr(start, length), path, start));

  const char order = header.descr.empty() ? '\0' : header.descr[0];
  const std::optional<DType> dtype =
      DTypeOfCode(header.descr.substr(std::min<size_t>(1, header.descr.size())));
  if (!dtype || (order != '<' && order != '>' && order != '|' && order != '='))
    return RefuseType(path, header.descr);
  const size_t data_at = start + length;
  const Result<int64_t> size = CheckedByteSize(*dtype, header.shape);
  if (!size.ok() || static_cast<uint64_t>(*size) != bytes.size() - data_at) {
    return InvalidDump(path, data_at)
        .Expected(size.ok() ? "{} bytes of data for shape {} of {}"_t(
                                  *size, ShapeText(header.shape), DTypeShortName(*dtype))
                            : "a tensor of less than 2^63 bytes"_t)
        .Found(size.ok() ? fmt::format("{}", bytes.size() - data_at)
                         : "shape {}"_t(ShapeText(header.shape)));
  }

  TensorFile tensor{.dtype = *dtype, .shape = header.shape};
  tensor.strides.resize(tensor.shape.size());
  int64_t stride = 1;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    const size_t d = header.fortran_order ? i : tensor.shape.size() - 1 - i;
    tensor.strides[d] = stride;
    // An empty tensor may have extents whose product is over 2^63.
    if (tensor.shape[d] > 1 && __builtin_mul_overflow(stride, tensor.shape[d], &stride)) stride = 1;
  }
  return Npy{std::move(tensor), data_at, static_cast<size_t>(*size), order == '>'};
}

}  // namespace

Result<TensorFile> DescribeNpy(const MappedFile& file) {
  MSPROBE_ASSIGN_OR_RETURN(Npy npy, ReadHeader(file));
  return std::move(npy.tensor);
}

Result<TensorFile> ReadNpy(MappedFile file) {
  MSPROBE_ASSIGN_OR_RETURN(Npy npy, ReadHeader(file));
  TensorFile& tensor = npy.tensor;
  const DType dtype = tensor.dtype;
  const size_t scalar =
      DTypeKindOf(dtype) == DTypeKind::kComplex ? DTypeSize(dtype) / 2 : DTypeSize(dtype);
  const std::string_view elements = file.bytes().substr(npy.data_at);
  const char* data = elements.data();
  const bool swap = npy.swap && scalar > 1;
  if (swap || reinterpret_cast<uintptr_t>(data) % scalar != 0) {
    std::shared_ptr<char[]> buffer(new (std::nothrow) char[std::max<size_t>(npy.size, 1)]);
    if (buffer == nullptr)
      return Unsupported("{}: not enough memory for {} bytes"_t(file.path(), npy.size));
    CopyAndForget(elements, buffer.get());
    if (swap) SwapBytes(buffer.get(), npy.size, scalar);
    tensor.data = buffer.get();
    tensor.owner = buffer;
  } else {
    tensor.data = data;
    tensor.owner = std::make_shared<MappedFile>(std::move(file));
  }
  return std::move(tensor);
}

bool IsNumpyDType(DType dtype) { return TypeOf(dtype) != nullptr; }

Status WriteNpy(const std::string& path, const TensorView& view) {
  const NpyType* type = TypeOf(view.dtype);
  if (type == nullptr) {
    return Unsupported("{}: NumPy has no {}"_t(path, DTypeShortName(view.dtype)))
        .Hint("write a .pt file, or convert the tensor to float32"_t);
  }
  MSPROBE_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(view.dtype, view.dims()));
  std::string shape = "(";
  for (const int64_t extent : view.dims()) shape += fmt::format("{}, ", extent);
  if (view.ndim > 1) shape.resize(shape.size() - 2);
  if (view.ndim == 1) shape.pop_back();
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': {}), }}",
                                   DTypeSize(view.dtype) == 1 ? '|' : '<', type->code, shape);
  header.resize((10 + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment - 10 - 1, ' ');
  header += '\n';
  if (header.size() > 0xffff) return Internal("an npy header over 64 KiB"_t);
  std::string prefix(kMagic);
  prefix += std::string_view("\x01\x00", 2);
  AppendLittle<uint16_t>(&prefix, static_cast<uint16_t>(header.size()));
  prefix += header;

  std::string copy;
  std::string_view data(static_cast<const char*>(view.data), static_cast<size_t>(size));
  if (!view.IsContiguous()) {
    copy.resize(static_cast<size_t>(size));
    CopyContiguous(view, copy.data());
    data = copy;
  }
  MSPROBE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  MSPROBE_RETURN_IF_ERROR(file.Write({prefix, data}));
  return file.Commit();
}

}  // namespace msprobe::formats
