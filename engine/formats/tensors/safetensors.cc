#include "engine/formats/tensors/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <new>
#include <numeric>
#include <optional>

#include "engine/base/messages/message.h"
#include "engine/base/pages.h"
#include "engine/formats/archive/byte_order.h"
#include "engine/formats/text/json.h"

namespace msprobe::formats {
namespace {

constexpr size_t kHeaderLengthBytes = 8;
constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the format's own library

struct SafetensorsType {
  std::string_view name;
  DType dtype;
};
constexpr SafetensorsType kSafetensorsTypes[] = {
    {"F64", DType::kFloat64},
    {"F32", DType::kFloat32},
    {"F16", DType::kFloat16},
    {"BF16", DType::kBFloat16},
    {"F8_E4M3", DType::kFloat8E4M3FN},
    {"F8_E5M2", DType::kFloat8E5M2},
    {"F8_E8M0", DType::kFloat8E8M0FNU},
    {"F4", DType::kFloat4E2M1X2},
    {"F8_E4M3FNUZ", DType::kFloat8E4M3FNUZ},
    {"F8_E5M2FNUZ", DType::kFloat8E5M2FNUZ},
    {"U8", DType::kUInt8},
    {"U16", DType::kUInt16},
    {"U32", DType::kUInt32},
    {"U64", DType::kUInt64},
    {"I8", DType::kInt8},
    {"I16", DType::kInt16},
    {"I32", DType::kInt32},
    {"I64", DType::kInt64},
    {"BOOL", DType::kBool},
    {"C64", DType::kComplex64},
};

std::optional<DType> DTypeOf(std::string_view name) {
  for (const SafetensorsType& type : kSafetensorsTypes) {
    if (type.name == name) return type.dtype;
  }
  return std::nullopt;
}

// The length in front; 0 when there are no eight bytes.
uint64_t HeaderLength(std::string_view bytes) {
  return bytes.size() < kHeaderLengthBytes ? 0 : LoadLittle<uint64_t>(bytes.data());
}

}  // namespace

// Reads the header of one file into it.
class SafetensorsHeader {
 public:
  SafetensorsHeader(std::string_view header, SafetensorsFile* out)
      : json_(header, kHeaderLengthBytes), path_(out->file_->path()), out_(*out) {}

  Status Parse() {
    JsonText key;
    for (json_.BeginObject(); json_.NextKey(&key);) {
      if (key == "__metadata__") {
        Metadata();
      } else {
        std::string name;
        AppendJsonText(&name, key);
        MSPROBE_RETURN_IF_ERROR(Entry(std::move(name)));
      }
    }
    if (!json_.failed() && json_.Peek() != '\0')
      json_.Fail("nothing but blanks after the header"_t);
    if (!json_.failed() && json_.remaining() > 0) json_.Fail("no byte 0 in the header"_t);
    return json_.failed() ? json_.Error(path_) : Status::Ok();
  }

 private:
  void Metadata() {
    JsonText key, text;
    for (json_.BeginObject(); json_.NextKey(&key);) {
      if (!json_.String(&text)) return;
      auto& [name, value] = out_.metadata_.emplace_back();
      AppendJsonText(&name, key);
      AppendJsonText(&value, text);
    }
  }

  // An integer from 0 to 2^63 - 1.
  bool Whole(int64_t* value) {
    std::string_view text;
    if (!json_.Number(&text)) return false;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    if (error == std::errc() && end == text.data() + text.size() && *value >= 0) return true;
    return json_.Fail("a whole number, 0 or more and below 2^63, before this"_t);
  }

  void Shape(std::vector<int64_t>* shape) {
    for (json_.BeginArray(); json_.NextItem();) {
      int64_t extent = 0;
      if (!Whole(&extent)) return;
      if (shape->size() == kMaxTensorDimensions) {
        json_.Fail("at most 64 dimensions"_t);
        return;
      }
      shape->push_back(extent);
    }
  }

