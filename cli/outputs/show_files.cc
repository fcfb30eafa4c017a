#include "cli/outputs/show_files.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/base/display_width.h"
#include "engine/base/file.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/source_line.h"
#include "engine/dump/write/coverage.h"
#include "engine/formats/archive/zip.h"
#include "engine/formats/tables/table_file.h"
#include "engine/formats/tensors/safetensors.h"
#include "engine/formats/tensors/tensor_file.h"
#include "engine/formats/text/json.h"

namespace msprobe::cli {
namespace {

constexpr int64_t kRows = 10, kEntries = 100;

// Prints each row as lines "header: cell", because a result table has some fifty columns.
Status ShowTable(const std::string& path, const ShowTensorOptions& options, Console& out) {
  const int64_t limit = options.LimitOr(kRows);
  std::vector<std::string> header;
  std::string sheet;
  bool any = false;
  int64_t rows = 0, matching = 0;
  const auto end_sheet = [&] {
    if (!any) return;
    std::vector<Message> parts = {"{} rows"_t(rows)};
    if (!options.filter.empty())
      parts.push_back("{} of them with {}"_t(matching, Excerpt(options.filter)));
    if (matching > limit) parts.push_back("{} shown; --limit 0 shows all"_t(limit));
    if (rows > 0) out.Write("\n");
    out.Tell(Message::Joined(std::move(parts), ", "));
  };
  Status status = formats::ReadTableFile(path, [&](const formats::TableLine& line) {
    if (!any || line.sheet != sheet) {
      end_sheet();
      if (any) out.Write("\n");
      any = true;
      sheet = line.sheet;
      header.assign(line.cells.begin(), line.cells.end());
      rows = matching = 0;
      out.Tell(sheet.empty() ? "{}  {} columns"_t(path, header.size())
                             : "{}, sheet {}  {} columns"_t(path, sheet, header.size()));
      return true;
    }
    ++rows;
    const bool matches = std::any_of(
        line.cells.begin(), line.cells.end(),
        [&](std::string_view cell) { return cell.find(options.filter) != std::string_view::npos; });
    if (!matches || ++matching > limit) return true;
    int width = 0;
    for (const std::string& name : header)
      width = std::max(width, DisplayWidth(MakePrintable(name)));
    out.Write("\n");
    out.Tell("row {}"_t(line.number));
    for (size_t i = 0; i < line.cells.size(); ++i) {
      if (line.cells[i].empty()) continue;
      out.Print("  {:<{}}  {}\n", i < header.size() ? MakePrintable(header[i]) : "", width,
                MakePrintable(line.cells[i]));
    }
    return true;
  });
  end_sheet();
  return status;
}

// Prints stack.json, construct.json and similar files: names and what belongs to each name.
class SideFile {
 public:
  SideFile(const std::string& path, std::string_view text, const ShowTensorOptions& options,
           Console& out)
      : path_(path), json_(text), options_(options), out_(out) {}

  Status Show() {
    out_.Print("{}\n", MakePrintable(path_));
    const int64_t limit = options_.LimitOr(kEntries);
    int64_t shown = 0, matching = 0;
    formats::JsonText key;
    for (json_.BeginObject(); json_.NextKey(&key);) {
      lines_.clear();
      names_.clear();
      formats::AppendJsonText(&names_, key);
      Value(0);
      if (json_.failed()) break;
      const bool matches = names_.find(options_.filter) != std::string::npos ||
                           std::any_of(lines_.begin(), lines_.end(), [&](const std::string& line) {
                             return line.find(options_.filter) != std::string::npos;
                           });
      if (!matches || ++matching > limit) continue;
      ++shown;
      out_.Print("{}", MakePrintable(names_));
      if (lines_.size() == 1) {
        out_.Print("  {}\n", MakePrintable(lines_[0]));
        continue;
      }
      out_.Write("\n");
      for (const std::string& line : lines_) out_.Print("  {}\n", MakePrintable(line));
    }
    if (matching > shown) out_.Tell("and {} more; --limit 0 shows all"_t(matching - shown));
    return json_.failed() ? json_.Error(path_) : Status::Ok();
  }

 private:
  // Prints each text of a value on a line of its own, also the texts of lists in lists.
  void Value(int depth) {
    formats::JsonText text;
    std::string_view raw;
    if (json_.Peek() == '[') {
      for (json_.BeginArray(); json_.NextItem();) Value(depth + 1);
    } else if (json_.Peek() == '"') {
      std::string& line = lines_.emplace_back();
      if (json_.String(&text)) formats::AppendJsonText(&line, text);
      std::replace(line.begin(), line.end(), '\n', ' ');
    } else if (json_.Raw(&raw)) {
      lines_.emplace_back(raw == "null" ? "none" : raw);
    }
  }

