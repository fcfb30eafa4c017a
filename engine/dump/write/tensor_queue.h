// Writes tensor files while training goes on: the elements are copied, and a thread writes the
// files. A budget limits the bytes of the copies; a caller that is faster than the disk waits. With
// a budget of 0 the caller writes the files itself, which is faster when training uses every core.
//
//   TensorQueue queue({.budget = 256 << 20});
//   queue.SetFolder("step0/rank0/dump_tensor_data");
//   MSPROBE_RETURN_IF_ERROR(queue.Push("Functional.relu.0.forward.output.0.pt", view));
//   MSPROBE_RETURN_IF_ERROR(queue.Drain());      // all files complete, or the first reason why not
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/threads.h"
#include "engine/dump/write/linked_tensors.h"
#include "engine/dump/write/pack_writer.h"
#include "engine/formats/tensors/pt.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::dump {

struct TensorQueueOptions {
  int64_t budget = 256 << 20;  // bytes of all copies; 0: no copies, the caller writes
  int threads = 1;             // started at the first Push
};

struct TensorFolderOptions {
  // A tensor whose content is in a file of the folder becomes a hard link to that file, where the
  // file system has links; in a pack, its elements are not written again.
  bool link_equal = false;
  bool packed = false;  // one file for all tensors of the folder; see pack_writer.h
};

// Push and Drain may be called by one thread at a time. Must not be used in a forked child.
class TensorQueue {
 public:
  explicit TensorQueue(TensorQueueOptions options) : options_(options) {}
  ~TensorQueue();  // waits for all files; logs an error that no caller has got
  TensorQueue(const TensorQueue&) = delete;
  TensorQueue& operator=(const TensorQueue&) = delete;

  // Of the tensors that are pushed from now on.
  void SetBudget(int64_t budget);
  // The folder of the tensors that are pushed from now on. It is made for the first of them. An
  // earlier pack in it is removed.
  void SetFolder(std::string folder, TensorFolderOptions options = {});
  // Copies the elements and returns. A name that ends in ".npy" becomes a .npy file, any other one
  // a file as torch.save writes it. NumPy has no bfloat16 and no floats of 8 bits: their .npy files
  // have float32, which holds each of their values. A tensor larger than half the budget is written
  // before Push returns, without a copy if it is contiguous. After a failed write every Push
  // returns its error.
  Status Push(const std::string& file_name, const TensorView& view);
  Status Drain();
  int64_t bytes_written() const { return bytes_written_; }  // of elements, linked ones left out
  int64_t bytes_held();  // size of all buffers; never above the budget

 private:
  struct Buffer {
    std::unique_ptr<char[]> bytes;
    int64_t capacity = 0;
  };
  struct Layout {
    DType dtype;
    std::vector<int64_t> shape;
    int64_t size;                         // of the elements, in bytes
    std::optional<formats::PtLayout> pt;  // without: .npy
  };
  struct Job {
    std::string path;
    std::shared_ptr<const Layout> layout;
    std::shared_ptr<LinkedTensors> links;  // of the job's folder; null: no links
    std::shared_ptr<PackWriter> pack;      // of the job's folder; null: separate files
    Buffer buffer;
  };
  // A program has few shapes: each layout is composed once.
  Result<std::shared_ptr<const Layout>> LayoutOf(const TensorView& view, bool is_npy);
  Buffer TakeBuffer(int64_t size);  // waits until the budget allows it
  Status PushWide(const std::string& file_name, const TensorView& view);  // as float32
  bool HasThreads();  // starts the threads; false: the system gives none
  static Status Write(const Job& job, bool* linked);
  // Links or writes one file. `data`: the elements in logical order.
  static Status WriteFile(const std::string& path, const std::shared_ptr<const Layout>& layout,
                          std::string_view data, LinkedTensors* links, ThreadPool* pool,
                          bool* linked);
  Status PushToPack(const std::string& file_name, const TensorView& view, int64_t bytes);
  void Work();

  std::string folder_;
  TensorQueueOptions options_;
  bool folder_made_ = false;
  using LayoutKey = std::tuple<DType, bool, std::vector<int64_t>>;
  std::map<LayoutKey, std::shared_ptr<const Layout>> layouts_;
  std::shared_ptr<LinkedTensors> links_;  // of folder_
  TensorFolderOptions folder_options_;
  std::shared_ptr<PackWriter> pack_;  // of folder_
  std::vector<char> copy_;            // of a tensor with strides, on its way to the pack

  std::mutex mutex_;
  std::condition_variable wake_, room_;
  std::deque<Job> jobs_;
  std::vector<Buffer> spare_;  // buffers to use again: fresh memory costs a page fault per 4 KiB
  int64_t allocated_ = 0;      // bytes of all buffers, spare ones too
  size_t buffers_ = 0;         // number of all buffers
  int busy_ = 0;
  bool quit_ = false;
  Status first_error_;
  bool told_ = false;  // some caller has got first_error_
  int64_t bytes_written_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace msprobe::dump
