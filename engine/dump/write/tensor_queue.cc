#include "engine/dump/write/tensor_queue.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <system_error>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"
#include "engine/formats/tensors/npy.h"
#include "engine/tensor/float_formats.h"

namespace msprobe::dump {
namespace {

constexpr size_t kMaxLayouts = 512;  // about a KiB each
// A tensor of a pack that is as small is copied into the pack's log, which is faster than a queue.
constexpr int64_t kMaxAtOnce = 64 << 10;

}  // namespace

TensorQueue::~TensorQueue() {
  const bool told = told_;
  if (const Status status = Drain(); !status.ok() && !told)
    Log(LogLevel::kError, status.AsMessage());
  {
    std::lock_guard lock(mutex_);
    quit_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void TensorQueue::SetBudget(int64_t budget) {
  const std::lock_guard lock(mutex_);
  options_.budget = budget;
}

void TensorQueue::SetFolder(std::string folder, TensorFolderOptions options) {
  folder_ = std::move(folder);
  folder_made_ = false;
  folder_options_ = options;
  links_ = options.link_equal && !options.packed ? std::make_shared<LinkedTensors>() : nullptr;
  pack_ = nullptr;
  // Readers look into a pack first: that of an earlier dump must not hide the new files.
  for (const char* end : {"", formats::kPackLogSuffix})
    (void)RemoveFile(JoinPath(folder_, std::string(formats::kPackName) + end));
}

TensorQueue::Buffer TensorQueue::TakeBuffer(int64_t size) {
  std::unique_lock lock(mutex_);
  // Sizes are rounded up, so that tensors of similar sizes use the same buffers again.
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
    // No spare buffer fits: spare ones of other sizes are freed until the new one fits the budget.
    while (!spare_.empty() && allocated_ + capacity > options_.budget) {
      allocated_ -= spare_.back().capacity;
      --buffers_;
      spare_.pop_back();
    }
    if (allocated_ == 0 || allocated_ + capacity <= options_.budget) break;
    room_.wait(lock);
  }
  // The writing thread must not allocate when it gives a buffer back: nothing would catch
  // std::bad_alloc there.
  if (spare_.capacity() <= buffers_) spare_.reserve(2 * buffers_ + 16);
  std::unique_ptr<char[]> bytes(new char[static_cast<size_t>(capacity)]);
  allocated_ += capacity;
  ++buffers_;
  return {std::move(bytes), capacity};
}

int64_t TensorQueue::bytes_held() {
  const std::lock_guard lock(mutex_);
  return allocated_;
}

Result<std::shared_ptr<const TensorQueue::Layout>> TensorQueue::LayoutOf(const TensorView& view,
                                                                         bool is_npy) {
  const std::span<const int64_t> shape = view.dims();
  LayoutKey key(view.dtype, is_npy, std::vector<int64_t>(shape.begin(), shape.end()));
  if (const auto known = layouts_.find(key); known != layouts_.end()) return known->second;
  MSPROBE_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(view.dtype, shape));
  Layout layout{view.dtype, std::get<2>(key), size, std::nullopt};
  if (!is_npy) {
    MSPROBE_ASSIGN_OR_RETURN(layout.pt, formats::MakePtLayout(view.dtype, shape));
  }
  if (layouts_.size() >= kMaxLayouts) layouts_.clear();
  auto made = std::make_shared<const Layout>(std::move(layout));
  layouts_.emplace(std::move(key), made);
  return made;
}

Status TensorQueue::PushWide(const std::string& file_name, const TensorView& view) {
  MSPROBE_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(view.dtype, view.dims()));
  std::vector<char> bytes(static_cast<size_t>(size));
  CopyContiguous(view, bytes.data());
  const size_t each = DTypeSize(view.dtype);
  std::vector<float> wide(bytes.size() / each);
  for (size_t i = 0; i < wide.size(); ++i)
    wide[i] = static_cast<float>(ElementToDouble(view.dtype, bytes.data() + i * each));
  return Push(
      file_name,
      {.data = wide.data(), .dtype = DType::kFloat32, .ndim = view.ndim, .shape = view.shape});
}

Status TensorQueue::PushToPack(const std::string& file_name, const TensorView& view,
                               int64_t bytes) {
  {
    std::lock_guard lock(mutex_);
    if (!first_error_.ok()) return told_ = true, first_error_;
  }
  const auto size = static_cast<size_t>(bytes);
  std::string_view data(static_cast<const char*>(view.data), size);
  if (!view.IsContiguous()) {
    if (copy_.size() < size) copy_.resize(size);
    CopyContiguous(view, copy_.data());
    data = std::string_view(copy_.data(), size);
  }
  bool linked = false;
  Status written = pack_->Add(file_name, view.dtype, view.dims(), data, &linked);
  if (copy_.size() > static_cast<size_t>(kMaxAtOnce)) copy_ = {};
  std::lock_guard lock(mutex_);
  if (written.ok() && !linked) bytes_written_ += bytes;
  if (first_error_.ok()) first_error_ = written;
  told_ |= !written.ok();
  return written;
}

