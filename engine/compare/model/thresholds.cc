#include "engine/compare/model/thresholds.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "engine/base/text.h"
#include "engine/formats/text/yaml_file.h"
#include "thresholds_shipped.h"

namespace msprobe::compare {
namespace {

struct Field {
  std::string_view section, key;
  double& (*of)(Thresholds&);
};
#define MSPROBE_FIELD(section, member, key)                              \
  Field {                                                                \
    section, #key, [](Thresholds& t) -> double& { return t.member.key; } \
  }
constexpr std::array kFields = {
    MSPROBE_FIELD("table26_rules", rules26, input_thousandth),
    MSPROBE_FIELD("table26_rules", rules26, output_thousandth),
    MSPROBE_FIELD("table26_rules", rules26, input_norm),
    MSPROBE_FIELD("table26_rules", rules26, output_norm),
    MSPROBE_FIELD("table26_rules", rules26, norm_factor),
    MSPROBE_FIELD("table26_rules", rules26, norm_from_zero),
    MSPROBE_FIELD("table26_rules", rules26, input_cosine),
    MSPROBE_FIELD("table26_rules", rules26, cosine_drop),
    MSPROBE_FIELD("rules_8", rules8, cosine),
    MSPROBE_FIELD("rules_8", rules8, max_abs_error),
    MSPROBE_FIELD("rules_8", rules8, worst_cosine),
    MSPROBE_FIELD("rules_8", rules8, worst_max_abs_error),
    MSPROBE_FIELD("rules_8", rules8, statistics),
    MSPROBE_FIELD("highlight", highlight, max_abs_error),
    MSPROBE_FIELD("highlight", highlight, input_thousandth),
    MSPROBE_FIELD("highlight", highlight, output_thousandth),
    MSPROBE_FIELD("highlight", highlight, output_relative),
    MSPROBE_FIELD("highlight", highlight, order_from),
    MSPROBE_FIELD("highlight", highlight, order_of_magnitude),
    MSPROBE_FIELD("highlight", highlight, thousandth_drop),
    MSPROBE_FIELD("highlight", highlight, cosine_drop),
    MSPROBE_FIELD("highlight", highlight, output_relative_yellow),
    MSPROBE_FIELD("highlight", highlight, input_relative),
};
#undef MSPROBE_FIELD

int FieldIndex(std::string_view section, std::string_view key) {
  for (size_t i = 0; i < kFields.size(); ++i) {
    if (kFields[i].section == section && kFields[i].key == key) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

// Reads one YAML document and changes the limits that it names.
class ThresholdReader {
 public:
  ThresholdReader(std::string_view path, ThresholdTable* table) : path_(path), table_(*table) {}

  Status Run(const YAML::Node& root) {
    if (root.IsNull()) return Status::Ok();
    if (!root.IsMap()) return Wrong(root, "sections such as table26_rules: and overrides:"_t);
    for (const auto& section : root) {
      const std::string name = section.first.Scalar();
      if (name == "rounding") {
        MSPROBE_RETURN_IF_ERROR(Rounding(section.second));
      } else if (name == "overrides") {
        if (!section.second.IsSequence()) return Wrong(section.second, "a list of overrides"_t);
        for (const YAML::Node& item : section.second) {
          MSPROBE_RETURN_IF_ERROR(Override(item));
        }
      } else {
        MSPROBE_RETURN_IF_ERROR(Section(name, section.first, section.second, nullptr));
      }
    }
    return Status::Ok();
  }

 private:
  Status Wrong(const YAML::Node& node, Message expected) const {
    return formats::WrongYaml(path_, node, std::move(expected));
  }

  Status Unknown(const YAML::Node& node, std::span<const std::string_view> known) const {
    return formats::UnknownYaml(path_, node, known);
  }

  Status Number(const YAML::Node& node, double* value) const {
    if (node.IsScalar()) {
      const std::string& text = node.Scalar();
      const auto end = text.data() + text.size();
      const auto parsed = std::from_chars(text.data(), end, *value);
      if (parsed.ec == std::errc() && parsed.ptr == end && std::isfinite(*value) && *value >= 0)
        return Status::Ok();
    }
    return Wrong(node, "a number of 0 or more"_t);
  }

  Status Section(const std::string& name, const YAML::Node& at, const YAML::Node& values,
                 ThresholdTable::Override* into) {
    static constexpr std::array<std::string_view, 5> kSections = {
        "table26_rules", "rules_8", "highlight", "rounding", "overrides"};
    std::vector<std::string_view> keys;
    for (const Field& field : kFields) {
      if (field.section == name) keys.push_back(field.key);
    }
    if (keys.empty()) return Unknown(at, kSections);
    if (!values.IsMap()) return Wrong(values, "keys and numbers below the section"_t);
    for (const auto& entry : values) {
      const int index = FieldIndex(name, entry.first.Scalar());
      if (index < 0) return Unknown(entry.first, keys);
      double value = 0;
      MSPROBE_RETURN_IF_ERROR(Number(entry.second, &value));
      if (into != nullptr) {
        into->values.emplace_back(index, value);
      } else {
        kFields[static_cast<size_t>(index)].of(table_.base_) = value;
      }
    }
    return Status::Ok();
  }

  // The name of the dtype, spelled as in rounding.h.
  Result<std::string> DType(const YAML::Node& node) const {
    const std::string_view name = node.IsScalar() ? RoundingOf(node.Scalar()).name : "";
    if (name.empty()) return Wrong(node, "a dtype such as float16"_t);
    return std::string(name);
  }

  // Integers and bool are exact: a number of roundings would be read and ignored.
  Result<std::string> RoundedDType(const YAML::Node& node) const {
    MSPROBE_ASSIGN_OR_RETURN(std::string dtype, DType(node));
    if (RoundingOf(ElementType(dtype)).epsilon == 0)
      return Wrong(node, "a float or complex dtype; others are exact"_t);
    return dtype;
  }

  Status Rounding(const YAML::Node& values) {
    if (!values.IsMap()) return Wrong(values, "dtypes and numbers below rounding"_t);
    for (const auto& entry : values) {
      MSPROBE_ASSIGN_OR_RETURN(const std::string dtype, RoundedDType(entry.first));
      double value = 0;
      MSPROBE_RETURN_IF_ERROR(Number(entry.second, &value));
      table_.rounding_[dtype] = value;
      table_.changes_rounding_ = true;
    }
    return Status::Ok();
  }

  Status Override(const YAML::Node& item) {
    if (!item.IsMap()) return Wrong(item, "an override: operation, dtype, and what they change"_t);
    ThresholdTable::Override made;
    for (const auto& entry : item) {
      const std::string key = entry.first.Scalar();
      if (key == "operation") {
        if (!entry.second.IsScalar() || entry.second.Scalar().empty())
          return Wrong(entry.second, "the name of an operation"_t);
        made.operation = entry.second.Scalar();
      } else if (key == "dtype") {
        MSPROBE_ASSIGN_OR_RETURN(made.dtype, DType(entry.second));
      } else if (key == "rounding") {
        MSPROBE_RETURN_IF_ERROR(Number(entry.second, &made.rounding));
        table_.changes_rounding_ = true;
      } else {
        MSPROBE_RETURN_IF_ERROR(Section(key, entry.first, entry.second, &made));
      }
    }
    if (made.rounding >= 0 && !made.dtype.empty())
      MSPROBE_RETURN_IF_ERROR(RoundedDType(item["dtype"]).status());
    if (made.operation.empty() && made.dtype.empty())
      return Wrong(item, "operation: or dtype: in an override"_t);
    table_.overrides_.push_back(std::move(made));
    return Status::Ok();
  }

  const std::string path_;
  ThresholdTable& table_;
};

const ThresholdTable& ThresholdTable::Shipped() {
  static const ThresholdTable table = [] {
    ThresholdTable made;
    const Status status =
        ThresholdReader("thresholds.yaml", &made).Run(YAML::Load(std::string(kShippedThresholds)));
    if (!status.ok()) std::abort();  // cannot happen: the file is part of the program, and tested
    made.changes_rounding_ = false;
    return made;
  }();
  return table;
}

Result<ThresholdTable> ThresholdTable::Parse(std::string_view text, std::string_view path) {
  ThresholdTable table = Shipped();
  try {
    MSPROBE_RETURN_IF_ERROR(ThresholdReader(path, &table).Run(YAML::Load(std::string(text))));
  } catch (const YAML::Exception& error) {
    return formats::WrongYaml(std::string(path), error.mark, std::string("YAML")).Found(error.msg);
  }
  table.text_ = text;
  return table;
}

Result<ThresholdTable> ThresholdTable::Read(const std::string& path) {
  constexpr size_t kMaxBytes = 1 << 20;
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > kMaxBytes)
    return InvalidConfig(path).Expected("a file of at most 1 MiB"_t);
  return Parse(file.bytes(), path);
}

bool ThresholdTable::Override::Fits(std::string_view api, std::string_view name) const {
  if (!dtype.empty() && dtype != name) return false;
  return operation.empty() || operation == api || operation == api.substr(api.rfind('.') + 1);
}

const Thresholds& ThresholdTable::Overridden(std::string_view api, ElementType dtype,
                                             Thresholds* scratch) const {
  *scratch = base_;
  const std::string_view name = RoundingOf(dtype).name;
  for (const Override& o : overrides_) {
    if (!o.Fits(api, name)) continue;
    for (const auto& [index, value] : o.values) {
      kFields[static_cast<size_t>(index)].of(*scratch) = value;
    }
  }
  return *scratch;
}

double ThresholdTable::ChangedRounding(std::string_view api, const Rounding& r) const {
  if (r.explained == 0) return 1;
  const auto base = rounding_.find(r.name);
  double explained = base != rounding_.end() ? base->second : r.explained;
  for (const Override& o : overrides_) {
    if (o.rounding >= 0 && o.Fits(api, r.name)) explained = o.rounding;
  }
  return explained / r.explained;
}

}  // namespace msprobe::compare
