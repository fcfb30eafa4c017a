#include "engine/dump/read/source_line.h"

#include <optional>
#include <utility>

namespace msprobe::dump {
namespace {

// Code that is not the model's: PyTorch, Python's own library, older tools.
bool IsFramework(std::string_view path) {
  for (std::string_view mark : {"-packages/torch/", "-packages/torch_npu/", "-packages/mindspore/",
                                "-packages/msprobe/", "<frozen ", "/ptdbg_ascend/"}) {
    if (path.find(mark) != std::string_view::npos) return true;
  }
  return path.find("/lib/python") != std::string_view::npos &&
         path.find("-packages/") == std::string_view::npos;
}

// "transformers/models/gpt2/modeling_gpt2.py" of an installed package; else "".
std::string_view InPackage(std::string_view path) {
  for (const std::string_view mark : {"/site-packages/", "/dist-packages/"}) {
    if (const size_t at = path.rfind(mark); at != path.npos) return path.substr(at + mark.size());
  }
  return {};
}

void AppendPlace(std::string* out, const StackFrame& frame) {
  const std::string_view packaged = InPackage(frame.path);
  out->append(packaged.empty() ? frame.path : packaged).append(":").append(frame.line);
}

}  // namespace

// "File <path>, line <n>, in <function>, \n <source>"; a path or a source may itself hold ", line
// ".
StackFrame ParseStackFrame(std::string_view text) {
  StackFrame frame;
  const size_t end = text.find('\n');
  std::string_view head = text.substr(0, end);
  if (end != std::string_view::npos) frame.source = text.substr(end + 1);
  const size_t line = head.rfind(", line ");
  if (head.substr(0, 5) != "File " || line == std::string_view::npos || line < 5) return frame;
  frame.path = head.substr(5, line - 5);
  std::string_view rest = head.substr(line + 7);
  const size_t in = rest.find(", in ");
  frame.line = rest.substr(0, in);
  if (in != std::string_view::npos) frame.function = rest.substr(in + 5);
  const auto trim = [](std::string_view* s) {
    while (!s->empty() && (s->back() == ' ' || s->back() == ',' || s->back() == '\n'))
      s->remove_suffix(1);
    while (!s->empty() && s->front() == ' ') s->remove_prefix(1);
  };
  trim(&frame.line), trim(&frame.function);
  // Only blanks: a source line may well end in a comma.
  while (!frame.source.empty() && frame.source.front() == ' ') frame.source.remove_prefix(1);
  while (!frame.source.empty() && (frame.source.back() == ' ' || frame.source.back() == '\n')) {
    frame.source.remove_suffix(1);
  }
  frame.parsed = true;
  return frame;
}

namespace {

struct FoundFrames {
  StackFrame found;  // not parsed: the text of frames[0] is the line
  std::optional<StackFrame> caller;
};

FoundFrames FindUserFrames(const std::vector<std::string_view>& frames) {
  std::optional<StackFrame> found, own, outermost;
  for (size_t i = 0; i < frames.size() && !own; ++i) {
    const StackFrame frame = ParseStackFrame(frames[i]);
    if (!frame.parsed || IsFramework(frame.path)) continue;
    if (!found) {
      found = frame;
    } else {
      outermost = frame;
    }
    if (InPackage(frame.path).empty()) own = frame;
  }
  if (!found) return {ParseStackFrame(frames[0]), std::nullopt};
  if (InPackage(found->path).empty()) return {*found, std::nullopt};
  return {*found, own ? own : outermost};
}

std::string OnOneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  return text;
}

// `from`: the caller of the frame, whose place is added; null: none is.
std::string LineFrom(const StackFrame& frame, const StackFrame* from) {
  std::string out;
  AppendPlace(&out, frame);
  if (!frame.function.empty()) out.append(" in ").append(frame.function);
  if (from != nullptr) {
    out += " (from ";
    AppendPlace(&out, *from);
    out += ')';
  }
  if (!frame.source.empty()) out.append(": ").append(frame.source);
  return OnOneLine(std::move(out));
}

}  // namespace

std::vector<StackFrame> OwnFrames(const std::vector<std::string_view>& frames) {
  std::vector<StackFrame> out;
  for (const std::string_view text : frames) {
    const StackFrame frame = ParseStackFrame(text);
    if (frame.parsed && !IsFramework(frame.path) && InPackage(frame.path).empty())
      out.push_back(frame);
  }
  return out;
}

std::string LineOf(const StackFrame& frame) { return LineFrom(frame, nullptr); }

SourcePlace UserSourcePlace(const std::vector<std::string_view>& frames) {
  if (frames.empty()) return {};
  const auto [found, caller] = FindUserFrames(frames);
  if (!found.parsed) return {OnOneLine(std::string(frames[0])), ""};
  return {LineOf(found), caller ? LineOf(*caller) : ""};
}

std::string UserSourceLine(const std::vector<std::string_view>& frames) {
  if (frames.empty()) return "";
  const auto [found, caller] = FindUserFrames(frames);
  if (!found.parsed) return OnOneLine(std::string(frames[0]));
  return LineFrom(found, caller ? &*caller : nullptr);
}

}  // namespace msprobe::dump
