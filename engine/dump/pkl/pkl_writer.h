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
  // `keep`: lines are added to those the file has. With file_for_each nothing is made yet.
  static Result<std::unique_ptr<PklWriter>> Create(const PklStyle& style, bool keep);

  // A tensor of an entry to come, under the file name that the entry gives it.
  Status Store(const std::string& file_name, const TensorView& view, TensorQueue* queue);

  Status Write(const Entry& entry) override;
  Status AppendConstruct(std::string_view, std::string_view) override { return Status::Ok(); }
  Result<int64_t> AddStack(std::string_view child, std::vector<std::string> frames) override;
  Status NoteStack(int64_t, std::string_view) override { return Status::Ok(); }
  Status Close() override;  // lines have no end to be written
  Status Reopen() override { return Status::Ok(); }
  Status Finish() override;

  const std::string& last_file() const { return last_file_; }  // with file_for_each, the last one

 private:
  explicit PklWriter(const PklStyle& style);
  Status BeginFile();
  void List(const std::string& file_name, const TensorView& view);
  std::string_view TakeListed(std::string_view file_name);  // until the next of them
  Status StoreStorage(std::string_view name, const TensorView& view, TensorQueue* queue);

  const PklStyle style_;
  PklComposer composer_;
  AppendFile file_;
  std::string last_file_, last_folder_;
  bool is_empty_ = true;    // no line was written, and no message said so
  std::string with_stack_;  // reused
  // kInLines: elements that wait for their entry. The first `waiting_`; the others' memory is used
  // again.
  struct Listed {
    std::string file, elements;
  };
  std::vector<Listed> listed_;
  size_t waiting_ = 0;
  std::vector<std::string> stacks_;  // as lines have them
  // kStorages: the call and side of the last file, and how many files they have.
  std::string last_side_;
  int64_t next_side_ = 0, next_value_ = 0;
};

// "Functional_relu_0_forward.input.0.pt" as lines name the value: "..._forward_input.0". `swapped`:
// the parts of a backward call change their names. "": parameters of modules, which have no lines.
std::string PklNameOfFile(std::string_view file_name, bool swapped);

}  // namespace msprobe::dump
