// Writes the three JSON files of one rank and step while training runs. Each file is a log: a
// header, then one entry a line, each appended with one write(2); nothing written is ever rewritten
// but the closing braces, which Close() appends and a later Reopen() cuts off again. A process
// killed at any moment leaves whole lines and at most a prefix of the last one.
//
//   MSPROBE_ASSIGN_OR_RETURN(auto writer, DumpWriter::Create(folder, header));
//   MSPROBE_RETURN_IF_ERROR(writer->Write(entry));
//   MSPROBE_RETURN_IF_ERROR(writer->Close());
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/file.h"
#include "engine/dump/write/entry_writer.h"

namespace msprobe::dump {

struct DumpHeader {
  std::string file_name = "dump.json";  // debug.json stands alone: no other file belongs to it
  std::string task = "statistics", level = "L1", framework = "pytorch";
  std::string dump_data_dir;  // "" is null: no tensors are stored
  std::string tool;           // "msprobe 27.0.0"
  std::string provenance;     // a JSON object; "" leaves it out
  bool extra_info = true;     // false: stack.json and construct.json are not written
};

class DumpWriter final : public EntryWriter {
 public:
  // Creates `folder` and the three files; an existing dump there is replaced.
  static Result<std::unique_ptr<DumpWriter>> Create(const std::string& folder,
                                                    const DumpHeader& header);

  Status Write(const Entry& entry) override;
  Status AppendConstruct(std::string_view child, std::string_view parent) override;
  // Writes the frames, unless a stack reads the same. The first Close() puts the names of later
  // calls beside them, the whole file at once; when many are waiting before that, and after it,
  // they get further groups of their own.
  Result<int64_t> AddStack(std::string_view child, std::vector<std::string> frames) override;
  // Until its name is written only the entry's own "stack" member tells, which is why entries
  // carry one.
  Status NoteStack(int64_t id, std::string_view child) override;

  Status Close() override;  // closing braces
  Status Reopen() override;
  Status Finish() override;
  const std::string& folder() const { return folder_; }
  int64_t entries() const { return dump_.lines; }

 private:
  // One file: header, lines, closing text.
  struct Log {
    AppendFile file;
    std::string_view closing;
    int64_t lines = 0;
    uint64_t open_size = 0;  // size without the closing text
    bool closed = false;
    std::string line;  // reused

    Status Create(const std::string& path, std::string_view header, std::string_view closing_text);
    // Appends the line that `compose` adds to a string.
    template <typename Compose>
    Status AppendComposed(Compose&& compose);
    Status AppendLine(std::string_view text);
    Status Close();
    Status Finish();
    Status Reopen();
  };
  struct Stack {
    std::string first;  // name of the first call, as a JSON string
    std::vector<std::string> frames;
    std::string waiting;  // names not written yet, as JSON strings joined with ", "
  };
  Status FlushStacks();
  Status MergeStacks();

  std::string folder_;
  bool extra_info_ = true;
  Log dump_, stack_, construct_;
  std::vector<Stack> stacks_;
  int64_t next_stack_ = 0;  // numbers in the file; also those of later groups of the same stack
  std::vector<int64_t> stack_number_;
  std::unordered_map<std::string, int64_t> by_frames_;
  size_t waiting_bytes_ = 0;
  bool has_groups_ = false;  // of later calls: stacks stand in the file more than once
};

}  // namespace msprobe::dump
