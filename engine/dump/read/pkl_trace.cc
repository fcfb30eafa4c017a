#include "engine/dump/read/pkl_trace.h"

#include <fmt/format.h>

#include "engine/base/file.h"
#include "engine/dump/pkl/pkl_names.h"
#include "engine/dump/pkl/pkl_values.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/source_line.h"

namespace msprobe::dump {
namespace {

// As Python prints it.
std::string_view Spelled(std::string_view number) {
  if (number == "NaN") return "nan";
  if (number == "Infinity") return "inf";
  if (number == "-Infinity") return "-inf";
  return number.empty() ? "None" : number;
}

void AppendStack(const PklValues& line, std::string* out) {
  *out += fmt::format("\nTrace back({}):\n", line.name);
  for (auto text = line.frames.rbegin(); text != line.frames.rend(); ++text) {
    const StackFrame frame = ParseStackFrame(*text);
    if (!frame.parsed) {
      *out += fmt::format("  {}\n", *text);
      continue;
    }
    *out += fmt::format("  File \"{}\", line {}, in {}\n", frame.path, frame.line, frame.function);
    if (!frame.source.empty()) *out += fmt::format("    {}\n", frame.source);
  }
}

void AppendValues(const PklValues& line, std::string* out) {
  *out += fmt::format("  [{}][dtype: {}][shape: {}]", line.name, line.dtype, line.shape);
  if (!line.digest.empty()) {
    *out += fmt::format("[md5: {}]", line.digest);
  } else if (line.statistics.size() >= 3) {
    *out += fmt::format("[max: {}][min: {}][mean: {}]", Spelled(line.statistics[0]),
                        Spelled(line.statistics[1]), Spelled(line.statistics[2]));
  }
  *out += '\n';
}

}  // namespace

Result<PklTrace> TraceText(std::string_view path, std::string_view text, std::string_view prefix) {
  PklTrace trace;
  Status first_bad;
  bool heading = false, any = false;
  PklWalker walker(text);
  while (walker.Next()) {
    if (walker.bad()) {
      Status status = walker.Error(path);
      trace.warnings.push_back(
          "line {} is left out: {}"_t(walker.LineNumber(), status.AsMessage()));
      if (first_bad.ok()) first_bad = std::move(status);
      continue;
    }
    any = true;
    const PklValues& line = walker.values();
    if (!line.name.starts_with(prefix)) continue;
    const std::optional<PklName> name = ParsePklName(line.name);
    if (name && name->part == PklPart::kStack) {
      // By a defect, 0.1 wrote each part of a stack again under a longer name: not shown.
      if (name->rest.empty()) AppendStack(line, &trace.text);
    } else if (line.has_statistics) {
      if (!heading) trace.text += "\nStatistic Info:\n";
      heading = true;
      AppendValues(line, &trace.text);
    }
  }
  if (!any && !first_bad.ok()) return first_bad;
  return trace;
}

Result<PklTrace> TracePklFile(const std::string& path, std::string_view prefix) {
  MSPROBE_ASSIGN_OR_RETURN(const std::string located, LocateDump(path));
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(located));
  return TraceText(located, file.bytes(), prefix);
}

Result<bool> HasNumberedLines(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const std::string located, LocateDump(path));
  if (IsDirectory(located)) return false;
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(located));
  constexpr int kLooks = 64;  // lists; the first may be a stack, or damaged
  PklWalker walker(file.bytes());
  for (int i = 0; i < kLooks && walker.Next(); ++i) {
    if (walker.bad()) continue;
    const std::optional<PklName> name = ParsePklName(walker.values().name);
    if (!name) continue;
    if (walker.values().is_listed) return true;
    if (name->part == PklPart::kStack && name->call < 0 && name->number < 0) continue;
    return name->number >= 0 || name->call < 0;
  }
  return false;
}

}  // namespace msprobe::dump
