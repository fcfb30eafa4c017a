#include "engine/dump/pkl/pkl_composer.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/dump/pkl/pkl_names.h"
#include "engine/dump/write/entry_json.h"
#include "engine/model/names.h"

namespace msprobe::dump {
namespace {

constexpr int kComplete = 101;  // as sample step of an overflow: all elements are in the file

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

bool HasStatistics(const TensorValue& tensor) {
  return tensor.measured() && tensor.with_statistics && tensor.stats.count > 0 &&
         tensor.element_type != DType::kBool;
}

void AppendThreeStatistics(std::string* out, const TensorValue& tensor) {
  AppendStatistic(out, tensor, Statistic::kMax);
  *out += ", ";
  AppendStatistic(out, tensor, Statistic::kMin);
  *out += ", ";
  AppendStatistic(out, tensor, Statistic::kMean);
}

}  // namespace

std::string WithoutCallNumber(std::string_view name) {
  const size_t direction = name.rfind('_');
  const size_t number = direction == name.npos ? name.npos : name.rfind('_', direction - 1);
  if (number == name.npos) return std::string(name);
  return std::string(name.substr(0, number)) + std::string(name.substr(direction));
}

std::string PklFrames(const std::vector<std::string>& frames) {
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

bool IsPlainTensor(std::string_view dtype, std::span<const int64_t> shape) {
  const bool has_point = dtype.find("float") != dtype.npos;
  return !has_point || shape.empty() || std::find(shape.begin(), shape.end(), 0) != shape.end();
}

void PklComposer::Compose(const Entry& entry) {
  text_.clear();
  name_ = entry.name();
  if (style_.dialect == PklDialect::kHooks) name_ = WithoutCallNumber(name_);
  if (style_.file_for_each) name_ = WithoutLineNumber(name_);
  if (!style_.has_values()) return;
  const bool swapped = style_.swaps_backward() && name_.ends_with("_backward");
  // Lines named "output" come after lines named "input".
  const Entry::Slot* last = nullptr;
  for (const Entry::Slot& slot : entry.slots()) {
    const std::string_view key = entry.text(slot.key);
    if (key == "input" && swapped) {
      last = &slot;
    } else if (key == "input_args" || key == "input" || key == "input_kwargs") {
      AddSlot("input", entry, slot.root);
    } else if (key == "output") {
      AddSlot(swapped ? "input" : "output", entry, slot.root);
    }
  }
  if (last != nullptr) AddSlot("output", entry, last->root);
}

void PklComposer::AddSlot(std::string_view part, const Entry& entry, uint32_t root) {
  part_ = part;
  path_.clear();
  AddValue(entry, root);
}

void PklComposer::AddValue(const Entry& entry, uint32_t index) {
  const Entry::Value& value = entry.values()[index];
  switch (value.kind) {
    case Entry::Kind::kTensor:
      return AddTensor(entry.tensor(value));
    case Entry::Kind::kBool:
    case Entry::Kind::kInt:
    case Entry::Kind::kFloat:
    case Entry::Kind::kDigits:
      return AddNumber(entry, value);
    case Entry::Kind::kNull:
    case Entry::Kind::kText:
    case Entry::Kind::kInts:
    case Entry::Kind::kGroup:
      return;
    case Entry::Kind::kList:
    case Entry::Kind::kDict:
      break;
  }
  const size_t size = path_.size();
  int64_t number = 0;
  for (uint32_t i = index + 1; i < value.end; i = entry.values()[i].end) {
    path_ += '.';
    if (value.kind == Entry::Kind::kList) {
      AppendInteger(&path_, number++);
    } else {
      path_ += entry.text(entry.values()[i].key);
    }
    AddValue(entry, i);
    path_.resize(size);
  }
}

void PklComposer::BeginLine() {
  line_name_.clear();
  if (style_.dialect == PklDialect::kHooks && !style_.file_for_each) {
    AppendInteger(&line_name_, next_line_++);
    line_name_ += '_';
  }
  (((line_name_ += name_) += '_') += part_) += path_;
  text_ += '[';
  AppendJsonString(&text_, line_name_);
  text_ += ", ";
}

// kInLines: one list with all elements, or with ten elements and three statistics.
void PklComposer::AddElements(const TensorValue& tensor) {
  if (tensor.file.empty() || tensor.file == "-1") return;
  BeginLine();
  const std::string_view elements = elements_of_(tensor.file);
  (text_ += '[') += elements;
  if (style_.sampled && HasStatistics(tensor)) {
    if (!elements.empty()) text_ += ", ";
    AppendThreeStatistics(&text_, tensor);
  }
  ((text_ += "], \"") += tensor.dtype) += "\", ";
  AppendShape(&text_, tensor.shape);
  text_ += "]\n";
}

void PklComposer::AddTensor(const TensorValue& tensor) {
  if (!style_.plain_values && IsPlainTensor(tensor.dtype, tensor.shape)) return;
  if (style_.data == PklData::kInLines) return AddElements(tensor);
  BeginLine();
  const bool in_short = style_.dialect == PklDialect::kNumbered;
  AppendInteger(&text_, style_.file_for_each ? kComplete : in_short ? style_.sample_step : 0);
  if (tensor.checksum == kernels::Checksum::kNone || !tensor.measured()) {
    text_ += ", [], \"";
  } else {
    text_ += ", \"";
    AppendChecksum(&text_, tensor);
    text_ += "\", \"";
  }
  (text_ += tensor.dtype) += "\", ";
  AppendShape(&text_, tensor.shape);
  if (style_.file_for_each && in_short) {
    text_ += "]\n";
    return;
  }
  text_ += ", [";
  if (HasStatistics(tensor)) {
    AppendThreeStatistics(&text_, tensor);
    if (!in_short) {
      text_ += ", ";
      AppendStatistic(&text_, tensor, Statistic::kNorm);
    }
  }
  text_ += "]]\n";
}

void PklComposer::AddNumber(const Entry& entry, const Entry::Value& value) {
  const std::string_view type = entry.text(value.type);
  // ptdbg_ascend 0.1 records tensors only.
  if (value.bare || !IsNumberType(type) || style_.dialect == PklDialect::kNumbered) return;
  if (!style_.plain_values || style_.data == PklData::kInLines) return;
  BeginLine();
  AppendInteger(&text_, style_.file_for_each ? kComplete : 0);
  ((text_ += ", [], \"<class '") += type) += "'>\", \"[]\", [";
  for (int i = 0; i < 4; ++i) {
    if (i > 0) text_ += ", ";
    AppendNumber(&text_, entry, value);
  }
  text_ += "]]\n";
}

}  // namespace msprobe::dump
