#include "capture/devices/device_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "capture/calls/interpose.h"
#include "capture/devices/device_statistics.h"
#include "capture/devices/without_gradients.h"
#include "capture/python/torch_api.h"
#include "engine/base/log.h"

namespace msprobe::capture {
namespace {

constexpr size_t kMostPieces = 64;  // of a transfer: what a kill may lose
constexpr size_t kAlignment = 16;   // of a piece: that of the largest element
// What was staged is sent after this time; events are asked no more often than that.
constexpr auto kMostAge = std::chrono::milliseconds(10);
constexpr auto kBetweenQuestions = std::chrono::milliseconds(1);

size_t BytesOf(DType dtype, std::span<const int64_t> shape) {
  const TensorView view{
      .dtype = dtype, .ndim = static_cast<int>(shape.size()), .shape = shape.data()};
  return static_cast<size_t>(view.numel()) * DTypeSize(dtype);
}

PyRef Number(size_t number) { return PyRef::Steal(PyLong_FromSize_t(number)); }

// The tensor, whose memory holds its elements themselves: not their conjugates or negatives. Copied
// under WithoutGradients.
PyRef Plain(TorchCalls* torch, PyObject* tensor) {
  const TorchApi& api = TorchApi::Get();
  PyRef plain = PyRef::Borrow(tensor);
  if (api.IsConjugated(tensor)) plain = torch->Call(plain, "resolve_conj");
  if (plain && api.IsNegated(plain.get())) plain = torch->Call(plain, "resolve_neg");
  return plain;
}

// The same without a graph.
PyRef Detached(TorchCalls* torch, PyObject* tensor) {
  const PyRef plain = TorchApi::Get().RequiresGrad(tensor)
                          ? torch->Call(PyRef::Borrow(tensor), "detach")
                          : PyRef::Borrow(tensor);
  return plain ? Plain(torch, plain.get()) : plain;
}

// Of this thread.
thread_local int asks_together = 0;  // objects of DeviceReader::Together
// The streams of a device (Device::streams) among which the current one was found since the first
// of these objects came: nobody changes it before the last one goes.
thread_local const void* known_device = nullptr;
thread_local uint64_t known_streams = 0;

void CopyInto(TorchCalls* torch, const PyRef& part, const PyRef& tensor) {
  static PyObject* const copy = Interned("copy_");
  const WithoutGradients off;
  torch->CallFast(part.get(), copy, tensor);
}

}  // namespace

bool DeviceReader::TakesHost() {
  const char* text = std::getenv("MSPROBE_STATISTICS");
  return text != nullptr && std::string_view(text) == "framework";
}

std::string DeviceTypeOf(PyObject* tensor) {
  TorchCalls torch;
  const PyRef type = torch.Get(torch.Get(PyRef::Borrow(tensor), "device"), "type");
  return type ? std::string(Utf8(type.get())) : std::string();
}

DeviceReader::Device* DeviceReader::DeviceOf(PyObject* tensor, uint64_t number) {
  if (number != 0 && number == last_number_) return last_;
  static PyObject* const name = Interned("device");
  TorchCalls torch;
  const PyRef device = torch.Checked(PyObject_GetAttr(tensor, name));
  if (device && last_ != nullptr &&
      PyObject_RichCompareBool(device.get(), last_->accelerator.device().get(), Py_EQ) == 1) {
    last_number_ = number;
    return last_;
  }
  const PyRef type = torch.Get(device, "type");
  const int64_t index = std::max<int64_t>(0, NumberOf(torch.Get(device, "index")));
  if (!torch.ok()) return nullptr;
  std::unique_ptr<Device>& known = devices_[{std::string(Utf8(type.get())), index}];
  if (known == nullptr) {
    known = std::make_unique<Device>(std::string(Utf8(type.get())), index);
    if (type_.empty()) {
      type_ = Utf8(type.get());
      if (first_asked_) first_asked_();
    }
    if (!known->accelerator.usable())
      Fail(known.get(), "PyTorch has no streams and events of this device"_t);
  }
  if (known->accelerator.device()) {
    last_ = known.get();
    last_number_ = number;
  }
  return known.get();
}

void DeviceReader::Fail(Device* device, Message why) {
  if (!std::exchange(device->failed, true)) {
    Log(LogLevel::kWarning,
        "tensors of {} are copied one by one, and the program waits for each: {}"_t(
            device->accelerator.name(), std::move(why)));
  }
}

std::unique_lock<std::mutex> DeviceReader::Alone() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    const ReleasedGil released;
    lock.lock();
  }
  return lock;
}