  void Offsets(int64_t* begin, int64_t* end) {
    int64_t* const ends[] = {begin, end};
    size_t i = 0;
    for (json_.BeginArray(); json_.NextItem(); ++i) {
      if (i == 2) json_.Fail("two offsets"_t);
      if (json_.failed() || !Whole(ends[i])) return;
    }
    if (!json_.failed() && i != 2) json_.Fail("two offsets before this"_t);
  }

  Status Entry(std::string name) {
    SafetensorsEntry entry{.name = std::move(name)};
    const size_t at = json_.offset();
    bool has_dtype = false, has_shape = false, has_offsets = false;
    JsonText key, text;
    std::string dtype;
    int64_t begin = 0, end = 0;
    for (json_.BeginObject(); json_.NextKey(&key);) {
      bool* seen = key == "dtype"          ? &has_dtype
                   : key == "shape"        ? &has_shape
                   : key == "data_offsets" ? &has_offsets
                                           : nullptr;
      if (seen == nullptr || *seen) {
        json_.Fail("dtype, shape and data_offsets, each once"_t);
        break;
      }
      *seen = true;
      if (seen == &has_shape) {
        Shape(&entry.shape);
      } else if (seen == &has_offsets) {
        Offsets(&begin, &end);
      } else if (json_.String(&text)) {
        AppendJsonText(&dtype, text);
      }
    }
    if (json_.failed()) return Status::Ok();  // Parse reports it
    const auto fail = [&] { return InvalidDump(path_, at); };
    if (!has_dtype || !has_shape || !has_offsets) {
      return fail()
          .Expected("dtype, shape and data_offsets of {}"_t(Excerpt(entry.name)))
          .Found("not all three"_t);
    }
    const std::optional<DType> known = DTypeOf(dtype);
    if (!known) {
      return Unsupported("{}: tensor {} has dtype {}"_t(path_, Excerpt(entry.name), Excerpt(dtype)))
          .Hint("convert it to one that PyTorch computes with, F32 for example"_t);
    }
    entry.dtype = *known;
    if (*known == DType::kFloat4E2M1X2) {  // the file counts elements, two to a byte
      if (entry.shape.empty() || entry.shape.back() % 2 != 0)
        return fail().Expected("an even last extent of F4"_t).Found(ShapeText(entry.shape));
      entry.shape.back() /= 2;
    }
    const Result<int64_t> size = CheckedByteSize(entry.dtype, entry.shape);
    if (!size.ok() || end < begin || end - begin != *size) {
      return fail()
          .Expected(size.ok() ? "{} bytes for {}, shape {} of {}"_t(*size, Excerpt(entry.name),
                                                                    ShapeText(entry.shape), dtype)
                              : "a tensor of less than 2^63 bytes"_t)
          .Found(size.ok() ? Message(fmt::format("data_offsets [{}, {}]", begin, end))
                           : "shape {}"_t(ShapeText(entry.shape)));
    }
    entry.offset = static_cast<uint64_t>(begin);
    entry.size = static_cast<uint64_t>(*size);
    out_.entries_.push_back(std::move(entry));
    return Status::Ok();
  }

  JsonCursor json_;
  const std::string& path_;
  SafetensorsFile& out_;
};

bool LooksLikeSafetensors(std::string_view bytes) {
  return bytes.size() > kHeaderLengthBytes && bytes[kHeaderLengthBytes] == '{' &&
         HeaderLength(bytes) <= kMaxHeader;
}

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  return Open(std::move(file));
}

