#include "engine/compare/explain/source_places.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/regions/regions.h"

namespace msprobe::compare {
namespace {

using Frames = std::vector<std::string_view>;
using dump::StackFrame;

// The frames of the call on one side, innermost first; null: no stack was recorded. Backward
// records have no stack of their own.
const Frames* FramesOf(const Comparison& c, int32_t p, bool target) {
  const Dump& dump = target ? c.target : c.golden;
  const int32_t record = target ? c.pairs[p].target : c.pairs[p].golden;
  const int32_t stack = record < 0 ? -1 : dump.records[record].stack;
  if (stack >= 0 && static_cast<size_t>(stack) < dump.stacks.size() && !dump.stacks[stack].empty())
    return &dump.stacks[stack];
  if (p < static_cast<int32_t>(c.forward_of.size()) && c.forward_of[p] >= 0)
    return FramesOf(c, c.forward_of[p], target);
  if (RecordOf(c, p).direction != Direction::kParameterGrad) return nullptr;
  const int32_t forward = ModuleCallOf(c, p, Direction::kForward);
  return forward >= 0 ? FramesOf(c, forward, target) : nullptr;
}

const Frames* StackOf(const Comparison& c, int32_t p) {
  const auto* frames = FramesOf(c, p, true);
  return frames != nullptr ? frames : FramesOf(c, p, false);
}

// "y = F.gelu(x)" of "train.py:41 in forward: y = F.gelu(x)".
std::string_view CodeOf(std::string_view line) {
  const size_t in = line.find(" in ");
  const size_t code = in == line.npos ? in : line.find(": ", in);
  return code == line.npos ? line : line.substr(code + 2);
}

// A line of Python without its comment, and without the blanks before that.
std::string_view WithoutComment(std::string_view source) {
  char quote = 0;
  for (size_t i = 0; i < source.size(); ++i) {
    const char at = source[i];
    if (quote != 0) {
      if (at == '\\') ++i;
      if (at == quote) quote = 0;
    } else if (at == '"' || at == '\'') {
      quote = at;
    } else if (at == '#') {
      source = source.substr(0, i);
    }
  }
  while (!source.empty() && source.back() == ' ') source.remove_suffix(1);
  return source;
}

// Whether two lines for people have the same code, wherever it stands. A line without its source
// says nothing against it.
bool SameCode(std::string_view a, std::string_view b) {
  const std::string_view mine = WithoutComment(CodeOf(a)), theirs = WithoutComment(CodeOf(b));
  return mine.empty() || theirs.empty() || mine == theirs;
}

// The lines of code from which one run makes its calls, wherever they stand, as far as it has
// stacks.
class ExecutedLines {
 public:
  explicit ExecutedLines(const Dump& dump) {
    std::unordered_set<std::string_view> seen;  // most stacks share most of their frames
    for (const Frames& frames : dump.stacks) {
      for (const std::string_view text : frames) {
        if (seen.insert(text).second) lines_.insert(Of(dump::ParseStackFrame(text)));
      }
    }
  }
  // True, too, where the source of the frame is not known, or no stack was recorded.
  bool Has(const StackFrame& frame) const {
    const Line line = Of(frame);
    return lines_.empty() || line.second.empty() || lines_.contains(line);
  }

 private:
  using Line = std::pair<std::string_view, std::string_view>;  // function, code
  static Line Of(const StackFrame& frame) { return {frame.function, WithoutComment(frame.source)}; }
  std::set<Line> lines_;
};

using Callers = std::vector<StackFrame>;  // of the program itself, innermost first

// The innermost one that the other run does not execute.
Callers::const_iterator FirstOther(const Callers& callers, const ExecutedLines& of_other) {
  return std::find_if_not(callers.begin(), callers.end(),
                          [&](const StackFrame& frame) { return of_other.Has(frame); });
}

// The outermost of those that follow it: functions that only one run calls call each other.
Callers::const_iterator LastOther(const Callers& callers, const ExecutedLines& of_other) {
  auto last = FirstOther(callers, of_other);
  if (last == callers.end()) return last;
  while (std::next(last) != callers.end() && !of_other.Has(*std::next(last))) ++last;
  return last;
}

void AddCaller(const StackFrame& frame, CodePlace* place) {
  const std::string line = dump::LineOf(frame);
  if (line == place->line || line == place->caller) return;
  place->caller += (place->caller.empty() ? "" : " <- ") + line;
}

}  // namespace

std::string SourceLineOf(const Comparison& c, int32_t p) {
  const auto* frames = StackOf(c, p);
  return frames == nullptr ? "" : dump::UserSourceLine(*frames);
}

dump::SourcePlace SourcePlaceOf(const Comparison& c, int32_t p) {
  const auto* frames = StackOf(c, p);
  return frames == nullptr ? dump::SourcePlace() : dump::UserSourcePlace(*frames);
}

CodePlace CodePlaceOf(const Comparison& c, int32_t p) {
  dump::SourcePlace place = SourcePlaceOf(c, p);
  CodePlace out{std::move(place.line), std::move(place.caller), ""};
  const auto *target = FramesOf(c, p, true), *golden = FramesOf(c, p, false);
  if (target == nullptr && golden == nullptr) return out;
  if (target == nullptr || golden == nullptr) {
    const bool of_target = target != nullptr;
    const Callers own = dump::OwnFrames(of_target ? *target : *golden);
    const auto statement = LastOther(own, ExecutedLines(of_target ? c.golden : c.target));
    if (statement != own.end()) AddCaller(*statement, &out);
    return out;
  }
  if (std::string line = dump::UserSourcePlace(*golden).line; !SameCode(out.line, line)) {
    out.golden = std::move(line);
    return out;
  }
  const Callers t = dump::OwnFrames(*target), g = dump::OwnFrames(*golden);
  if (const auto mine = FirstOther(t, ExecutedLines(c.golden)); mine != t.end())
    AddCaller(*mine, &out);
  if (const auto theirs = FirstOther(g, ExecutedLines(c.target)); theirs != g.end()) {
    std::string line = dump::LineOf(*theirs);
    if (!SameCode(out.line, line)) out.golden = std::move(line);  // else its function is renamed
  }
  return out;
}

std::string GoldenLineOfRegion(const Comparison& c, const FirstDivergence& f) {
  const std::vector<Region> regions = RegionsOf(c);
  if (regions.empty() || !regions[0].wrong) return "";
  for (const int32_t p : regions[0].pairs) {
    const auto* frames = FramesOf(c, p, false);
    if (c.pairs[p].target >= 0 || frames == nullptr) continue;
    std::string line = dump::UserSourcePlace(*frames).line;
    return SameCode(line, f.source_line) ? "" : line;
  }
  return "";
}

}  // namespace msprobe::compare