int64_t DeviceReader::Ask(PyObject* tensor, const Request& request) {
  const Interposer::Pause pause;
  const QuietTransforms quiet;
  const std::unique_lock alone = Alone();
  const PyRef object = PyRef::Borrow(tensor);
  const size_t bytes = BytesOf(request.dtype, request.shape);
  const auto count = static_cast<int64_t>(bytes / DTypeSize(request.dtype));
  Piece piece{.ticket = next_ticket_,
              .offset = 0,
              .dtype = request.dtype,
              .shape = {request.shape.begin(), request.shape.end()},
              .request = request};
  piece.request.shape = {};
  if (count == 0) {
    Read(nullptr, piece, nullptr);
    return next_ticket_++;
  }
  if (TakesHost()) return AskHost(object, request, count);
  Device* const device = DeviceOf(tensor, request.device);
  if (device == nullptr || !device->accelerator.usable()) {
    ++waits_.copies;
    return -1;
  }
  static const bool all_bits = [] {
    const char* text = std::getenv("MSPROBE_FINGERPRINTS");
    return text != nullptr && std::string_view(text) == "all";
  }();
  TorchCalls torch;
  bool done = false;
  if (bytes <= kMostStaged) {
    done = Stage(device, &torch, Plain(&torch, tensor), std::move(piece));
  } else {
    const bool elements = request.locate || !request.file.empty() || request.late != nullptr ||
                          request.checksum != kernels::Checksum::kNone;
    if (!elements && bytes > kMostCopied && CanReduce(request.dtype)) {
      done = MeasureOnce(device, object, request, count) ||
             (all_bits || request.bits ? Digest(device, object, request, count, nullptr)
                                       : Reduce(device, object, request, count));
    }
    // Where a device computes no numbers, the tensor is copied.
    if (!done) done = Copy(device, &torch, Detached(&torch, tensor), std::move(piece));
  }
  if (!done) {
    Fail(device, torch.error());
    ++waits_.copies;
    return -1;
  }
  return next_ticket_++;
}

int64_t DeviceReader::AskHost(const PyRef& tensor, const Request& request, int64_t count) {
  TorchCalls torch;
  const PyRef numbers = MeasureThere(&torch, tensor, DTypeKindOf(request.dtype));
  const char* const data = AddressOf(&torch, numbers);
  if (!torch.ok() || data == nullptr) return -1;
  arrived_.push_back({.ticket = next_ticket_,
                      .stats = StatisticsFrom(reinterpret_cast<const double*>(data), count)});
  return next_ticket_++;
}

StagingChunk* DeviceReader::ChunkFor(Device* device, TorchCalls* torch, size_t bytes) {
  StagingRing& ring = device->ring;
  if (ring.chunk() == nullptr || known_device != device || known_streams != device->streams) {
    const PyRef mark = device->accelerator.StreamMark();
    if (!mark) return nullptr;
    if (!Accelerator::SameStream(device->mark, mark)) {
      // Memory that is used on one stream is free for another one when the host has read it.
      if (!Send(device)) return nullptr;
      ring.Close();
      device->stream = device->accelerator.CurrentStream();
      device->mark = device->stream ? mark : PyRef();
      if (!device->stream) return nullptr;
      ++device->streams;
    }
    if (asks_together > 0) known_device = device, known_streams = device->streams;
  }
  if ((device->pieces.size() >= kMostPieces ||
       (ring.chunk() != nullptr && ring.chunk()->used + bytes > StagingChunk::kBytes)) &&
      !Send(device))
    return nullptr;
  if (ring.chunk() == nullptr || ring.chunk()->used + bytes > StagingChunk::kBytes) {
    while (ring.IsFull() && !in_flight_.empty()) TakeOldest();
    if (ring.IsFull() || !ring.Advance(torch, device->accelerator.device())) return nullptr;
  }
  return ring.chunk();
}

