#include "engine/dump/write/pack_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <utility>

#include "engine/base/threads.h"
#include "engine/formats/archive/zip.h"

namespace msprobe::dump {
namespace {

constexpr uint64_t kLogBytes = 256 << 10;       // fits the second-level cache
constexpr uint64_t kMaxLogged = kLogBytes / 4;  // larger tensors are appended to the pack
constexpr size_t kMaxKnown = 1 << 16;           // about 5 MB
constexpr std::array<char, formats::kPackAlignment> kZeros{};

formats::PackId NewId() {
  std::random_device device;
  formats::PackId id;
  for (size_t i = 0; i < id.size(); i += sizeof(unsigned)) {
    const unsigned word = device();
    std::memcpy(id.data() + i, &word, sizeof(word));
  }
  return id;
}

}  // namespace

// The bytes of the file are the memory of the map: the kernel keeps both when the process dies.
// What is stored last is the length, so that a record counts when all of it is there.
class PackWriter::Log {
 public:
  // nullptr: this place has no room for it, or no shared maps.
  static std::unique_ptr<Log> Create(const std::string& path, const formats::PackId& id,
                                     uint64_t base) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return nullptr;
    // Without blocks of its own, a page could find the disk full when it is written to: SIGBUS.
    constexpr uint64_t kFile = formats::kPackHeaderBytes + kLogBytes;
    void* map = MAP_FAILED;
    if (::posix_fallocate(fd, 0, kFile) == 0)
      map = ::mmap(nullptr, kFile, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    ::close(fd);
    if (map == MAP_FAILED) {
      ::unlink(path.c_str());
      return nullptr;
    }
    std::unique_ptr<Log> log(new Log(path, static_cast<char*>(map)));
    const std::string header = formats::PackLogHeader(id, base);
    std::memcpy(log->map_, header.data(), header.size());
    return log;
  }
  ~Log() { ::munmap(map_, formats::kPackHeaderBytes + kLogBytes); }
  Log(const Log&) = delete;

  uint64_t room() const { return kLogBytes - length_; }
  std::string_view bytes() const { return {map_ + formats::kPackHeaderBytes, length_}; }
  void Add(std::string_view header, std::string_view data) {
    char* to = map_ + formats::kPackHeaderBytes + length_;
    std::memcpy(to, header.data(), header.size());
    // A tensor without elements has no memory, and nothing to copy.
    if (!data.empty()) std::memcpy(to + header.size(), data.data(), data.size());
    const uint64_t padded = formats::PadPack(data.size());
    std::memset(to + header.size() + data.size(), 0, padded - data.size());
    Store(formats::kPackLogLengthAt, length_ += header.size() + padded);
  }
  // The bytes are in the pack, which now ends at `base`. Between the two stores a reader finds
  // an empty log, and all records in the pack.
  void Empty(uint64_t base) {
    Store(formats::kPackLogLengthAt, length_ = 0);
    Store(formats::kPackLogBaseAt, base);
  }
  void Remove() { ::unlink(path_.c_str()); }

