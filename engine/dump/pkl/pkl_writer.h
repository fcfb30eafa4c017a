// Writes a session's entries as torch_npu.hooks and ptdbg_ascend did: lines in one file, elements
// in .npy files. Each entry's lines are appended with one write(2): a process killed at any moment
// leaves whole lines and at most a prefix of the last.
//
//   MSPROBE_ASSIGN_OR_RETURN(auto writer, PklWriter::Create(style, /*keep=*/false));
//   MSPROBE_RETURN_IF_ERROR(writer->Store("Functional_relu_0_forward.input.0.pt", view, &queue));
//   MSPROBE_RETURN_IF_ERROR(writer->Write(entry));
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/file.h"
#include "engine/dump/pkl/pkl_composer.h"
#include "engine/dump/write/entry_writer.h"
#include "engine/dump/write/tensor_queue.h"

namespace msprobe::dump {

class PklWriter final : public EntryWriter {
 public:
  // `keep`: lines are appended to an existing file. With file_for_each no file is created yet.
  static Result<std::unique_ptr<PklWriter>> Create(const PklStyle& style, bool keep);

  // Stores a tensor before its entry is written. `file_name`: the name that the entry has for it.
  Status Store(const std::string& file_name, const TensorView& view, TensorQueue* queue);

  Status Write(const Entry& entry) override;
  Status AppendConstruct(std::string_view, std::string_view) override { return Status::Ok(); }
  Result<int64_t> AddStack(std::string_view child, std::vector<std::string> frames) override;
  Status NoteStack(int64_t, std::string_view) override { return Status::Ok(); }
  Status Close() override;  // pkl files have no closing text
  Status Reopen() override { return Status::Ok(); }
  Status Finish() override;

  const std::string& last_file() const { return last_file_; }  // with file_for_each, the last one

 private:
  explicit PklWriter(const PklStyle& style);
  Status BeginFile();
  void List(const std::string& file_name, const TensorView& view);
  std::string_view TakeListed(std::string_view file_name);  // valid until the next call of it
  Status StoreStorage(std::string_view name, const TensorView& view, TensorQueue* queue);

  const PklStyle style_;
  PklComposer composer_;
  AppendFile file_;
  std::string last_file_, last_folder_;
  bool is_empty_ = true;    // no line was written, and no message was logged about that
  std::string with_stack_;  // reused
  // kInLines: elements that wait for their entry: the first `waiting_` of `listed_`. The others are
  // kept for their memory.
  struct Listed {
    std::string file, elements;
  };
  std::vector<Listed> listed_;
  size_t waiting_ = 0;
  std::vector<std::string> stacks_;  // as text of lines (PklFrames)
  // kStorages: call and side of the last file ("7_Functional_relu_forward_input"), the number of
  // the next side, and the place of the next value in this side.
  std::string last_side_;
  int64_t next_side_ = 0, next_value_ = 0;
};

// "Functional_relu_0_forward_input.0" for "Functional_relu_0_forward.input.0.pt". `swapped`:
// "input" and "output" of a backward call are exchanged. "": parameters of modules, which have no
// lines.
std::string PklNameOfFile(std::string_view file_name, bool swapped);

}  // namespace msprobe::dump