void DeviceReader::Append(Device* device, Piece piece, size_t bytes) {
  StagingChunk& chunk = *device->ring.chunk();
  if (device->pieces.empty()) device->begun = Clock::now();
  piece.offset = chunk.used;
  chunk.used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  device->pieces.push_back(std::move(piece));
}

bool DeviceReader::Stage(Device* device, TorchCalls* torch, const PyRef& tensor, Piece piece) {
  const size_t bytes = BytesOf(piece.dtype, piece.shape);
  StagingChunk* const chunk = tensor ? ChunkFor(device, torch, bytes) : nullptr;
  if (chunk == nullptr) return false;
  PyRef part = chunk->Part(torch, piece.dtype, piece.shape, chunk->used);
  if (!torch->ok()) return false;
  if (asks_together > 0) {
    device->to_copy.emplace_back(std::move(part), tensor);
  } else {
    CopyInto(torch, part, tensor);
  }
  if (torch->ok()) Append(device, std::move(piece), bytes);
  return torch->ok();
}

void DeviceReader::CopyTogether(Device* device) {
  if (device->to_copy.empty()) return;
  const std::vector<std::pair<PyRef, PyRef>> all = std::exchange(device->to_copy, {});
  if (all.size() > 1) {
    static PyObject* const together = Interned("_foreach_copy_");  // from PyTorch 2.1 on
    TorchCalls torch;
    const PyRef parts = PyRef::Steal(PyList_New(0)), tensors = PyRef::Steal(PyList_New(0));
    for (const auto& [part, tensor] : all) {
      if (PyList_Append(parts.get(), part.get()) != 0 ||
          PyList_Append(tensors.get(), tensor.get()) != 0)
        ClearError();
    }
    const WithoutGradients off;
    torch.CallFast(torch.torch().get(), together, parts, tensors);
    if (torch.ok()) return;
  }
  TorchCalls torch;
  for (const auto& [part, tensor] : all) CopyInto(&torch, part, tensor);
  if (torch.ok()) return;
  // What these pieces would tell is not known.
  device->pieces.clear();
  Fail(device, torch.error());
}

DeviceReader::Together::Together(DeviceReader* reader) : reader_(reader) { ++asks_together; }

DeviceReader::Together::~Together() {
  if (--asks_together == 0) known_device = nullptr;
  if (reader_ != nullptr) reader_->EndTogether();
}

void DeviceReader::EndTogether() {
  if (devices_.empty()) return;
  const Interposer::Pause pause;
  const QuietTransforms quiet;
  const std::unique_lock alone = Alone();
  for (const auto& [name, device] : devices_) {
    CopyTogether(device.get());
  }
}

bool DeviceReader::Reduce(Device* device, const PyRef& tensor, const Request& request,
                          int64_t count) {
  const std::vector<int64_t> two = {2};
  TorchCalls torch;
  const PyRef plain = Detached(&torch, tensor.get());
  StagingChunk* const chunk = plain ? ChunkFor(device, &torch, kReducedBytes) : nullptr;
  if (chunk == nullptr) return false;
  const PyRef extremes = chunk->Part(&torch, request.dtype, two, chunk->used);
  const PyRef sums = chunk->Part(&torch, DType::kFloat32, two, chunk->used + 8);
  if (!ReduceThere(&torch, plain, extremes, sums)) return false;
  Append(device,
         {.ticket = next_ticket_,
          .offset = 0,
          .dtype = request.dtype,
          .shape = {},
          .request = {},
          .kind = Piece::Kind::kReduced,
          .elements = count},
         kReducedBytes);
  return true;
}