 private:
  Log(std::string path, char* map) : path_(std::move(path)), map_(map) {}
  void Store(uint64_t at, uint64_t value) {
    std::atomic_ref(*reinterpret_cast<uint64_t*>(map_ + at))
        .store(value, std::memory_order_release);
  }
  const std::string path_;
  char* const map_;
  uint64_t length_ = 0;
};

PackWriter::~PackWriter() = default;

Result<std::unique_ptr<PackWriter>> PackWriter::Create(const std::string& folder, bool link_equal) {
  std::unique_ptr<PackWriter> writer(new PackWriter());
  writer->path_ = JoinPath(folder, formats::kPackName);
  writer->id_ = NewId();
  writer->link_equal_ = link_equal;
  // The log of an earlier pack goes first: it must not seem to belong to this one.
  MSPROBE_RETURN_IF_ERROR(RemoveFile(writer->path_ + formats::kPackLogSuffix));
  MSPROBE_ASSIGN_OR_RETURN(writer->file_, AppendFile::Open(writer->path_, /*keep=*/false));
  MSPROBE_RETURN_IF_ERROR(writer->file_.Append(formats::PackHeader(writer->id_)));
  return writer;
}

Status PackWriter::Add(std::string_view name, DType dtype, std::span<const int64_t> shape,
                       std::string_view data, bool* linked) {
  const std::lock_guard lock(mutex_);
  if (finished_) MSPROBE_RETURN_IF_ERROR(Reopen());
  formats::PackEntry entry{.name = std::string(name),
                           .dtype = dtype,
                           .shape = {shape.begin(), shape.end()},
                           .size = data.size()};
  std::string header = formats::PackRecordHeader(entry);
  entry.offset = end_ + header.size();
  const Place* known = nullptr;
  kernels::ContentDigest digest;
  if (link_equal_ && !data.empty()) {
    digest = kernels::DigestContent(data);
    const auto found = known_.find(digest);
    if (found != known_.end() && found->second.size == data.size()) known = &found->second;
  }
  if (known != nullptr) {
    entry.offset = known->offset;
    entry.crc32 = known->crc32;
    data = {};
  } else {
    entry.crc32 = formats::Crc32(data, &ThreadPool::Default());
  }
  header = formats::PackRecordHeader(entry);
  if (Status appended = Append(header, data); !appended.ok()) {
    // The log is empty here, or the tensor was meant for it. Half a record must not stay.
    if (file_.size() > end_) (void)file_.TruncateTo(end_);
    return appended;
  }
  if (link_equal_ && known == nullptr && !data.empty()) {
    if (known_.size() >= kMaxKnown) known_.clear();
    known_.emplace(digest, Place{entry.offset, entry.size, entry.crc32});
  }
  if (linked != nullptr) *linked = known != nullptr;
  index_ += header;
  ++count_;
  return Status::Ok();
}

Status PackWriter::Append(std::string_view header, std::string_view data) {
  const uint64_t padding = formats::PadPack(data.size()) - data.size();
  const uint64_t size = header.size() + data.size() + padding;
  if (size <= kMaxLogged && log_ == nullptr && !log_refused_) {
    log_ = Log::Create(path_ + formats::kPackLogSuffix, id_, end_);
    log_refused_ = log_ == nullptr;
  }
  if (log_ != nullptr && (size > kMaxLogged || size > log_->room()))
    MSPROBE_RETURN_IF_ERROR(Flush());
  if (log_ != nullptr && size <= kMaxLogged) {
    log_->Add(header, data);
  } else {
    MSPROBE_RETURN_IF_ERROR(file_.Append(header));
    if (!data.empty()) MSPROBE_RETURN_IF_ERROR(file_.Append(data));
    if (padding > 0)
      MSPROBE_RETURN_IF_ERROR(file_.Append(std::string_view(kZeros.data(), padding)));
    if (log_ != nullptr) log_->Empty(end_ + size);
  }
  end_ += size;
  return Status::Ok();
}

Status PackWriter::Flush() {
  if (log_->bytes().empty()) return Status::Ok();
  MSPROBE_RETURN_IF_ERROR(file_.Append(log_->bytes()));
  log_->Empty(file_.size());
  return Status::Ok();
}

Status PackWriter::Finish() {
  const std::lock_guard lock(mutex_);
  if (finished_) return Status::Ok();
  if (log_ != nullptr) MSPROBE_RETURN_IF_ERROR(Flush());
  MSPROBE_RETURN_IF_ERROR(file_.Append(formats::PackIndex(index_, count_, end_)));
  finished_ = true;
  if (log_ != nullptr) log_->Remove();
  log_.reset();
  return Status::Ok();
}

Status PackWriter::Reopen() {
  MSPROBE_RETURN_IF_ERROR(file_.TruncateTo(end_));
  finished_ = false;
  return Status::Ok();
}

Result<bool> ClosePack(const std::string& folder) {
  const std::string path = JoinPath(folder, formats::kPackName);
  if (!IsRegularFile(path)) return false;
  MSPROBE_ASSIGN_OR_RETURN(const formats::TensorPack pack,
                           formats::TensorPack::Open(folder, formats::kPackName));
  const std::string log = path + formats::kPackLogSuffix;
  if (pack.is_complete()) {
    MSPROBE_RETURN_IF_ERROR(RemoveFile(log));
    return false;
  }
  MSPROBE_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path, /*keep=*/true));
  // The bytes that are cut off here are in the log, or of a tensor that was never complete.
  MSPROBE_RETURN_IF_ERROR(file.TruncateTo(std::min(pack.log_base(), pack.end())));
  if (pack.end() > pack.log_base())
    MSPROBE_RETURN_IF_ERROR(file.Append(pack.log().substr(0, pack.end() - pack.log_base())));
  const uint64_t end = formats::PadPack(file.size());
  MSPROBE_RETURN_IF_ERROR(file.Append(std::string_view(kZeros.data(), end - file.size())));
  std::string index;
  for (const formats::PackEntry& entry : pack.entries()) index += formats::PackRecordHeader(entry);
  MSPROBE_RETURN_IF_ERROR(
      file.Append(formats::PackIndex(std::move(index), pack.entries().size(), end)));
  MSPROBE_RETURN_IF_ERROR(RemoveFile(log));
  return true;
}

}  // namespace msprobe::dump
