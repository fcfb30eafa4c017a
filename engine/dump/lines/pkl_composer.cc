#include "engine/dump/lines/pkl_composer.h"

#include "engine/base/text.h"
#include "engine/dump/lines/pkl_names.h"
#include "engine/model/names.h"

namespace msprobe::dump {
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

std::string LineFrames(const std::vector<std::string>& frames) {
  std::string list = "[";
  for (size_t i = 0; i < frames.size(); ++i) {
    if (i > 0) list += ", ";
    AppendFrame(&list, frames[i]);
  }
  return list + "]";
}

void AppendStackLine(std::string* out, std::string_view name, std::string_view frames) {
  *out += '[';
  AppendJsonString(out, std::string(name) + "_stack_info");
  ((*out += ", ") += frames) += "]\n";
}

bool IsPlainTensor(std::string_view dtype, std::string_view shape) {
  const bool has_point = dtype.find("float") != dtype.npos;
  // No dimensions, or one without elements.
  return !has_point || shape == "[]" || shape.starts_with("[0") ||
         shape.find(" 0,") != shape.npos || shape.find(" 0]") != shape.npos;
}

Status LineComposer::Compose(std::string_view entry) {
  text_.clear();
  name_.clear();
  stack_ = -1;
  formats::JsonCursor json(entry);
  formats::JsonText key;
  if (!json.NextKeyOrEnd(&key)) return json.Error("an entry");
  json_name_ = key.raw;
  if (style_.dialect == LineDialect::kHooks) json_name_ = WithoutCallNumber(json_name_);
  if (style_.file_for_each) json_name_ = WithoutLineNumber(json_name_);
  formats::AppendJsonText(&name_, {json_name_, key.escaped});
  const bool swapped = style_.swaps_backward() && name_.ends_with("_backward");
  std::string_view later;  // what is "output" in lines stands behind what is "input"
  for (json.BeginObject(); json.NextKey(&key);) {
    if (key == "stack") {
      formats::JsonText number;
      if (json.String(&number)) stack_ = NumberAfter(number.raw, "");
    } else if (key == "input" && swapped) {
      json.Raw(&later);
    } else if (key == "input_args" || key == "input" || key == "input_kwargs") {
      Slot("input", &json);
    } else if (key == "output") {
      Slot(swapped ? "input" : "output", &json);
    } else {
      json.Skip();
    }
  }
  if (json.failed()) return json.Error("an entry");
  if (!later.empty()) {
    formats::JsonCursor rest(later);
    Slot("output", &rest);
  }
  return Status::Ok();
}

void LineComposer::Slot(std::string_view part, formats::JsonCursor* json) {
  if (!style_.has_values()) {
    json->Skip();
    return;
  }
  part_ = part;
  json_ = json;
  path_.clear();
  AnyValue();
}

void LineComposer::AnyValue() {
  formats::JsonText key;
  const size_t size = path_.size();
  switch (json_->Peek()) {
    case '[': {
      int64_t i = 0;
      for (json_->BeginArray(); json_->NextItem(); path_.resize(size)) {
        path_ += '.';
        AppendInteger(&path_, i++);
        AnyValue();
      }
      return;
    }
    case '{':
      if (json_->BeginObject() && json_->NextKey(&key)) Members(key);
      return;
    default:
      json_->Skip();
  }
}

// A value that says its type, or an object of values.
void LineComposer::Members(formats::JsonText key) {
  if (key == "type" && json_->Peek() == '"') {
    Value value;
    formats::JsonText text;
    json_->String(&text);
    value.type = text.raw;
    while (json_->NextKey(&key)) {
      std::string_view raw;
      if (!json_->Raw(&raw)) return;
      const std::string_view plain = raw.starts_with('"') ? raw.substr(1, raw.size() - 2) : raw;
      if (key == "dtype") {
        value.dtype = plain;
      } else if (key == "shape") {
        value.shape = raw;
      } else if (key == "Max") {
        value.max = raw;
      } else if (key == "Min") {
        value.min = raw;
      } else if (key == "Mean") {
        value.mean = raw;
      } else if (key == "Norm") {
        value.norm = raw;
      } else if (key == "value") {
        value.value = raw;
      } else if (key == "md5") {
        value.digest = plain;
      } else if (key == "data_name") {
        value.file = plain;
      }
    }
    if (!json_->failed()) Line(value);
    return;
  }
  const size_t size = path_.size();
  do {
    (path_ += '.') += key.raw;
    AnyValue();
    path_.resize(size);
  } while (json_->NextKey(&key));
}

void LineComposer::BeginLine() {
  text_ += "[\"";
  if (style_.dialect == LineDialect::kHooks && !style_.file_for_each) {
    AppendInteger(&text_, next_line_++);
    text_ += '_';
  }
  (((text_ += json_name_) += '_') += part_) += path_;
  text_ += "\", ";
}

void LineComposer::Line(const Value& v) {
  const bool is_tensor = !v.dtype.empty();
  // ptdbg_ascend 0.1 knows tensors only.
  if (!is_tensor && (!IsNumberType(v.type) || style_.dialect == LineDialect::kNumbered)) return;
  if (!style_.plain_values && (!is_tensor || IsPlainTensor(v.dtype, v.shape))) return;
  const bool has_statistics = !v.max.empty() && v.max != "null" && v.dtype != "torch.bool";
  if (style_.data == LineData::kInLines) {
    if (v.file.empty() || v.file == "-1") return;
    BeginLine();
    const std::string_view elements = elements_of_(v.file);
    (text_ += '[') += elements;
    if (style_.sampled && has_statistics) {
      if (!elements.empty()) text_ += ", ";
      ((((text_ += v.max) += ", ") += v.min) += ", ") += v.mean;
    }
    ((((text_ += "], \"") += v.dtype) += "\", ") += v.shape) += "]\n";
    return;
  }
  BeginLine();
  const bool in_short = style_.dialect == LineDialect::kNumbered;
  AppendInteger(&text_, style_.file_for_each ? kComplete : in_short ? style_.sample_step : 0);
  if (!is_tensor) {
    ((text_ += ", [], \"<class '") += v.type) += "'>\", \"[]\", [";
    for (int i = 0; i < 4; ++i) (text_ += i > 0 ? ", " : "") += v.value;
    text_ += "]]\n";
    return;
  }
  if (v.digest.empty()) {
    text_ += ", [], \"";
  } else {
    ((text_ += ", \"") += v.digest) += "\", \"";
  }
  ((text_ += v.dtype) += "\", ") += v.shape;
  if (style_.file_for_each && in_short) {
    text_ += "]\n";
    return;
  }
  text_ += ", [";
  if (has_statistics) {
    ((((text_ += v.max) += ", ") += v.min) += ", ") += v.mean;
    if (!in_short) (text_ += ", ") += v.norm;
  }
  text_ += "]]\n";
}

}  // namespace msprobe::dump
