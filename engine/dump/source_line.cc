#include "engine/dump/source_line.h"

namespace msprobe {
namespace {

struct Frame {
  std::string_view path, line, function, source;
  bool parsed = false;
};

// "File <path>, line <n>, in <function>, \n <source>"; a path or a source may itself hold ", line
// ".
Frame ParseFrame(std::string_view text) {
  Frame frame;
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

bool IsInstalled(std::string_view path) {
  for (std::string_view mark :
       {"/site-packages/", "/dist-packages/", "<frozen ", "/lib/python", "/ptdbg_ascend/"}) {
    if (path.find(mark) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

std::string UserSourceLine(const std::vector<std::string_view>& frames) {
  if (frames.empty()) return "";
  size_t chosen = 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    const Frame frame = ParseFrame(frames[i]);
    if (frame.parsed && !IsInstalled(frame.path)) {
      chosen = i;
      break;
    }
  }
  const Frame frame = ParseFrame(frames[chosen]);
  std::string out;
  if (frame.parsed) {
    out.append(frame.path).append(":").append(frame.line);
    if (!frame.function.empty()) out.append(" in ").append(frame.function);
    if (!frame.source.empty()) out.append(": ").append(frame.source);
  } else {
    out = frames[chosen];
  }
  for (char& c : out) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  return out;
}

}  // namespace msprobe
