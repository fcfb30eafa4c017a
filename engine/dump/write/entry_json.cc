#include "engine/dump/write/entry_json.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/base/text.h"
#include "engine/model/guarded_text.h"
#include "engine/model/precision_text.h"
#include "engine/model/sketch_text.h"

namespace msprobe::dump {
namespace {

using namespace std::string_view_literals;

void AppendFloat(std::string* out, const TensorValue& tensor, double value) {
  // A narrow float's number needs no more digits than a float32 has.
  IsNarrowFloat(tensor.element_type) ? AppendPythonFloat32(out, value)
                                     : AppendPythonFloat(out, value);
}

void AppendExtremum(std::string* out, const TensorValue& tensor, double value, int64_t exact) {
  switch (DTypeKindOf(tensor.element_type)) {
    case DTypeKind::kBool:
      *out += exact ? "true" : "false";
      return;
    case DTypeKind::kUnsigned:
    case DTypeKind::kSigned:
      if (tensor.element_type == DType::kUInt64) {
        AppendUnsigned(out, static_cast<uint64_t>(exact));
      } else {
        AppendInteger(out, exact);
      }
      return;
    case DTypeKind::kFloat:
    case DTypeKind::kComplex:
      AppendFloat(out, tensor, value);
      return;
  }
}

void AppendStatistics(std::string* out, const TensorValue& tensor) {
  if (!tensor.measured()) {
    *out += R"(,"Max":null,"Min":null,"Mean":null,"Norm":null)";
    return;
  }
  *out += ",\"Max\":";
  AppendStatistic(out, tensor, Statistic::kMax);
  *out += ",\"Min\":";
  AppendStatistic(out, tensor, Statistic::kMin);
  *out += ",\"Mean\":";
  AppendStatistic(out, tensor, Statistic::kMean);
  *out += ",\"Norm\":";
  AppendStatistic(out, tensor, Statistic::kNorm);
}

void AppendCount(std::string* out, std::string_view key, int64_t count) {
  if (count == 0) return;
  *out += ",\"";
  *out += key;
  *out += "\":";
  AppendInteger(out, count);
}

// The numbers of the elements that are no extremes.
void AppendRest(std::string* out, const TensorValue& tensor) {
  AppendCount(out, "extremes", tensor.rest->extremes);
  *out += ",\"rest_max\":";
  AppendFloat(out, tensor, tensor.rest->max);
  *out += ",\"rest_min\":";
  AppendFloat(out, tensor, tensor.rest->min);
  *out += ",\"rest_norm\":";
  AppendFloat(out, tensor, tensor.rest->norm);
}

void AppendChecksumMember(std::string* out, const TensorValue& tensor) {
  if (tensor.checksum == kernels::Checksum::kNone || tensor.numbers != TensorValue::Numbers::kHere)
    return;
  *out += ",\"md5\":\"";
  AppendChecksum(out, tensor);
  *out += '"';
}

// What stands at the end: counts, the numbers without extremes, fingerprint, sketch.
void AppendOthers(std::string* out, const TensorValue& tensor) {
  if (tensor.measured()) {
    if (tensor.with_counts) {
      AppendCount(out, "nan", tensor.stats.nan);
      AppendCount(out, "pos_inf", tensor.stats.pos_inf);
      AppendCount(out, "neg_inf", tensor.stats.neg_inf);
      AppendCount(out, "zero", tensor.stats.zero);
    }
    if (tensor.rest && tensor.with_statistics) AppendRest(out, tensor);
    if (tensor.first_nonfinite >= 0) {
      *out += ",\"first_nonfinite\":";
      AppendInteger(out, tensor.first_nonfinite);
    }
  }
  if (tensor.with_fingerprint && tensor.numbers == TensorValue::Numbers::kHere) {
    *out += ",\"fp\":\"";
    AppendBase64(out, tensor.stats.fingerprint);
    *out += '"';
  }
  if (tensor.sketch && tensor.with_statistics && tensor.numbers == TensorValue::Numbers::kHere) {
    *out += ",\"sk\":\"";
    AppendSketch(out, *tensor.sketch);
    *out += '"';
  }
}

// The text before the numbers: type, dtype and shape.
void AppendKind(std::string* out, const TensorValue& tensor) {
  *out += "{\"type\":";
  AppendJsonString(out, tensor.type);
  *out += ",\"dtype\":\"";
  *out += tensor.dtype;
  *out += "\",\"shape\":";
  AppendShape(out, tensor.shape);
}

// The texts of a tensor's numbers, and the text before them. A tensor is in the entries of several
// calls, and to spell its numbers takes longer than all else that its line needs: those that were
// spelled lately are kept.
struct KnownTexts {
  DType element_type = DType::kFloat32;
  kernels::Stats stats;
  std::optional<kernels::RestStats> rest;
  std::optional<kernels::Sketch> sketch;
  std::string statistics, others;
  std::string type, dtype;
  std::vector<int64_t> shape;
  std::string kind;