Status TensorQueue::Push(const std::string& file_name, const TensorView& view) {
  if (file_name.ends_with(".npy") && IsNarrowFloat(view.dtype) &&
      !formats::IsNumpyDType(view.dtype))
    return PushWide(file_name, view);
  if (!std::exchange(folder_made_, true)) {
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder_));
    if (folder_options_.packed) {
      MSPROBE_ASSIGN_OR_RETURN(pack_, PackWriter::Create(folder_, folder_options_.link_equal));
    }
  }
  if (pack_ != nullptr) {
    MSPROBE_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(view.dtype, view.dims()));
    if (options_.budget == 0 || size <= kMaxAtOnce || size > options_.budget / 2 || !HasThreads())
      return PushToPack(file_name, view, size);
  }
  MSPROBE_ASSIGN_OR_RETURN(std::shared_ptr<const Layout> layout,
                           LayoutOf(view, file_name.ends_with(".npy")));
  const int64_t bytes = layout->size;
  const std::string path = JoinPath(folder_, file_name);
  {
    std::lock_guard lock(mutex_);
    if (!first_error_.ok()) return told_ = true, first_error_;
  }
  if (options_.budget == 0 || !HasThreads() || bytes > options_.budget / 2) {
    std::unique_ptr<char[]> copy;
    if (!view.IsContiguous()) {
      copy = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(bytes));
      CopyContiguous(view, copy.get());
    }
    const std::string_view data(copy ? copy.get() : static_cast<const char*>(view.data),
                                static_cast<size_t>(bytes));
    bool linked = false;
    Status written = WriteFile(path, layout, data, links_.get(), &ThreadPool::Default(), &linked);
    std::lock_guard lock(mutex_);
    if (written.ok() && !linked) bytes_written_ += bytes;
    if (first_error_.ok()) first_error_ = written;
    told_ |= !written.ok();
    return written;
  }
  Buffer buffer = TakeBuffer(bytes);
  CopyContiguous(view, buffer.bytes.get());
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back({path, std::move(layout), links_, pack_, std::move(buffer)});
  }
  wake_.notify_one();
  return Status::Ok();
}

bool TensorQueue::HasThreads() {
  try {
    while (static_cast<int>(threads_.size()) < options_.threads)
      threads_.emplace_back([this] { Work(); });
  } catch (const std::system_error&) {
    // The system gives no more threads: the ones that run do the work, or the caller does.
  }
  return !threads_.empty();
}

Status TensorQueue::WriteFile(const std::string& path, const std::shared_ptr<const Layout>& layout,
                              std::string_view data, LinkedTensors* links, ThreadPool* pool,
                              bool* linked) {
  std::optional<LinkedTensors::Key> key;
  if (links != nullptr && links->possible()) {
    key = LinkedTensors::KeyOf(layout, data);
    *linked = links->Link(*key, path);
    if (*linked) return Status::Ok();
  }
  Status written = layout->pt
                       ? formats::WritePt(path, *layout->pt, data, pool)
                       : formats::WriteNpy(path, {.data = data.data(),
                                                  .dtype = layout->dtype,
                                                  .ndim = static_cast<int>(layout->shape.size()),
                                                  .shape = layout->shape.data()});
  if (written.ok() && key) links->Note(*key, path);
  return written;
}

Status TensorQueue::Write(const Job& job, bool* linked) {
  try {
    const std::string_view data(job.buffer.bytes.get(), static_cast<size_t>(job.layout->size));
    if (job.pack != nullptr)
      return job.pack->Add(BaseName(job.path), job.layout->dtype, job.layout->shape, data, linked);
    return WriteFile(job.path, job.layout, data, job.links.get(), nullptr, linked);
  } catch (const std::exception& error) {
    return Internal(std::string(error.what()));  // nothing else would catch it on this thread
  }
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
    bool linked = false;
    Status status = Write(job, &linked);
    lock.lock();
    --busy_;
    if (status.ok()) {
      if (!linked) bytes_written_ += job.layout->size;
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
  if (pack_ != nullptr && first_error_.ok()) first_error_ = pack_->Finish();
  told_ |= !first_error_.ok();
  return first_error_;
}

}  // namespace msprobe::dump
