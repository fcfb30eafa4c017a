#include "engine/selfcheck/run_log.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "engine/base/text.h"

namespace msprobe::selfcheck {
namespace {

constexpr std::string_view kWords[] = {"weight", "loss", "gradient", "random"};

// Appends a name, with line ends replaced so that it stays on one line.
void AppendName(std::string* out, std::string_view name) {
  for (const char c : name) *out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
}

template <typename Number>
bool Read(std::string_view text, Number* number, int base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number, base);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string_view ValueKindName(ValueKind kind) {
  constexpr std::string_view kNames[] = {"weight", "loss", "gradient", "random numbers"};
  return kNames[static_cast<size_t>(kind)];
}

bool RunLog::HasNote(std::string_view text) const {
  return std::find(notes.begin(), notes.end(), text) != notes.end();
}

size_t RunLog::StepCount() const {
  return static_cast<size_t>(
      std::count_if(steps.begin(), steps.end(), [](const Step& s) { return !s.is_end; }));
}

Result<RunLogWriter> RunLogWriter::Create(const std::string& path) {
  RunLogWriter writer;
  MSPROBE_ASSIGN_OR_RETURN(writer.file_, AppendFile::Open(path, /*keep=*/false));
  writer.process_ = ::getpid();
  return writer;
}

void RunLogWriter::Value(ValueKind kind, std::string_view name, uint64_t fingerprint) {
  text_ += kWords[static_cast<size_t>(kind)];
  text_ += '\t';
  AppendHex(&text_, fingerprint, 16);
  text_ += '\t';
  AppendName(&text_, name);
  text_ += '\n';
}

Status RunLogWriter::Flush(std::string_view line) {
  text_ += line;
  Status status = ::getpid() == process_ ? file_.Append(text_) : Status::Ok();
  text_.clear();
  return status;
}

Status RunLogWriter::EndStep(int64_t nanoseconds) {
  return Flush("step\t" + std::to_string(nanoseconds) + "\n");
}

Status RunLogWriter::End() { return Flush("end\n"); }

Status RunLogWriter::Note(std::string_view text) {
  std::string line = "note\t";
  AppendName(&line, text);
  std::string values = std::move(text_);  // they belong to the unfinished step: not written yet
  text_.clear();
  Status status = Flush(line + "\n");
  text_ = std::move(values);
  return status;
}

Result<RunLog> ReadRunLog(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  RunLog log;
  RunLog::Step step;
  uint64_t offset = 0;
  std::string_view text = file.bytes();
  // Text after the last newline is a line that was cut off when the program was killed.
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; offset += end + 1) {
    const std::vector<std::string_view> cells = Split(text.substr(0, end), '\t');
    text.remove_prefix(end + 1);
    const auto kind = std::find(std::begin(kWords), std::end(kWords), cells[0]);
    bool good = false;
    if (kind != std::end(kWords) && cells.size() == 3) {
      RunLog::Value value{static_cast<ValueKind>(kind - kWords), std::string(cells[2]), 0};
      good = Read(cells[1], &value.fingerprint, 16);
      step.values.push_back(std::move(value));
    } else if (cells[0] == "step" && cells.size() == 2) {
      good = Read(cells[1], &step.nanoseconds, 10);
      log.steps.push_back(std::exchange(step, {}));
    } else if (cells[0] == "end" && cells.size() == 1) {
      step.is_end = good = true;
      log.steps.push_back(std::exchange(step, {}));
    } else if (cells[0] == "note" && cells.size() == 2) {
      log.notes.emplace_back(cells[1]);
      good = true;
    }
    if (!good)
      return InvalidDump(path, offset).Expected("a line of a run's log"_t).Found("another"_t);
  }
  return log;
}

}  // namespace msprobe::selfcheck