  const std::string& path_;
  formats::JsonCursor json_;
  const ShowTensorOptions& options_;
  Console& out_;
  std::string names_;
  std::vector<std::string> lines_;
};

Status ShowCoverage(const std::string& path, Console& out) {
  MSPROBE_ASSIGN_OR_RETURN(const dump::Coverage coverage, dump::ReadCoverage(path));
  out.Print("{}\n", MakePrintable(path));
  for (const auto& line : dump::CoverageLines(coverage, 1000)) out.Tell(line);
  return Status::Ok();
}

// What a JSON file is, by its outermost members.
enum class JsonKind { kDump, kCoverage, kWeights, kSide, kNone };
JsonKind KindOfJson(std::string_view text) {
  formats::JsonCursor json(text);
  formats::JsonText key, value;
  bool any = false;
  for (json.BeginObject(); json.NextKey(&key); any = true) {
    if (key == "data" || key == "task" || key == "level" || key == "dump_data_dir") {
      return JsonKind::kDump;
    }
    if (key == "schema" && json.Peek() == '"') {
      if (!json.String(&value)) return JsonKind::kNone;
      if (value == "msprobe.coverage/1") return JsonKind::kCoverage;
      if (value == "msprobe.weights/1") return JsonKind::kWeights;
      continue;
    }
    const char next = json.Peek();
    return next == '"' || next == '[' || next == 'n' ? JsonKind::kSide : JsonKind::kNone;
  }
  return any || json.failed() ? JsonKind::kNone : JsonKind::kSide;
}

bool IsWorkbook(std::string_view bytes, const std::string& path) {
  const Result<formats::ZipReader> zip = formats::ZipReader::Open(bytes, path);
  return zip.ok() && zip->Find("xl/workbook.xml") != nullptr;
}

Result<bool> ShowFolder(const std::string& path, Console& out) {
  const Result<std::vector<dump::DumpLocation>> found = dump::FindDumps(path);
  if (!found.ok() || found->size() < 2) return false;
  out.Tell("{}  {} dumps"_t(path, found->size()));
  for (const dump::DumpLocation& dump : *found) {
    const std::string step = dump.step >= 0 ? fmt::format("step {}", dump.step) : "";
    const std::string rank = dump.rank >= 0 ? fmt::format("rank {}", dump.rank) : "";
    out.Print("  {:<10} {:<10} {}\n", step, rank, MakePrintable(dump.path));
  }
  return true;
}

struct FileContent {
  bool is_table = false, is_tensor = false;
  JsonKind json = JsonKind::kDump;
};

Result<bool> Shown(Status status) {
  if (!status.ok()) return status;
  return true;
}

FileContent ContentOf(const std::string& path, std::string_view bytes) {
  FileContent content;
  const bool archive = bytes.starts_with("PK\x03\x04");
  content.is_table = path.ends_with(".csv") || (archive && IsWorkbook(bytes, path));
  // A damaged file is read as what its name says: the error then speaks of that format.
  content.is_tensor = archive || bytes.starts_with("\x93NUMPY") ||
                      formats::LooksLikeSafetensors(bytes) || path.ends_with(".pt") ||
                      path.ends_with(".npy") || path.ends_with(".safetensors");
  if (bytes.starts_with('{')) content.json = KindOfJson(bytes);
  return content;
}

}  // namespace

Result<bool> ShowOtherFile(const std::string& path, const ShowTensorOptions& options,
                           Console& out) {
  if (IsDirectory(path)) {  // a list of dumps has no calls to choose from, and no elements
    const bool chooses =
        !options.filter.empty() || !options.slice.empty() || !options.golden.empty();
    return chooses ? Result<bool>(false) : ShowFolder(path, out);
  }
  if (formats::IsInPack(path)) return Shown(ShowTensors(path, options, out));
  if (!IsRegularFile(path)) return false;
  FileContent content;
  {
    MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    content = ContentOf(path, file.bytes());
    if (content.json == JsonKind::kSide || content.json == JsonKind::kWeights)
      return Shown(SideFile(path, file.bytes(), options, out).Show());
  }
  if (content.is_table) return Shown(ShowTable(path, options, out));
  if (content.is_tensor) return Shown(ShowTensors(path, options, out));
  if (content.json == JsonKind::kCoverage) return Shown(ShowCoverage(path, out));
  return false;
}

}  // namespace msprobe::cli