  // Bit by bit: -0 and 0 are spelled differently, and NaN equals itself.
  bool HasNumbersOf(const TensorValue& tensor) const {
    static_assert(sizeof(stats) == 13 * 8 && sizeof(*rest) == 4 * 8, "no gaps");
    const auto same = [](const auto& a, const auto& b) {
      using Words = std::array<uint64_t, sizeof(a) / sizeof(uint64_t)>;
      return std::bit_cast<Words>(a) == std::bit_cast<Words>(b);
    };
    const auto same_sketch = [&](const kernels::Sketch& a, const kernels::Sketch& b) {
      return same(a.rows, b.rows) && same(a.wave, b.wave) && same(a.squares, b.squares) &&
             a.grid.has_value() == b.grid.has_value() && (!a.grid || same(*a.grid, *b.grid));
    };
    return element_type == tensor.element_type && same(stats, tensor.stats) &&
           rest.has_value() == tensor.rest.has_value() && (!rest || same(*rest, *tensor.rest)) &&
           sketch.has_value() == tensor.sketch.has_value() &&
           (!sketch || same_sketch(*sketch, *tensor.sketch));
  }
  bool HasKindOf(const TensorValue& tensor) const {
    return shape == tensor.shape && dtype == tensor.dtype && type == tensor.type;
  }

  void SpellNumbers(const TensorValue& tensor) {
    element_type = tensor.element_type;
    stats = tensor.stats;
    rest = tensor.rest;
    sketch = tensor.sketch;
    statistics.clear();
    others.clear();
    AppendStatistics(&statistics, tensor);
    AppendOthers(&others, tensor);
  }
  void SpellKind(const TensorValue& tensor) {
    type = tensor.type;
    dtype = tensor.dtype;
    shape = tensor.shape;
    kind.clear();
    AppendKind(&kind, tensor);
  }
};

// Those of a tensor with statistics, counts and fingerprint and nothing else; null: of another one.
const KnownTexts* FindTexts(const TensorValue& tensor) {
  if (!tensor.with_statistics || !tensor.with_counts || !tensor.with_fingerprint ||
      tensor.numbers != TensorValue::Numbers::kHere || tensor.first_nonfinite >= 0 ||
      tensor.checksum != kernels::Checksum::kNone)
    return nullptr;
  constexpr size_t kSlots = 1024;
  thread_local std::vector<KnownTexts> slots(kSlots);
  // Equal bytes of another shape have another sketch.
  const uint64_t shape = tensor.sketch ? std::bit_cast<uint64_t>(tensor.sketch->wave.imag()) : 0;
  KnownTexts& texts = slots[(tensor.stats.fingerprint ^ shape) % kSlots];
  if (texts.statistics.empty() || !texts.HasNumbersOf(tensor)) texts.SpellNumbers(tensor);
  if (texts.kind.empty() || !texts.HasKindOf(tensor)) texts.SpellKind(tensor);
  return &texts;
}

void AppendIntList(std::string* out, std::span<const std::optional<int64_t>> numbers) {
  *out += '[';
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) *out += ", ";
    if (numbers[i]) {
      AppendInteger(out, *numbers[i]);
    } else {
      *out += "null";
    }
  }
  *out += ']';
}

void AppendField(std::string* out, std::string_view key, std::string_view value) {
  ((*out += ",\"") += key) += "\":";
  AppendJsonString(out, value);
}

void AppendGroup(std::string* out, const CollectiveGroup& group) {
  const auto number = [&](const char* key, int64_t value) {
    if (value < 0) return;
    ((*out += ", \"") += key) += "\": ";
    AppendInteger(out, value);
  };
  *out += ",\"group\":{\"ranks\": ";
  AppendShape(out, group.ranks);
  ((*out += ", \"id\": \"") += group.id) += '"';
  number("rank", group.place);
  if (group.role == CollectiveGroup::Role::kSource) *out += ", \"role\": \"source\"";
  if (group.role == CollectiveGroup::Role::kReceiver) *out += ", \"role\": \"receiver\"";
  number("from", group.from);
  number("to", group.to);
  *out += '}';
}

