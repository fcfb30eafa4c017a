#include "engine/dump/tensor_queue.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"

namespace msprobe {

TensorQueue::~TensorQueue() {
  if (const Status status = Drain(); !status.ok()) Log(LogLevel::kError, status.message());
  {
    std::lock_guard lock(mutex_);
    quit_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void TensorQueue::SetFolder(std::string folder) {
  folder_ = std::move(folder);
  folder_made_ = false;
}

TensorQueue::Buffer TensorQueue::TakeBuffer(int64_t size) {
  std::unique_lock lock(mutex_);
  // Sizes are rounded up so that the few sizes of a model's tensors find each other's buffers.
  const int64_t capacity =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(size, 4096))));
  while (true) {
    const auto spare = std::find_if(spare_.begin(), spare_.end(), [&](const Buffer& b) {
      return b.capacity >= size && b.capacity <= 4 * capacity;
    });
    if (spare != spare_.end()) {
      Buffer buffer = std::move(*spare);
      spare_.erase(spare);
      return buffer;
    }
    while (!spare_.empty() && allocated_ + capacity > options_.budget) {
      allocated_ -= spare_.back().capacity;
      spare_.pop_back();
    }
    if (allocated_ == 0 || allocated_ + capacity <= options_.budget) break;
    room_.wait(lock);
  }
  allocated_ += capacity;
  return {std::unique_ptr<char[]>(new char[static_cast<size_t>(capacity)]), capacity};
}

Status TensorQueue::Push(const std::string& file_name, const TensorView& view) {
  if (!std::exchange(folder_made_, true)) MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder_));
  MSPROBE_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(view.dtype, view.dims()));
  const std::string path = JoinPath(folder_, file_name);
  {
    std::lock_guard lock(mutex_);
    if (!first_error_.ok()) return first_error_;
  }
  if (options_.budget == 0 || bytes > options_.budget / 2) {
    const Status written = WritePt(path, view, {}, &ThreadPool::Default());
    std::lock_guard lock(mutex_);
    if (written.ok()) bytes_written_ += bytes;
    if (first_error_.ok()) first_error_ = written;
    return written;
  }
  MSPROBE_ASSIGN_OR_RETURN(PtLayout layout, MakePtLayout(view.dtype, view.dims()));
  Buffer buffer = TakeBuffer(bytes);
  CopyContiguous(view, buffer.bytes.get());
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back({path, std::move(layout), std::move(buffer)});
    while (static_cast<int>(threads_.size()) < options_.threads)
      threads_.emplace_back([this] { Work(); });
  }
  wake_.notify_one();
  return Status::Ok();
}

void TensorQueue::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return quit_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    ++busy_;
    lock.unlock();
    const std::string_view data(job.buffer.bytes.get(), job.layout.data_size());
    Status status = WritePt(job.path, job.layout, data);
    lock.lock();
    --busy_;
    if (status.ok()) {
      bytes_written_ += static_cast<int64_t>(job.layout.data_size());
    } else if (first_error_.ok()) {
      first_error_ = std::move(status);
    }
    spare_.push_back(std::move(job.buffer));
    room_.notify_all();
  }
}

Status TensorQueue::Drain() {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return jobs_.empty() && busy_ == 0; });
  return first_error_;
}

}  // namespace msprobe
