// Entries of a session as lines of torch_npu.hooks and ptdbg_ascend. line_file.h reads them back.
//
//   LineComposer composer(style, [&](std::string_view file) { return ElementsOf(file); });
//   MSPROBE_RETURN_IF_ERROR(composer.Compose(entry));
//   file.Append(composer.lines());
//   // ["Functional_relu_0_forward_input.0", 0, [], "torch.float32", [2, 3], [1.5, -2.0, 0.25, 3]]
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/dump/config/pkl_style.h"
#include "engine/formats/json.h"

namespace msprobe::dump {

class LineComposer {
 public:
  // kInLines: what stands between the brackets, by the name of the file that a tensor would go to.
  using ElementsOf = std::function<std::string_view(std::string_view file)>;
  LineComposer(const LineStyle& style, ElementsOf elements_of)
      : style_(style), elements_of_(std::move(elements_of)) {}

  // `entry`: "name": {...} as EntryBuilder has it. Values that the style leaves out have no line.
  // What the members below answer holds until the next call. Errors: kInvalidDump when it is none.
  Status Compose(std::string_view entry);
  const std::string& name() const { return name_; }  // of the call: "Functional_relu_0_forward"
  const std::string& lines() const { return text_; }
  int64_t stack() const { return stack_; }  // the number that the entry gives; -1: none

 private:
  struct Value;
  void Slot(std::string_view part, formats::JsonCursor* json);
  void AnyValue();
  void Members(formats::JsonText key);
  void Line(const Value& value);
  void BeginLine();

  const LineStyle style_;
  const ElementsOf elements_of_;
  std::string name_, text_, path_;
  std::string json_name_;  // as JSON spells it, without quotes; path_ likewise
  int64_t stack_ = -1;
  formats::JsonCursor* json_ = nullptr;
  std::string_view part_;
  int64_t next_line_ = 0;  // kHooks
};

// What lines call a call: with the number of its API taken out of "Functional_relu_3_forward".
std::string WithoutCallNumber(std::string_view name);

// Frames as stack.json has them, as a list of lists of file, line, function and source.
std::string LineFrames(const std::vector<std::string>& frames);
// The line of a call with such a list.
void AppendStackLine(std::string* out, std::string_view name, std::string_view frames);

// Whether a tensor is one that a style without plain values leaves out: of integers or bool, or
// without dimensions or elements.
bool IsPlainTensor(std::string_view dtype, std::string_view shape);

}  // namespace msprobe::dump
