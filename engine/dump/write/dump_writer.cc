#include "engine/dump/write/dump_writer.h"

#include <utility>

#include "engine/base/atomic_file.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/dump/write/entry_json.h"
#include "engine/model/guarded_text.h"

namespace msprobe::dump {
namespace {

// Names of later calls are kept in memory until Close(); beyond this many bytes they are written.
constexpr size_t kMaxWaitingBytes = 4 << 20;

std::string HeaderText(const DumpHeader& header) {
  std::string text = "{\"task\": ";
  AppendJsonString(&text, header.task);
  text += ", \"level\": ";
  AppendJsonString(&text, header.level);
  text += ", \"framework\": ";
  AppendJsonString(&text, header.framework);
  text += ", \"dump_data_dir\": ";
  if (header.dump_data_dir.empty()) {
    text += "null";
  } else {
    AppendJsonString(&text, header.dump_data_dir);
  }
  text += ", \"tool\": ";
  AppendJsonString(&text, header.tool);
  if (!header.provenance.empty()) text += ", \"provenance\": " + header.provenance;
  text += ", \"data\": {\n";
  return text;
}

// One line of stack.json: "id": [[names], [frames]].
std::string StackLine(int64_t id, std::initializer_list<std::string_view> names,
                      const std::vector<std::string>& frames) {
  std::string text = "\"";
  AppendInteger(&text, id);
  text += "\":[[";
  bool first = true;
  for (const std::string_view more : names) {
    if (more.empty()) continue;
    if (!std::exchange(first, false)) text += ',';
    text += more;
  }
  text += "],[";
  std::string room;
  for (size_t i = 0; i < frames.size(); ++i) {
    if (i) text += ',';
    AppendJsonString(&text, GuardText(frames[i], &room));
  }
  text += "]]";
  return text;
}

}  // namespace

Status DumpWriter::Log::Create(const std::string& path, std::string_view header,
                               std::string_view closing_text) {
  MSPROBE_ASSIGN_OR_RETURN(file, AppendFile::Open(path, /*keep=*/false));
  closing = closing_text;
  if (Status status = file.Append(header); !status.ok()) {
    (void)RemoveFile(path);  // a file without a header would look like a damaged dump
    return status;
  }
  open_size = file.size();
  return Status::Ok();
}

// The comma that separates two lines is written with the second one. So after a kill the file ends
// with a whole line, or with a prefix of ",\n" and one line: cut at the last whole entry, it needs
// only the closing text to be JSON.
template <typename Compose>
Status DumpWriter::Log::AppendComposed(Compose&& compose) {
  line.assign(lines > 0 ? ",\n" : "");
  compose(&line);
  MSPROBE_RETURN_IF_ERROR(file.Append(line));
  ++lines;
  open_size = file.size();
  return Status::Ok();
}

Status DumpWriter::Log::AppendLine(std::string_view text) {
  return AppendComposed([&](std::string* out) { *out += text; });
}

Status DumpWriter::Log::Close() {
  if (closed || !file.is_open()) return Status::Ok();
  closed = true;
  return file.Append(closing);
}

Status DumpWriter::Log::Finish() {
  if (!file.is_open()) return Status::Ok();
  MSPROBE_RETURN_IF_ERROR(Close());
  return file.Close();
}

Status DumpWriter::Log::Reopen() {
  if (!closed) return Status::Ok();
  closed = false;
  if (!file.is_open()) {  // the file was replaced as a whole
    MSPROBE_ASSIGN_OR_RETURN(file, AppendFile::Open(std::string(file.path()), /*keep=*/true));
  }
  return file.TruncateTo(open_size);
}

Result<std::unique_ptr<DumpWriter>> DumpWriter::Create(const std::string& folder,
                                                       const DumpHeader& header) {
  auto writer = std::make_unique<DumpWriter>();
  writer->folder_ = folder;
  const bool alone = header.file_name != "dump.json";
  writer->extra_info_ = header.extra_info && !alone;
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
  MSPROBE_RETURN_IF_ERROR(
      writer->dump_.Create(JoinPath(folder, header.file_name), HeaderText(header), "\n}}\n"));
  if (alone) return writer;
  // Files of an earlier run would be taken for files of this run.
  MSPROBE_RETURN_IF_ERROR(RemoveFile(JoinPath(folder, "weights.json")));
  if (header.extra_info) {
    MSPROBE_RETURN_IF_ERROR(writer->stack_.Create(JoinPath(folder, "stack.json"), "{\n", "\n}\n"));
    MSPROBE_RETURN_IF_ERROR(
        writer->construct_.Create(JoinPath(folder, "construct.json"), "{\n", "\n}\n"));
  } else {
    for (const char* name : {"stack.json", "construct.json"})
      MSPROBE_RETURN_IF_ERROR(RemoveFile(JoinPath(folder, name)));
  }
  return writer;
}

Status DumpWriter::Write(const Entry& entry) {
  return dump_.AppendComposed([&](std::string* out) { AppendEntryJson(out, entry); });
}

Status DumpWriter::AppendConstruct(std::string_view child, std::string_view parent) {
  if (!extra_info_) return Status::Ok();
  std::string text;
  AppendJsonString(&text, child);
  text += ':';
  if (parent.empty()) {
    text += "null";
  } else {
    AppendJsonString(&text, parent);
  }
  return construct_.AppendLine(text);
}

Result<int64_t> DumpWriter::AddStack(std::string_view child, std::vector<std::string> frames) {
  // Two calls on one line are two places in the code; their frames are equal text.
  std::string text;
  for (const std::string& frame : frames) (text += frame) += '\n';
  if (const auto known = by_frames_.find(text); known != by_frames_.end()) {
    MSPROBE_RETURN_IF_ERROR(NoteStack(known->second, child));
    return known->second;
  }
  const int64_t id = next_stack_++;
  by_frames_.emplace(std::move(text), id);
  std::string name;
  AppendJsonString(&name, child);
  if (extra_info_) MSPROBE_RETURN_IF_ERROR(stack_.AppendLine(StackLine(id, {name}, frames)));
  stack_number_.resize(static_cast<size_t>(id) + 1, -1);
  stack_number_[static_cast<size_t>(id)] = static_cast<int64_t>(stacks_.size());
  stacks_.push_back({std::move(name), std::move(frames), {}});
  return id;
}

Status DumpWriter::NoteStack(int64_t id, std::string_view child) {
  if (!extra_info_) return Status::Ok();
  std::string& waiting =
      stacks_[static_cast<size_t>(stack_number_[static_cast<size_t>(id)])].waiting;
  const size_t before = waiting.size();
  if (!waiting.empty()) waiting += ',';
  AppendJsonString(&waiting, child);
  waiting_bytes_ += waiting.size() - before;
  return waiting_bytes_ > kMaxWaitingBytes ? FlushStacks() : Status::Ok();
}

Status DumpWriter::FlushStacks() {
  for (Stack& stack : stacks_) {
    if (stack.waiting.empty()) continue;
    // The names go into a new group, with a new number and the same frames: no line is rewritten.
    MSPROBE_RETURN_IF_ERROR(
        stack_.AppendLine(StackLine(next_stack_++, {stack.waiting}, stack.frames)));
    stack.waiting = std::string();
  }
  has_groups_ = true;
  waiting_bytes_ = 0;
  return Status::Ok();
}

// Writes stack.json anew, with all names of each stack in one group. A kill leaves the old content
// or the new one, never a part of each: Replace and the rename of AtomicFile are both whole.
Status DumpWriter::MergeStacks() {
  if (waiting_bytes_ == 0) return Status::Ok();
  if (has_groups_) return FlushStacks();
  std::string text = "{\n";
  for (size_t id = 0; id < stack_number_.size(); ++id) {
    Stack& stack = stacks_[static_cast<size_t>(stack_number_[id])];
    if (id > 0) text += ",\n";
    text += StackLine(static_cast<int64_t>(id), {stack.first, stack.waiting}, stack.frames);
    stack.waiting = std::string();
  }
  const size_t open_size = text.size();
  text += stack_.closing;
  if (!stack_.file.Replace(text)) {  // cheap, for small files; otherwise a new file replaces it
    MSPROBE_ASSIGN_OR_RETURN(AtomicFile merged, AtomicFile::Create(stack_.file.path()));
    MSPROBE_RETURN_IF_ERROR(merged.Write({text}));
    MSPROBE_RETURN_IF_ERROR(merged.Commit());
    MSPROBE_RETURN_IF_ERROR(stack_.file.Close());
  }
  has_groups_ = true;
  waiting_bytes_ = 0;
  stack_.closed = true;
  stack_.open_size = open_size;
  return Status::Ok();
}

Status DumpWriter::Close() {
  // All three files are closed even when one fails; the first error is returned.
  Status first = dump_.Close();
  for (Status status :
       {extra_info_ ? MergeStacks() : Status::Ok(), stack_.Close(), construct_.Close()}) {
    if (first.ok()) first = std::move(status);
  }
  if (first.ok() && dump_.file.is_open() && dump_.file.IsRemoved()) {
    return Status(ErrorCode::kIo)
        .At(dump_.file.path())
        .Says("somebody removed this file while it was being written"_t);
  }
  return first;
}

Status DumpWriter::Finish() {
  Status first = Close();
  for (Log* log : {&dump_, &stack_, &construct_}) {
    if (Status status = log->Finish(); first.ok()) first = std::move(status);
  }
  return first;
}

Status DumpWriter::Reopen() {
  MSPROBE_RETURN_IF_ERROR(dump_.Reopen());
  MSPROBE_RETURN_IF_ERROR(stack_.Reopen());
  return construct_.Reopen();
}

}  // namespace msprobe::dump
