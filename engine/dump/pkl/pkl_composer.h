// Writes entries as lines of torch_npu.hooks and ptdbg_ascend. pkl_file.h reads such lines.
//
//   PklComposer composer(style, [&](std::string_view file) { return ElementsOf(file); });
//   composer.Compose(entry);
//   file.Append(composer.lines());
//   // ["Functional_relu_0_forward_input.0", 0, [], "torch.float32", [2, 3], [1.5, -2.0, 0.25, 3]]
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/dump/config/pkl_style.h"
#include "engine/model/entry.h"

namespace msprobe::dump {

class PklComposer {
 public:
  // kInLines: returns the elements of a tensor as text, "1.5, -2.0". `file`: the name of the
  // tensor's file, which is not written in this style.
  using ElementsOf = std::function<std::string_view(std::string_view file)>;
  PklComposer(const PklStyle& style, ElementsOf elements_of)
      : style_(style), elements_of_(std::move(elements_of)) {}

  // Makes the lines of the entry. Values that the style leaves out have no line. name() and lines()
  // are valid until the next call.
  void Compose(const Entry& entry);
  const std::string& name() const { return name_; }  // of the call: "Functional_relu_0_forward"
  const std::string& lines() const { return text_; }

 private:
  void AddSlot(std::string_view part, const Entry& entry, uint32_t root);
  void AddValue(const Entry& entry, uint32_t index);
  void AddTensor(const TensorValue& tensor);
  void AddElements(const TensorValue& tensor);
  void AddNumber(const Entry& entry, const Entry::Value& value);
  void BeginLine();

  const PklStyle style_;
  const ElementsOf elements_of_;
  std::string name_, text_;
  std::string_view part_;  // "input" or "output"
  std::string path_;       // of the value below its part: ".0.logits"
  std::string line_name_;  // reused
  int64_t next_line_ = 0;  // kHooks
};

// "Functional_relu_forward" for "Functional_relu_3_forward".
std::string WithoutCallNumber(std::string_view name);

// `frames` are spelled as in stack.json. The result is a list with [file, line, function, source]
// for each frame.
std::string PklFrames(const std::vector<std::string>& frames);
// Appends the line of a call's stack. `frames`: the result of PklFrames.
void AppendStackLine(std::string* out, std::string_view name, std::string_view frames);

// Whether a style without plain values leaves the tensor out: it has integers or bool, or no
// dimensions or no elements.
bool IsPlainTensor(std::string_view dtype, std::span<const int64_t> shape);

}  // namespace msprobe::dump
