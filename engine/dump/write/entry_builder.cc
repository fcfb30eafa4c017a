#include "engine/dump/write/entry_builder.h"

#include "engine/base/text.h"
#include "engine/dump/write/late_stats.h"

namespace msprobe::dump {
namespace {

// 255 less what a temporary file beside it has behind its name (".<pid>.<number>.part").
constexpr size_t kMaxFileName = 220;

void AppendNumber(std::string* out, const TensorFields& fields, double value) {
  fields.is_narrow_float ? AppendPythonFloat32(out, value) : AppendPythonFloat(out, value);
}

void AppendExtremum(std::string* out, const TensorFields& fields, double value, int64_t exact) {
  if (fields.stats->count == 0) {
    *out += "null";
    return;
  }
  switch (fields.kind) {
    case DTypeKind::kBool:
      *out += exact ? "true" : "false";
      return;
    case DTypeKind::kUnsigned:
    case DTypeKind::kSigned:
      if (fields.is_unsigned64) {
        AppendUnsigned(out, static_cast<uint64_t>(exact));
      } else {
        AppendInteger(out, exact);
      }
      return;
    case DTypeKind::kFloat:
    case DTypeKind::kComplex:
      AppendNumber(out, fields, value);
      return;
  }
}

void AppendCount(std::string* out, std::string_view key, int64_t count) {
  if (count == 0) return;
  *out += ",\"";
  *out += key;
  *out += "\":";
  AppendInteger(out, count);
}

void AppendChecksum(std::string* out, const TensorFields& fields) {
  if (fields.checksum == kernels::Checksum::kNone || fields.stats == nullptr) return;
  *out += ",\"md5\":\"";
  if (fields.checksum == kernels::Checksum::kCrc32) {
    AppendHex(out, fields.stats->checksum, 8);
  } else {
    *out += "0x";
    AppendHex(out, fields.stats->checksum, 16);
  }
  *out += '"';
}

}  // namespace

void AppendStatistics(std::string* out, const TensorFields& fields) {
  const kernels::Stats* stats = fields.stats;
  if (stats == nullptr) {
    *out += R"(,"Max":null,"Min":null,"Mean":null,"Norm":null)";
    return;
  }
  *out += ",\"Max\":";
  AppendExtremum(out, fields, stats->max, stats->int_max);
  *out += ",\"Min\":";
  AppendExtremum(out, fields, stats->min, stats->int_min);
  if (stats->count == 0) {
    *out += R"(,"Mean":null,"Norm":null)";
    return;
  }
  *out += ",\"Mean\":";
  AppendNumber(out, fields, stats->mean);
  *out += ",\"Norm\":";
  AppendNumber(out, fields, stats->norm);
}

void AppendCounts(std::string* out, const TensorFields& fields) {
  AppendCount(out, "nan", fields.stats->nan);
  AppendCount(out, "pos_inf", fields.stats->pos_inf);
  AppendCount(out, "neg_inf", fields.stats->neg_inf);
  AppendCount(out, "zero", fields.stats->zero);
}

void AppendTensor(std::string* out, const TensorFields& fields) {
  *out += "{\"type\":";
  AppendJsonString(out, fields.type);
  *out += ",\"dtype\":\"";
  *out += fields.dtype;
  *out += "\",\"shape\":[";
  for (size_t d = 0; d < fields.shape.size(); ++d) {
    if (d) *out += ", ";  // as Python prints a list: readers take the text as it stands
    AppendInteger(out, fields.shape[d]);
  }
  *out += ']';
  if (fields.later >= 0) {
    AppendLateStats(out, fields);
  } else {
    fields.statistics ? AppendStatistics(out, fields) : AppendChecksum(out, fields);
  }
  if (fields.requires_grad >= 0)
    *out += fields.requires_grad ? ",\"requires_grad\":true" : ",\"requires_grad\":false";
  if (!fields.device_mesh.empty()) (*out += ",\"device_mesh\":") += fields.device_mesh;
  if (!fields.placements.empty()) (*out += ",\"placements\":") += fields.placements;
  if (!fields.data_name.empty()) {
    *out += ",\"data_name\":";
    AppendJsonString(out, fields.data_name);
  }
  if (fields.statistics) AppendChecksum(out, fields);
  if (fields.later >= 0) AppendLateCounts(out, fields);
  if (const kernels::Stats* stats = fields.stats; stats != nullptr) {
    if ((fields.statistics && fields.with_counts) || fields.counts) AppendCounts(out, fields);
    if (fields.first_nonfinite >= 0) {
      *out += ",\"first_nonfinite\":";
      AppendInteger(out, fields.first_nonfinite);
    }
    if (fields.fingerprint) {
      *out += ",\"fp\":\"";
      AppendBase64(out, stats->fingerprint);
      *out += '"';
    }
  }
  *out += '}';
}

std::string SafeFileName(std::string_view text, std::string_view extension) {
  std::string name;
  for (const char c : text)
    name += c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '_' : c;
  const bool too_long = name.size() + extension.size() > kMaxFileName;
  if (too_long || name != text) {         // two texts, two names
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    std::string head;
    AppendHex(&head, hash, 16);
    head += '_';
    const size_t room = kMaxFileName - extension.size() - head.size();
    size_t begin = name.size() > room ? name.size() - room : 0;
    while (begin < name.size() && (name[begin] & 0xC0) == 0x80) ++begin;  // whole characters
    name = head + name.substr(begin);
  }
  name += extension;
  return name;
}

void EntryBuilder::Begin(std::string_view name) {
  name_ = name;
  out_.clear();
  path_.clear();
  depth_ = 0;
  AppendJsonString(&out_, name);
  out_ += ": {";
  comma_ = false;
}

std::string_view EntryBuilder::Finish() {
  out_ += '}';
  return out_;
}

void EntryBuilder::Reopen() { out_.pop_back(); }

void EntryBuilder::BeginValue(std::string_view name) {
  Begin(name);
  out_.pop_back();
  category_ = {};
  frames_[depth_++] = {0, -1};
}

std::string_view EntryBuilder::FinishValue() {
  --depth_;
  return out_;
}

void EntryBuilder::Comma() {
  if (comma_) out_ += ",";
  comma_ = true;
}

void EntryBuilder::OpenContainer(char bracket, bool counts) {
  out_ += bracket;
  frames_[depth_++] = {path_.size(), counts ? 0 : -1};
  comma_ = false;
}

void EntryBuilder::CloseContainer(char bracket) {
  --depth_;
  out_ += bracket;
  comma_ = true;
}

void EntryBuilder::BeginSlot(std::string_view key, std::string_view category, char open) {
  Comma();
  out_ += '"';
  out_ += key;
  out_ += "\":";
  category_ = category;
  path_.clear();
  OpenContainer(open, open == '[');
}

void EntryBuilder::BeginBareSlot(std::string_view key, std::string_view category) {
  RawField(key, "");
  category_ = category;
  path_.clear();
  frames_[depth_++] = {0, -1};
}

void EntryBuilder::EndSlot(char close) { CloseContainer(close); }

void EntryBuilder::Field(std::string_view key, std::string_view value) {
  RawField(key, "");
  AppendJsonString(&out_, value);
}

void EntryBuilder::ForgetFile(std::string_view file_name) {
  constexpr std::string_view kKey = "\"data_name\":";
  std::string text(kKey);
  AppendJsonString(&text, file_name);
  if (const size_t at = out_.find(text); at != std::string::npos)
    out_.replace(at + kKey.size(), text.size() - kKey.size(), "\"-1\"");
}

void EntryBuilder::RawField(std::string_view key, std::string_view json) {
  Comma();
  out_ += '"';
  out_ += key;
  out_ += "\":";
  out_ += json;
}

namespace {

// Keeps the path of the current element: steps to the next index of a list.
void NextIndex(std::string* path, size_t size, int64_t* index) {
  path->resize(size);
  *path += '.';
  AppendInteger(path, (*index)++);
}

}  // namespace

// Every value passes here first: separator, and the element's place in the path.
#define MSPROBE_BEGIN_VALUE()                           \
  do {                                                  \
    Frame& frame = frames_[depth_ - 1];                 \
    if (frame.index >= 0) {                             \
      Comma();                                          \
      NextIndex(&path_, frame.path_size, &frame.index); \
    }                                                   \
  } while (false)

void EntryBuilder::Key(std::string_view key) {
  Comma();
  AppendJsonString(&out_, key);
  out_ += ":";
  path_.resize(frames_[depth_ - 1].path_size);
  path_ += '.';
  path_ += key;
}

void EntryBuilder::BeginList() {
  MSPROBE_BEGIN_VALUE();
  OpenContainer('[', true);
}
void EntryBuilder::EndList() { CloseContainer(']'); }
void EntryBuilder::BeginObject() {
  MSPROBE_BEGIN_VALUE();
  OpenContainer('{', false);
}
void EntryBuilder::EndObject() { CloseContainer('}'); }

void EntryBuilder::Null() {
  MSPROBE_BEGIN_VALUE();
  out_ += "null";
}

void EntryBuilder::Tensor(const TensorFields& fields) {
  MSPROBE_BEGIN_VALUE();
  AppendTensor(&out_, fields);
}

void EntryBuilder::Raw(std::string_view type, std::string_view json_value) {
  MSPROBE_BEGIN_VALUE();
  out_ += "{\"type\":";
  AppendJsonString(&out_, type);
  out_ += ",\"value\":";
  out_ += json_value;
  out_ += '}';
}

void EntryBuilder::Bool(bool value) { Raw("bool", value ? "true" : "false"); }

void EntryBuilder::Int(std::string_view type, int64_t value) {
  MSPROBE_BEGIN_VALUE();
  out_ += "{\"type\":";
  AppendJsonString(&out_, type);
  out_ += ",\"value\":";
  AppendInteger(&out_, value);
  out_ += '}';
}

void EntryBuilder::Float(std::string_view type, double value) {
  MSPROBE_BEGIN_VALUE();
  out_ += "{\"type\":";
  AppendJsonString(&out_, type);
  out_ += ",\"value\":";
  AppendPythonFloat(&out_, value);
  out_ += '}';
}

void EntryBuilder::String(std::string_view type, std::string_view value) {
  Member(type, "value", value);
}

void EntryBuilder::Member(std::string_view type, std::string_view key, std::string_view value) {
  MSPROBE_BEGIN_VALUE();
  out_ += "{\"type\":";
  AppendJsonString(&out_, type);
  out_ += ",";
  AppendJsonString(&out_, key);
  out_ += ":";
  AppendJsonString(&out_, value);
  out_ += '}';
}

void EntryBuilder::Piece(std::string_view json) {
  MSPROBE_BEGIN_VALUE();
  out_ += json;
}

#undef MSPROBE_BEGIN_VALUE

std::string EntryBuilder::TensorFileName() const {
  // The element about to be written: the next index of a list, or the key just given in an object.
  std::string name = name_;
  if (!category_.empty()) {
    name += '.';
    name += category_;
  }
  const Frame& frame = frames_[depth_ - 1];
  if (frame.index >= 0) {
    name.append(path_, 0, frame.path_size);
    name += '.';
    AppendInteger(&name, frame.index);
  } else {
    name += path_;
  }
  return SafeFileName(name, ".pt");
}

}  // namespace msprobe::dump