// Writes the values of one entry, which refer to each other by index.
class ValueJson {
 public:
  ValueJson(std::string* out, const Entry& entry) : out_(*out), entry_(entry) {}

  void Write(uint32_t index) {
    const Entry::Value& value = entry_.values()[index];
    switch (value.kind) {
      case Entry::Kind::kNull:
        out_ += "null";
        return;
      case Entry::Kind::kTensor:
        AppendTensorJson(&out_, entry_.tensor(value));
        return;
      case Entry::Kind::kBool:
      case Entry::Kind::kInt:
      case Entry::Kind::kFloat:
      case Entry::Kind::kDigits:
        if (!value.bare) Head(value, "value");
        AppendNumber(&out_, entry_, value);
        if (!value.bare) out_ += '}';
        return;
      case Entry::Kind::kText:
        if (!value.bare) Head(value, entry_.text(value.text_key));
        AppendJsonString(&out_, GuardText(entry_.text(value.text), &room_));
        if (!value.bare) out_ += '}';
        return;
      case Entry::Kind::kInts:
        Head(value, "value");
        AppendIntList(&out_, entry_.ints(value));
        out_ += '}';
        return;
      case Entry::Kind::kGroup:
        out_ += R"({"type": "torch.ProcessGroup", "group_ranks": )";
        AppendIntList(&out_, entry_.ints(value));
        ((out_ += R"(, "group_id": ")") += entry_.text(value.text)) += "\"}";
        return;
      case Entry::Kind::kList:
      case Entry::Kind::kDict:
        Members(index);
        return;
    }
  }

 private:
  // {"type":"int","value":
  void Head(const Entry::Value& value, std::string_view key) {
    out_ += "{\"type\":";
    AppendJsonString(&out_, entry_.text(value.type));
    out_ += ',';
    AppendJsonString(&out_, key);
    out_ += ':';
  }

  void Members(uint32_t index) {
    const Entry::Value& container = entry_.values()[index];
    const bool is_dict = container.kind == Entry::Kind::kDict;
    out_ += is_dict ? '{' : '[';
    for (uint32_t i = index + 1; i < container.end; i = entry_.values()[i].end) {
      if (i > index + 1) out_ += ',';
      if (is_dict) {
        AppendJsonString(&out_, entry_.text(entry_.values()[i].key));
        out_ += ':';
      }
      Write(i);
    }
    out_ += is_dict ? '}' : ']';
  }

  std::string& out_;
  const Entry& entry_;
  std::string room_;  // of GuardText
};

}  // namespace

void AppendStatistic(std::string* out, const TensorValue& tensor, Statistic which) {
  const kernels::Stats& stats = tensor.stats;
  if (stats.count == 0) {
    *out += "null";
    return;
  }
  switch (which) {
    case Statistic::kMax:
      return AppendExtremum(out, tensor, stats.max, stats.int_max);
    case Statistic::kMin:
      return AppendExtremum(out, tensor, stats.min, stats.int_min);
    case Statistic::kMean:
      return AppendFloat(out, tensor, stats.mean);
    case Statistic::kNorm:
      return AppendFloat(out, tensor, stats.norm);
  }
}

std::optional<double> StatisticNumber(const TensorValue& tensor, Statistic which) {
  const kernels::Stats& stats = tensor.stats;
  if (stats.count == 0) return std::nullopt;
  const DTypeKind kind = DTypeKindOf(tensor.element_type);
  const bool is_extremum = which == Statistic::kMax || which == Statistic::kMin;
  if (is_extremum && kind != DTypeKind::kFloat && kind != DTypeKind::kComplex) return std::nullopt;
  const double value = which == Statistic::kMax    ? stats.max
                       : which == Statistic::kMin  ? stats.min
                       : which == Statistic::kMean ? stats.mean
                                                   : stats.norm;
  if (!std::isfinite(value)) return std::nullopt;
  return IsNarrowFloat(tensor.element_type) ? RoundToFloat32(value) : value;
}