Result<SafetensorsFile> SafetensorsFile::Open(MappedFile mapped) {
  SafetensorsFile out;
  out.file_ = std::make_shared<const MappedFile>(std::move(mapped));
  const std::string& path = out.file_->path();
  const std::string_view bytes = out.file_->bytes();
  const uint64_t length = HeaderLength(bytes);
  if (bytes.size() <= kHeaderLengthBytes || length < 2 || length > kMaxHeader) {
    return InvalidDump(path, 0)
        .Expected("the length of a safetensors header, 2 to {} bytes"_t(kMaxHeader))
        .Found(bytes.empty()                        ? "an empty file"_t
               : bytes.size() <= kHeaderLengthBytes ? "a file of {} bytes"_t(bytes.size())
                                                    : fmt::format("{}", length));
  }
  if (length > bytes.size() - kHeaderLengthBytes) {
    return InvalidDump(path, 0)
        .Expected("a header of {} bytes"_t(length))
        .Found("{} bytes up to the end of the file"_t(bytes.size() - kHeaderLengthBytes));
  }
  const size_t data_at = kHeaderLengthBytes + length;
  MSPROBE_RETURN_IF_ERROR(SafetensorsHeader(bytes.substr(0, data_at), &out).Parse());

  auto& entries = out.entries_;
  std::stable_sort(entries.begin(), entries.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return a.offset != b.offset ? a.offset < b.offset : a.size < b.size;
                   });
  uint64_t next = 0;
  for (SafetensorsEntry& entry : entries) {
    if (entry.offset != next) {
      return InvalidDump(path, data_at + std::min<uint64_t>(next, bytes.size() - data_at))
          .Expected("the data of {} from byte {} of the tensors on"_t(Excerpt(entry.name), next))
          .Found("byte {}: {}"_t(entry.offset, entry.offset < next ? "an overlap"_t : "a hole"_t));
    }
    next += entry.size;  // cannot overflow: each offset and size is below 2^63
    entry.offset += data_at;
  }
  if (next != bytes.size() - data_at) {
    return InvalidDump(path, data_at)
        .Expected("{} bytes of tensors"_t(next))
        .Found(fmt::format("{}", bytes.size() - data_at));
  }
  out.by_name_.resize(entries.size());
  std::iota(out.by_name_.begin(), out.by_name_.end(), 0u);
  std::sort(out.by_name_.begin(), out.by_name_.end(),
            [&](uint32_t a, uint32_t b) { return entries[a].name < entries[b].name; });
  for (size_t i = 1; i < entries.size(); ++i) {
    const std::string& name = entries[out.by_name_[i]].name;
    if (name == entries[out.by_name_[i - 1]].name) {
      return InvalidDump(path, kHeaderLengthBytes)
          .Expected("each name once"_t)
          .Found("{} twice"_t(Excerpt(name)));
    }
  }
  return out;
}

const SafetensorsEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](uint32_t i, std::string_view n) { return entries_[i].name < n; });
  if (found == by_name_.end() || entries_[*found].name != name) return nullptr;
  return &entries_[*found];
}

Result<TensorFile> SafetensorsFile::Read(const SafetensorsEntry& entry) const {
  TensorFile tensor{
      .dtype = entry.dtype, .shape = entry.shape, .strides = ContiguousStrides(entry.shape)};
  const char* const data = file_->bytes().data() + entry.offset;
  if (reinterpret_cast<uintptr_t>(data) % DTypeSize(entry.dtype) == 0) {
    tensor.data = data;
    tensor.owner = file_;
    return tensor;
  }
  std::shared_ptr<char[]> copy(new (std::nothrow) char[std::max<uint64_t>(entry.size, 1)]);
  if (copy == nullptr)
    return Unsupported("{}: not enough memory for {} bytes"_t(file_->path(), entry.size));
  CopyAndForget(file_->bytes().substr(entry.offset, entry.size), copy.get());
  tensor.data = copy.get();
  tensor.owner = copy;
  return tensor;
}

Result<TensorFile> ReadSafetensorsTensor(MappedFile file) {
  MSPROBE_ASSIGN_OR_RETURN(const SafetensorsFile tensors, SafetensorsFile::Open(std::move(file)));
  if (tensors.entries().size() != 1) {
    return Unsupported(
        "{}: expected one tensor, found {}"_t(tensors.path(), tensors.entries().size()));
  }
  return tensors.Read(tensors.entries()[0]);
}

}  // namespace msprobe::formats
