// Writes the three JSON files of one rank and step while training runs. Each file is a log: a
// header, then one entry on each line, appended with one write(2). Nothing is ever rewritten except
// the closing braces, which Close() appends and Reopen() cuts off. A process that is killed at any
// moment leaves complete lines and at most a prefix of the last one.
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
  std::string file_name = "dump.json";  // or debug.json, which has no stack.json beside it
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
  // Writes the frames, unless an equal stack was written before. The names of later calls with the
  // same stack are kept until the first Close(), which writes the whole file anew with all names.
  // When too many are kept, and after the first Close(), they are written as further groups.
  Result<int64_t> AddStack(std::string_view child, std::vector<std::string> frames) override;
  // Until the name of a call is written, only the member "stack" of its entry tells its stack.
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
    // Appends one line; `compose` adds its text to a string.
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
  int64_t next_stack_ = 0;  // number of the next group in the file
  std::vector<int64_t> stack_number_;
  std::unordered_map<std::string, int64_t> by_frames_;
  size_t waiting_bytes_ = 0;
  bool has_groups_ = false;  // some stack has more than one group in the file
};

}  // namespace msprobe::dump