void AppendNumber(std::string* out, const Entry& entry, const Entry::Value& value) {
  switch (value.kind) {
    case Entry::Kind::kBool:
      *out += value.integer != 0 ? "true" : "false";
      return;
    case Entry::Kind::kInt:
      return AppendInteger(out, value.integer);
    case Entry::Kind::kFloat:
      return AppendPythonFloat(out, value.number);
    default:
      *out += entry.text(value.text);
  }
}

void AppendShape(std::string* out, std::span<const int64_t> shape) {
  *out += '[';
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d > 0) *out += ", ";
    AppendInteger(out, shape[d]);
  }
  *out += ']';
}

void AppendChecksum(std::string* out, const TensorValue& tensor) {
  switch (tensor.checksum) {
    case kernels::Checksum::kNone:
      return;
    case kernels::Checksum::kCrc32:
      return AppendHex(out, tensor.stats.checksum, 8);
    case kernels::Checksum::kXor:
      *out += "0x";
      return AppendHex(out, tensor.stats.checksum, 16);
  }
}

void AppendTensorJson(std::string* out, const TensorValue& tensor) {
  const KnownTexts* const known = FindTexts(tensor);
  if (known != nullptr) {
    *out += known->kind;
    *out += known->statistics;
  } else {
    AppendKind(out, tensor);
    tensor.with_statistics ? AppendStatistics(out, tensor) : AppendChecksumMember(out, tensor);
  }
  if (tensor.requires_grad)
    *out += *tensor.requires_grad ? ",\"requires_grad\":true"sv : ",\"requires_grad\":false"sv;
  if (!tensor.device_mesh.empty()) (*out += ",\"device_mesh\":") += tensor.device_mesh;
  if (!tensor.placements.empty()) (*out += ",\"placements\":") += tensor.placements;
  if (!tensor.global_shape.empty()) (*out += ",\"global_shape\":") += tensor.global_shape;
  if (!tensor.strides.empty()) {
    *out += ",\"stride\":";
    AppendShape(out, tensor.strides);
  }
  if (!tensor.vmap.empty()) {
    *out += ",\"vmap\":";
    AppendShape(out, tensor.vmap);
  }
  if (!tensor.unreadable.empty()) AppendField(out, "unreadable", tensor.unreadable);
  if (!tensor.unwritten.empty()) AppendField(out, "unwritten", tensor.unwritten);
  if (!tensor.file.empty()) AppendField(out, "data_name", tensor.file);
  if (known != nullptr) {
    *out += known->others;
  } else {
    if (tensor.with_statistics) AppendChecksumMember(out, tensor);
    AppendOthers(out, tensor);
  }
  *out += '}';
}

void AppendEntryJson(std::string* out, const Entry& entry) {
  AppendJsonString(out, entry.name());
  *out += ": "sv;
  ValueJson values(out, entry);
  if (entry.is_value()) {
    entry.values().empty() ? void(*out += "null") : values.Write(0);
    return;
  }
  *out += '{';
  const size_t begin = out->size();
  for (const Entry::Slot& slot : entry.slots()) {
    if (out->size() > begin) *out += ',';
    AppendJsonString(out, entry.text(slot.key));
    *out += ':';
    values.Write(slot.root);
  }
  const size_t fields = out->size();
  if (!entry.exception.empty()) AppendField(out, "exception", entry.exception);
  if (!entry.completion.empty()) AppendField(out, "async", entry.completion);
  if (!entry.changed_in_place.empty()) AppendField(out, "changed_in_place", entry.changed_in_place);
  if (!entry.group.ranks.empty()) AppendGroup(out, entry.group);
  if (entry.is_nan) *out += *entry.is_nan ? ",\"is_nan\":1" : ",\"is_nan\":0";
  if (entry.training) *out += *entry.training ? ",\"training\":true" : ",\"training\":false";
  if (!entry.random_state.empty()) AppendField(out, "random_state", entry.random_state);
  if (!entry.precision.empty()) AppendField(out, kPrecision, entry.precision);
  if (!entry.module.empty()) AppendField(out, "module", entry.module);
  // As text, like the keys of stack.json: the reader of msprobe 26 fails on a number here.
  if (entry.stack >= 0) {
    *out += ",\"stack\":\"";
    AppendInteger(out, entry.stack);
    *out += '"';
  }
  if (fields == begin && out->size() > begin) out->erase(begin, 1);  // no slot before the fields
  *out += '}';
}

}  // namespace msprobe::dump
