#include "engine/report_page/source_text.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/dump/read/source_line.h"
#include "engine/model/names.h"

namespace msprobe::report_page {
namespace {

constexpr size_t kMostFiles = 200, kMostBytes = 4 << 20, kLongestLine = 300;
constexpr int64_t kLinesAround = 3;  // lines before and after the place

void AppendStrings(std::initializer_list<std::string_view> texts, std::string* json) {
  for (const std::string_view text : texts) {
    if (json->back() != '[') *json += ',';
    AppendJsonString(json, text);
  }
}

// Where line `number` (from 1) begins; npos: the text has fewer lines.
size_t BeginOfLine(std::string_view text, int64_t number) {
  size_t at = 0;
  for (int64_t line = 1; line < number; ++line) {
    at = text.find('\n', at);
    if (at == text.npos) return at;
    ++at;
  }
  return at < text.size() ? at : text.npos;
}

std::string_view LineAt(std::string_view text, size_t at) {
  return text.substr(at, std::min(text.find('\n', at), text.size()) - at);
}

}  // namespace

void SourceTexts::AppendFrame(std::string_view text, std::string* json) {
  const dump::StackFrame frame = dump::ParseStackFrame(text);
  *json += '[';
  if (!frame.parsed) {
    AppendStrings({text}, json);
  } else {
    AppendStrings({frame.path, frame.line, frame.function, frame.source}, json);
    if (left_ > 0) AppendLinesAround(frame.path, frame.line, Trim(frame.source), json);
  }
  *json += ']';
}

const MappedFile* SourceTexts::Open(std::string_view path) {
  const auto known = files_.find(std::string(path));
  if (known != files_.end()) return known->second.bytes().empty() ? nullptr : &known->second;
  if (files_.size() >= kMostFiles || !path.ends_with(".py")) return nullptr;
  Result<MappedFile> file = MappedFile::Open(std::string(path));
  const bool good = file.ok() && file->bytes().size() <= kMostBytes;
  const MappedFile& kept =
      files_.try_emplace(std::string(path), good ? *std::move(file) : MappedFile()).first->second;
  return good && !kept.bytes().empty() ? &kept : nullptr;
}

void SourceTexts::AppendLinesAround(std::string_view path, std::string_view line,
                                    std::string_view source, std::string* json) {
  const int64_t number = NumberAfter(line, "");
  if (number < 1 || source.empty()) return;
  const MappedFile* file = Open(path);
  if (file == nullptr) return;
  const size_t place = BeginOfLine(file->bytes(), number);
  if (place == std::string_view::npos || Trim(LineAt(file->bytes(), place)) != source) return;
  --left_;
  const int64_t first = std::max<int64_t>(1, number - kLinesAround);
  *json += ',';
  AppendInteger(json, first);
  *json += ",[";
  size_t at = BeginOfLine(file->bytes(), first);
  for (int64_t i = first; i <= number + kLinesAround && at < file->bytes().size(); ++i) {
    const std::string_view text = LineAt(file->bytes(), at);
    if (i > first) *json += ',';
    AppendJsonString(json, text.substr(0, kLongestLine));
    at += text.size() + 1;
  }
  *json += ']';
}

}  // namespace msprobe::report_page