// Of a tensor without a graph, contiguous.
bool DeviceReader::LaunchDigest(Device* device, TorchCalls* torch, const PyRef& plain, Piece piece,
                                const DeviceKernel* kernel) {
  const BlockSums sums(piece.dtype, piece.elements);
  const size_t bytes = kernel != nullptr ? KernelBytes(sums) : DigestBytes(sums);
  MakeRoom(bytes);
  const PyRef shape = IntTuple(std::vector<int64_t>{static_cast<int64_t>(bytes)});
  const PyRef there = NewMemory(torch, shape, DType::kUInt8, device->accelerator.device());
  const PyRef host = NewMemory(torch, shape, DType::kUInt8, PyRef());
  const char* const data = AddressOf(torch, host);
  const WithoutGradients off;
  const FingerprintScratch& scratch = device->fingerprints;
  const bool done = kernel != nullptr ? MeasureByKernel(torch, *kernel, plain, sums, scratch, there)
                                      : DigestThere(torch, plain, sums, scratch, there);
  if (!done) return false;
  torch->CallWith("non_blocking", Py_True, host, "copy_", there);
  return torch->ok() && LaunchAlone(device, host, data, std::move(piece), bytes);
}

bool DeviceReader::LaunchCheck(Device* device, TorchCalls* torch, DType dtype,
                               const DeviceKernel* kernel) {
  const KnownMemory& known = KnownMemory::Get();
  const PyRef size = IntTuple(std::vector<int64_t>{KnownMemory::kBytes});
  const PyRef there = NewMemory(torch, size, DType::kUInt8, device->accelerator.device());
  torch->CallWith("non_blocking", Py_True, there, "copy_", known.bytes());
  const PyRef typed = torch->Call(there, "view", DTypeObject(torch, dtype));
  Piece piece{.ticket = -1, .offset = 0, .dtype = dtype, .shape = {}, .request = {}};
  piece.kind = kernel != nullptr ? Piece::Kind::kKernel : Piece::Kind::kDigest;
  piece.is_check = true;
  piece.elements = KnownMemory::kBytes / static_cast<int64_t>(DTypeSize(dtype));
  return torch->ok() && LaunchDigest(device, torch, typed, std::move(piece), kernel);
}

bool DeviceReader::Digest(Device* device, const PyRef& tensor, const Request& request,
                          int64_t count, const DeviceKernel* kernel) {
  TorchCalls torch;
  Piece piece{
      .ticket = next_ticket_, .offset = 0, .dtype = request.dtype, .shape = {}, .request = {}};
  piece.kind = kernel != nullptr ? Piece::Kind::kKernel : Piece::Kind::kDigest;
  piece.elements = count;
  const PyRef plain = Detached(&torch, tensor.get());
  if (torch.Call(plain, "is_contiguous").get() != Py_True) return false;
  const PyRef mark = device->accelerator.StreamMark();
  if (!Accelerator::SameStream(device->fingerprints.mark, mark))
    device->fingerprints = NewFingerprintScratch(&torch, device->accelerator.device(), mark);
  const auto [right, is_new] =
      device->adds_right.try_emplace({piece.kind, request.dtype}, std::nullopt);
  if (is_new && torch.ok()) (void)LaunchCheck(device, &torch, request.dtype, kernel);
  const bool done = torch.ok() && right->second != false &&
                    LaunchDigest(device, &torch, plain, std::move(piece), kernel);
  if (!torch.ok() && kernel != nullptr) {
    Log(LogLevel::kWarning,
        "the kernel {} is not used any more, it failed: {}"_t(kernel->name, torch.error()));
    SetDeviceKernel({});
  }
  return done;
}

