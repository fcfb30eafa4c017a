// The files of one step and rank: dump.json with its stacks and tensors, or a .pkl file.
//
//   StepFiles files("pytorch");
//   MSPROBE_RETURN_IF_ERROR(files.Open(config, step, rank, provenance));
//   MSPROBE_RETURN_IF_ERROR(files.Write(entry));
//   MSPROBE_RETURN_IF_ERROR(files.Close());    // Reopen continues after Close
//   MSPROBE_RETURN_IF_ERROR(files.Finish());   // the step is over
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/dump/config/config.h"
#include "engine/dump/pkl/pkl_writer.h"
#include "engine/dump/write/dump_writer.h"
#include "engine/dump/write/tensor_queue.h"

namespace msprobe::dump {

// Whether a dump with this configuration may have tensor files.
bool StoresTensors(const Config& config);

class StepFiles {
 public:
  explicit StepFiles(std::string framework) : framework_(std::move(framework)) {}

  // `provenance`: a JSON object for the header, or "". Errors: kIo.
  Status Open(const Config& config, int64_t step, std::optional<int> rank,
              const std::string& provenance);
  bool is_open() const { return writer_ != nullptr; }
  Status Reopen() { return writer_->Reopen(); }
  Status Close();   // waits for stored tensors; has no effect when none are open
  Status Finish();  // completes the files; has no effect when none are open
  void Forget();    // forgets the files, so that the next step or stage opens new ones
  void NewStep() { stages_.clear(); }          // the next Open is in another step
  void ReleaseTensors() { tensors_.reset(); }  // frees the memory of the tensor queue
  // From now on a thread writes the tensors, also with few cores: they come from a device, and the
  // training leaves the cores of this machine idle.
  void WriteTensorsLater();
  void DrainTensors();  // waits for stored tensors; the files stay open
  void Abandon();       // in a forked child: never touches the files again

  Status Write(const Entry& entry) { return writer_->Write(entry); }
  Status AppendConstruct(std::string_view name, std::string_view parent) {
    return writer_->AppendConstruct(name, parent);
  }
  // Writes another file into the folder of dump.json. Beside a pkl file only weights.json is
  // written.
  Status WriteBeside(const std::string& file_name, std::string_view text);
  // Whether this step has seen the stack. `stack`: the caller's own number of it.
  bool KnowsStack(int64_t stack) const {
    const auto index = static_cast<size_t>(stack);
    return index < stack_numbers_.size() && stack_numbers_[index] >= 0;
  }
  // The number of a stack in this step's files. `frames`: its lines, if this step has not seen it.
  Result<int64_t> NoteStack(int64_t stack, std::string_view name, std::vector<std::string> frames);
  Status Store(const std::string& file_name, const TensorView& view);
  bool storing() const { return tensors_ != nullptr; }

  const std::string& folder() const { return folder_; }  // "" before the first Open
  // Whether a pkl file was begun since the last call of TakeNewPkl, and the pkl file that the last
  // entry went to.
  bool TakeNewPkl() { return std::exchange(begins_pkl_, false); }
  std::string last_file() const { return pkl_ == nullptr ? "" : pkl_->last_file(); }

 private:
  Status OpenPkl(const Config& config, std::optional<int> rank);
  Result<int64_t> AddStack(int64_t stack, std::string_view name, std::vector<std::string> frames);

  const std::string framework_;
  std::string folder_;
  std::unique_ptr<EntryWriter> writer_;
  PklWriter* pkl_ = nullptr;         // writer_, when it writes a .pkl file
  std::set<std::string> stages_;     // folders of this step's dumps
  std::set<std::string> pkl_files_;  // pkl files that were written before: they are appended to
  bool begins_pkl_ = false, said_replaces_ = false, said_stage_ = false;
  std::unique_ptr<TensorQueue> tensors_;
  bool later_ = false;  // WriteTensorsLater
  // The caller's number of a stack -> its number in this step's files; -1: not seen in this step.
  std::vector<int64_t> stack_numbers_;
};

}  // namespace msprobe::dump
