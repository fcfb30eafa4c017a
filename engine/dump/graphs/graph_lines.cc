#include "engine/dump/graphs/graph_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/base/text.h"

namespace msprobe::dump {
namespace {

constexpr std::string_view kName = "# Fullname with scope: (";
constexpr std::string_view kPlace = "# In file ";
constexpr std::string_view kForward = "# Corresponding forward node";
constexpr std::string_view kShared = "<~~This line of code";  // a remark of MindSpore's
constexpr size_t kMaxFrames = 256;                            // of one node

struct Place {
  std::string_view path, line, source;
  bool is_range = false;  // "10~11": the whole function, or a statement of several lines
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The offset of the ':' in front of the line number; npos: none.
size_t LineMark(std::string_view text) {
  const size_t python = text.find(".py:");
  if (python != text.npos && python + 4 < text.size() && IsDigit(text[python + 4])) {
    return python + 3;
  }
  for (size_t at = text.find(':'); at != text.npos; at = text.find(':', at + 1)) {
    size_t end = at + 1;
    while (end < text.size() && IsDigit(text[end])) ++end;
    if (end > at + 1 && end < text.size() && (text[end] == '~' || text[end] == ',')) return at;
  }
  return text.npos;
}

// "model.py:11, 33~41/        return self.fc(x)/" and "model.py:10~11, 4~46/    def
// construct(...):/".
std::optional<Place> ParsePlace(std::string_view text) {
  const size_t mark = LineMark(text);
  if (mark == text.npos || mark == 0) return std::nullopt;
  Place place{.path = text.substr(0, mark)};
  size_t end = mark + 1;
  while (end < text.size() && IsDigit(text[end])) ++end;
  place.line = text.substr(mark + 1, end - mark - 1);
  place.is_range = end < text.size() && text[end] == '~';
  const size_t slash = text.find('/', end);
  if (slash == text.npos) return place;
  place.source = text.substr(slash + 1);
  if (const size_t remark = place.source.find(kShared); remark != place.source.npos) {
    place.source = place.source.substr(0, remark);
  }
  place.source = Trim(place.source);
  if (place.source.ends_with('/'))
    place.source = Trim(place.source.substr(0, place.source.size() - 1));
  return place;
}

// "construct" of "def construct(self, x):"; "" of any other line.
std::string_view FunctionIn(std::string_view source) {
  constexpr std::string_view kDef = "def ";
  if (!source.starts_with(kDef)) return {};
  source.remove_prefix(kDef.size());
  return source.substr(0, source.find('('));
}

// `places` as the file has them: the outermost first, each function before the lines in it.
std::vector<std::string> FramesOf(const std::vector<Place>& places) {
  std::vector<std::string> frames;
  std::string_view function, file;
  for (const Place& place : places) {
    const bool decorated = place.is_range && place.source.starts_with('@');
    const std::string_view defined = place.is_range ? FunctionIn(place.source) : std::string_view();
    if (decorated || !defined.empty()) {
      function = defined, file = place.path;
      continue;
    }
    std::string frame =
        fmt::format("File {}, line {}, in {}, \n {}", place.path, place.line,
                    place.path == file && !function.empty() ? function : "<graph>", place.source);
    // A call and the looking-up of its function are two nodes of one line.
    if (frames.empty() || frames.back() != frame) frames.push_back(std::move(frame));
  }
  std::reverse(frames.begin(), frames.end());
  return frames;
}

}  // namespace

GraphLines::GraphLines(std::string_view ir, const std::unordered_set<std::string>& wanted) {
  Node* node = nullptr;
  std::vector<Place> places;
  const auto finish = [&] {
    if (node != nullptr) node->frames = FramesOf(places);
    node = nullptr;
    places.clear();
  };
  while (!ir.empty()) {
    const size_t end = std::min(ir.find('\n'), ir.size());
    const std::string_view line = Trim(ir.substr(0, end));
    ir.remove_prefix(std::min(end + 1, ir.size()));
    if (line.starts_with(kName)) {
      finish();
      const std::string name(line.substr(kName.size(), line.rfind(')') - kName.size()));
      if (line.ends_with(')') && wanted.contains(name) && !nodes_.contains(name)) {
        node = &nodes_[name];
      }
    } else if (!line.starts_with('#')) {
      finish();
    } else if (node != nullptr && line.starts_with(kPlace) && places.size() < kMaxFrames) {
      if (const auto place = ParsePlace(line.substr(kPlace.size()))) places.push_back(*place);
    } else if (node != nullptr && line.starts_with(kForward)) {
      node->of_forward = true;
    }
  }
  finish();
}

}  // namespace msprobe::dump
