#include "engine/dump/dump_writer.h"

#include "engine/base/text.h"

namespace msprobe {
namespace {

// Names of later calls wait in memory for Close(); beyond this many bytes they are written at once.
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

}  // namespace

Status DumpWriter::Log::Create(const std::string& path, std::string_view header,
                               std::string_view closing_text) {
  MSPROBE_ASSIGN_OR_RETURN(file, AppendFile::Open(path, /*keep=*/false));
  closing = closing_text;
  if (Status status = file.Append(header); !status.ok()) {
    (void)RemoveFile(path);  // without a header it would be no dump, but damage
    return status;
  }
  open_size = file.size();
  return Status::Ok();
}

Status DumpWriter::Log::AppendLine(std::string_view text) {
  line.assign(lines > 0 ? ",\n" : "");
  line += text;
  MSPROBE_RETURN_IF_ERROR(file.Append(line));
  ++lines;
  open_size = file.size();
  return Status::Ok();
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
  if (header.extra_info) {
    MSPROBE_RETURN_IF_ERROR(writer->stack_.Create(JoinPath(folder, "stack.json"), "{\n", "\n}\n"));
    MSPROBE_RETURN_IF_ERROR(
        writer->construct_.Create(JoinPath(folder, "construct.json"), "{\n", "\n}\n"));
  } else {
    // Those of an earlier run would be taken for ours.
    for (const char* name : {"stack.json", "construct.json"})
      MSPROBE_RETURN_IF_ERROR(RemoveFile(JoinPath(folder, name)));
  }
  return writer;
}

Status DumpWriter::Append(std::string_view entry) { return dump_.AppendLine(entry); }

Status DumpWriter::AppendConstruct(std::string_view child, std::string_view parent) {
  if (!extra_info_) return Status::Ok();
  std::string text;
  AppendJsonString(&text, child);
  text += ": ";
  if (parent.empty()) {
    text += "null";
  } else {
    AppendJsonString(&text, parent);
  }
  return construct_.AppendLine(text);
}

Status DumpWriter::WriteStack(int64_t id, std::string_view names,
                              const std::vector<std::string>& frames) {
  std::string text = "\"";
  AppendInteger(&text, id);
  text += "\": [[";
  text += names;
  text += "], [";
  for (size_t i = 0; i < frames.size(); ++i) {
    if (i) text += ", ";
    AppendJsonString(&text, frames[i]);
  }
  text += "]]";
  return stack_.AppendLine(text);
}

Result<int64_t> DumpWriter::AddStack(std::string_view child, std::vector<std::string> frames) {
  const int64_t id = next_stack_++;
  std::string name;
  AppendJsonString(&name, child);
  if (extra_info_) MSPROBE_RETURN_IF_ERROR(WriteStack(id, name, frames));
  stack_number_.resize(static_cast<size_t>(id) + 1, -1);
  stack_number_[static_cast<size_t>(id)] = static_cast<int64_t>(stacks_.size());
  stacks_.push_back({std::move(frames), {}});
  return id;
}

Status DumpWriter::NoteStack(int64_t id, std::string_view child) {
  if (!extra_info_) return Status::Ok();
  std::string& waiting =
      stacks_[static_cast<size_t>(stack_number_[static_cast<size_t>(id)])].waiting;
  const size_t before = waiting.size();
  if (!waiting.empty()) waiting += ", ";
  AppendJsonString(&waiting, child);
  waiting_bytes_ += waiting.size() - before;
  return waiting_bytes_ > kMaxWaitingBytes ? FlushStacks() : Status::Ok();
}

Status DumpWriter::FlushStacks() {
  for (Stack& stack : stacks_) {
    if (stack.waiting.empty()) continue;
    // A group of its own under a new number: the frames stand there again, nothing is rewritten.
    MSPROBE_RETURN_IF_ERROR(WriteStack(next_stack_++, stack.waiting, stack.frames));
    stack.waiting = std::string();
  }
  waiting_bytes_ = 0;
  return Status::Ok();
}

Status DumpWriter::Close() {
  // All three are closed even when one fails; the first reason is the one reported.
  Status first = dump_.Close();
  for (Status status :
       {extra_info_ ? FlushStacks() : Status::Ok(), stack_.Close(), construct_.Close()}) {
    if (first.ok()) first = std::move(status);
  }
  if (first.ok() && dump_.file.is_open() && dump_.file.IsRemoved()) {
    return Status(ErrorCode::kIo)
        .At(dump_.file.path())
        .Says("somebody removed this file while it was being written");
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

}  // namespace msprobe
