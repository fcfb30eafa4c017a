#include "engine/dump/line_composer.h"

#include "engine/base/text.h"
#include "engine/dump/line_names.h"
#include "engine/dump/names.h"

namespace msprobe {
namespace {

constexpr int kComplete = 101;  // in place of the step: an overflow's elements are all there

// "File a.py, line 3, in f, \n y = g(x)" as ["a.py", "3", "f", "y = g(x)"].
void AppendFrame(std::string* out, std::string_view frame) {
  if (frame.starts_with("File ")) frame.remove_prefix(5);
  *out += '[';
  for (const std::string_view end : {", line ", ", in ", ", \n"}) {
    const size_t at = frame.find(end);
    AppendJsonString(out, frame.substr(0, at));
    *out += ", ";
    frame.remove_prefix(at == frame.npos ? frame.size() : at + end.size());
  }
  AppendJsonString(out, Trim(frame));
  *out += ']';
}

bool IsNumberType(std::string_view type) {
  return type == "int" || type == "float" || type == "bool";
}

}  // namespace

// What an entry says of one value, as it stands there.
struct LineComposer::Value {
  std::string_view type, dtype, shape, value, digest, file;
  std::string_view max, min, mean, norm;
};

std::string WithoutCallNumber(std::string_view name) {
  const size_t direction = name.rfind('_');
  const size_t number = direction == name.npos ? name.npos : name.rfind('_', direction - 1);
  if (number == name.npos) return std::string(name);
  return std::string(name.substr(0, number)) + std::string(name.substr(direction));
}

std::string StackLine(std::string_view name, const std::vector<std::string>& frames) {
  std::string line = "[";
  AppendJsonString(&line, std::string(name) + "_stack_info");
  line += ", [";
  for (size_t i = 0; i < frames.size(); ++i) {
    if (i > 0) line += ", ";
    AppendFrame(&line, frames[i]);
  }
  return line + "]]\n";
}

bool IsPlainTensor(std::string_view dtype, std::string_view shape) {
  const bool has_point = dtype.find("float") != dtype.npos;
  // No dimensions, or one without elements.
  return !has_point || shape == "[]" || shape.starts_with("[0") ||
         shape.find(" 0,") != shape.npos || shape.find(" 0]") != shape.npos;
}

Result<ComposedLines> LineComposer::Compose(std::string_view entry) {
  ComposedLines out;
  JsonCursor json(entry);
  out_ = &out;
  JsonText key;
  if (!json.NextKeyOrEnd(&key)) return json.Error("an entry");
  AppendJsonText(&out.name, key);
  if (style_.dialect == LineDialect::kHooks) out.name = WithoutCallNumber(out.name);
  if (style_.file_for_each) out.name = WithoutLineNumber(out.name);
  // The texts of what stands as "input" and as "output" in lines, in this order.
  std::vector<std::string_view> inputs, outputs;
  const bool swapped = style_.swaps_backward() && out.name.ends_with("_backward");
  for (json.BeginObject(); json.NextKey(&key);) {
    std::string_view raw;
    if (!json.Raw(&raw)) break;
    if (key == "input_args" || key == "input" || key == "input_kwargs") {
      (swapped ? outputs : inputs).push_back(raw);
    } else if (key == "output") {
      (swapped ? inputs : outputs).push_back(raw);
    } else if (key == "stack") {
      out.stack = NumberAfter(raw.substr(1, raw.size() - 2), "");
    }
  }
  if (json.failed()) return json.Error("an entry");
  for (const std::string_view slot : inputs) Slot("input", slot);
  for (const std::string_view slot : outputs) Slot("output", slot);
  return out;
}

void LineComposer::Slot(std::string_view part, std::string_view slot) {
  if (!style_.has_values()) return;
  part_ = part;
  JsonCursor json(slot);
  json_ = &json;
  AnyValue("");
}

void LineComposer::AnyValue(const std::string& path) {
  JsonText key;
  switch (json_->Peek()) {
    case '[': {
      int64_t i = 0;
      for (json_->BeginArray(); json_->NextItem();) AnyValue(path + "." + std::to_string(i++));
      return;
    }
    case '{':
      if (json_->BeginObject() && json_->NextKey(&key)) Members(path, key);
      return;
    default:
      json_->Skip();
  }
}

// A value that says its type, or an object of values.
void LineComposer::Members(const std::string& path, JsonText key) {
  if (key == "type" && json_->Peek() == '"') {
    Value value;
    JsonText text;
    json_->String(&text);
    value.type = text.raw;
    while (json_->NextKey(&key)) {
      std::string_view raw;
      if (!json_->Raw(&raw)) return;
      const std::string_view plain = raw.starts_with('"') ? raw.substr(1, raw.size() - 2) : raw;
      if (key == "dtype") value.dtype = plain;
      if (key == "shape") value.shape = raw;
      if (key == "value") value.value = raw;
      if (key == "md5") value.digest = plain;
      if (key == "data_name") value.file = plain;
      if (key == "Max") value.max = raw;
      if (key == "Min") value.min = raw;
      if (key == "Mean") value.mean = raw;
      if (key == "Norm") value.norm = raw;
    }
    if (!json_->failed()) Line(path, value);
    return;
  }
  do {
    std::string name = path + ".";
    AppendJsonText(&name, key);
    AnyValue(name);
  } while (json_->NextKey(&key));
}

void LineComposer::BeginLine(const std::string& path) {
  std::string name;
  if (style_.dialect == LineDialect::kHooks && !style_.file_for_each)
    name = std::to_string(next_line_++) + "_";
  ((name += out_->name) += '_') += part_;
  name += path;
  out_->text += '[';
  AppendJsonString(&out_->text, name);
  out_->text += ", ";
}

void LineComposer::Line(const std::string& path, const Value& v) {
  std::string& text = out_->text;
  const bool is_tensor = !v.dtype.empty();
  // ptdbg_ascend 0.1 knows tensors only.
  if (!is_tensor && (!IsNumberType(v.type) || style_.dialect == LineDialect::kNumbered)) return;
  if (!style_.plain_values && (!is_tensor || IsPlainTensor(v.dtype, v.shape))) return;
  if (style_.data == LineData::kInLines) {
    if (v.file.empty() || v.file == "-1") return;
    std::string elements = elements_of_(v.file);
    const bool has_statistics = !v.max.empty() && v.max != "null";
    if (style_.sampled && has_statistics) {
      for (const std::string_view each : {v.max, v.min, v.mean}) {
        if (!elements.empty()) elements += ", ";
        elements += each;
      }
    }
    BeginLine(path);
    ((((text += '[') += elements) += "], \"") += v.dtype) += "\", ";
    (text += v.shape) += "]\n";
    return;
  }
  BeginLine(path);
  text += std::to_string(style_.file_for_each                       ? kComplete
                         : style_.dialect == LineDialect::kNumbered ? style_.sample_step
                                                                    : 0);
  const bool in_short = style_.dialect == LineDialect::kNumbered;
  if (!is_tensor) {
    ((text += ", [], \"<class '") += v.type) += "'>\", \"[]\", [";
    for (int i = 0; i < 4; ++i) (text += i > 0 ? ", " : "") += v.value;
    text += "]]\n";
    return;
  }
  if (v.digest.empty()) {
    text += ", [], \"";
  } else {
    ((text += ", \"") += v.digest) += "\", \"";
  }
  ((text += v.dtype) += "\", ") += v.shape;
  if (style_.file_for_each && in_short) {
    text += "]\n";
    return;
  }
  text += ", [";
  if (!v.max.empty() && v.max != "null" && v.dtype != "torch.bool") {
    ((((text += v.max) += ", ") += v.min) += ", ") += v.mean;
    if (!in_short) (text += ", ") += v.norm;
  }
  text += "]]\n";
}

}  // namespace msprobe