bool DeviceReader::MeasureOnce(Device* device, const PyRef& tensor, const Request& request,
                               int64_t count) {
  TorchCalls torch;
  const DeviceKernel* const kernel = KernelFor(&torch, request.dtype);
  return kernel != nullptr && Digest(device, tensor, request, count, kernel);
}

bool DeviceReader::Send(Device* device) {
  if (device->pieces.empty()) return true;
  std::optional<Accelerator::OnStream> there;
  if (!Accelerator::SameStream(device->mark, device->accelerator.StreamMark()))
    there.emplace(device->accelerator, device->stream);
  CopyTogether(device);
  StagingChunk* const chunk = device->ring.chunk();
  const size_t first = std::exchange(chunk->sent, chunk->used), bytes = chunk->used - first;
  MakeRoom(bytes);
  TorchCalls torch;
  const PyRef dim = Number(0), from = Number(first), length = Number(bytes);
  const PyRef there_bytes = torch.Call(chunk->device, "narrow", dim, from, length);
  const PyRef here_bytes = torch.Call(chunk->host, "narrow", dim, from, length);
  torch.CallWith("non_blocking", Py_True, here_bytes, "copy_", there_bytes);
  std::vector<Piece> pieces = std::exchange(device->pieces, {});
  if (!torch.ok()) return false;
  return Launch({.device = device,
                 .event = {},
                 .chunk = chunk,
                 .host = {},
                 .data = chunk->data,
                 .pieces = std::move(pieces),
                 .bytes = bytes},
                device->stream);
}

bool DeviceReader::Copy(Device* device, TorchCalls* torch, const PyRef& tensor, Piece piece) {
  if (!tensor) return false;
  const size_t bytes = BytesOf(piece.dtype, piece.shape);
  MakeRoom(bytes);
  const PyRef host = NewMemory(torch, IntTuple(piece.shape), piece.dtype, PyRef());
  const char* const data = AddressOf(torch, host);
  {
    const WithoutGradients off;
    torch->CallWith("non_blocking", Py_True, host, "copy_", tensor);
  }
  return torch->ok() && LaunchAlone(device, host, data, std::move(piece), bytes);
}

bool DeviceReader::LaunchAlone(Device* device, const PyRef& host, const char* data, Piece piece,
                               size_t bytes) {
  const PyRef stream = device->accelerator.CurrentStream();
  if (!stream) return false;
  std::vector<Piece> pieces;
  pieces.push_back(std::move(piece));
  return Launch({.device = device,
                 .event = {},
                 .chunk = nullptr,
                 .host = host,
                 .data = data,
                 .pieces = std::move(pieces),
                 .bytes = bytes},
                stream);
}

bool DeviceReader::Launch(Transfer transfer, const PyRef& stream) {
  transfer.event = transfer.device->accelerator.Record(stream);
  if (!transfer.event) return false;
  bytes_in_flight_ += transfer.bytes;
  if (transfer.chunk != nullptr) ++transfer.chunk->under_way;
  in_flight_.push_back(std::move(transfer));
  return true;
}

void DeviceReader::MakeRoom(size_t bytes) {
  while (!in_flight_.empty() && bytes_in_flight_ + bytes > kMostInFlight) TakeOldest();
}

void DeviceReader::TakeOldest() {
  Transfer oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (!Accelerator::HasPassed(oldest.event)) {
    ++waits_.memory;
    (void)Accelerator::Wait(oldest.event);
  }
  Take(oldest);
}

void DeviceReader::Take(const Transfer& transfer) {
  bytes_in_flight_ -= transfer.bytes;
  if (transfer.chunk != nullptr) --transfer.chunk->under_way;
  for (const Piece& piece : transfer.pieces)
    Read(transfer.device, piece, transfer.data + piece.offset);
}

void DeviceReader::Read(Device* device, const Piece& piece, const char* data) {
  using Kind = Piece::Kind;
  DeferredNumbers numbers{.ticket = piece.ticket};
  if (piece.kind != Kind::kCopy) {
    const BlockSums sums(piece.dtype, piece.elements);
    numbers.stats = piece.kind == Kind::kKernel ? StatisticsFromKernel(sums, data)
                    : piece.kind == Kind::kDigest
                        ? StatisticsFromDigest(sums, data)
                        : StatisticsFromReduced(data, piece.dtype, piece.elements);
    if (piece.is_check) return NoteCheck(device, piece, numbers.stats.fingerprint);
    const auto right = piece.kind == Kind::kReduced
                           ? device->adds_right.end()
                           : device->adds_right.find({piece.kind, piece.dtype});
    numbers.has_fingerprint = right != device->adds_right.end() && right->second == true;
    numbers.has_counts = piece.kind == Kind::kKernel;
    arrived_.push_back(numbers);
    return;
  }
  const Request& asked = piece.request;
  const TensorView view{.data = data,
                        .dtype = piece.dtype,
                        .ndim = static_cast<int>(piece.shape.size()),
                        .shape = piece.shape.data()};
  numbers.has_fingerprint = true;
  measure_(view, asked, &numbers);
  if (!asked.file.empty()) numbers.file_is_lost = !store_(asked.file, view);
  if (asked.late != nullptr) return asked.late->Arrive(numbers, view);
  arrived_.push_back(numbers);
}

void DeviceReader::NoteCheck(Device* device, const Piece& piece, uint64_t fingerprint) {
  const bool right = fingerprint == KnownMemory::Get().Fingerprint(piece.dtype);
  device->adds_right[{piece.kind, piece.dtype}] = right;
  if (right) return;
  const std::string& name = device->accelerator.name();
  Log(LogLevel::kWarning,
      piece.kind == Piece::Kind::kKernel
          ? "the registered kernel adds integers differently from the host on {}: large "
            "tensors are copied where their fingerprints are needed"_t(name)
          : "{} adds integers differently from the host: large tensors are copied where "
            "their fingerprints are needed"_t(name));
}

std::vector<DeferredNumbers> DeviceReader::Arrived() {
  const std::unique_lock alone(mutex_, std::try_to_lock);
  if (!alone) return {};
  if (in_flight_.empty() && devices_.empty()) return std::exchange(arrived_, {});
  const Clock::time_point now = Clock::now();
  if (now - asked_ < kBetweenQuestions) return std::exchange(arrived_, {});
  const Interposer::Pause pause;
  const QuietTransforms quiet;
  for (const auto& [name, device] : devices_) {
    if (!device->pieces.empty() && now - device->begun > kMostAge && !Send(device.get()))
      Fail(device.get(), "a transfer failed"_t);
  }
  while (!in_flight_.empty() && Accelerator::HasPassed(in_flight_.front().event)) {
    Transfer oldest = std::move(in_flight_.front());
    in_flight_.pop_front();
    Take(oldest);
  }
  asked_ = Clock::now();
  return std::exchange(arrived_, {});
}

std::vector<DeferredNumbers> DeviceReader::FinishInStep() {
  ++waits_.memory;
  return Finish();
}

std::vector<DeferredNumbers> DeviceReader::Finish() {
  const Interposer::Pause pause;
  const QuietTransforms quiet;
  const std::unique_lock alone = Alone();
  for (const auto& [name, device] : devices_) {
    if (!Send(device.get())) Fail(device.get(), "a transfer failed"_t);
  }
  while (!in_flight_.empty()) {
    Transfer oldest = std::move(in_flight_.front());
    in_flight_.pop_front();
    // Numbers of a device that has failed are missing.
    if (!Accelerator::HasPassed(oldest.event) && !Accelerator::Wait(oldest.event))
      oldest.pieces.clear();
    Take(oldest);
  }
  for (const auto& [name, device] : devices_) device->ring.Restart();
  return std::exchange(arrived_, {});
}

}  // namespace msprobe::capture
