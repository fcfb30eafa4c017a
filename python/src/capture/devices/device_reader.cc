#include "capture/devices/device_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "capture/calls/interpose.h"
#include "capture/devices/device_statistics.h"
#include "capture/python/torch_api.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"
#include "engine/kernels/find_nonfinite.h"
#include "engine/kernels/rest_stats.h"

namespace msprobe::capture {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr size_t kMostPieces = 64;   // of a chunk: what a kill may lose
constexpr size_t kMostParts = 1024;  // of a chunk that are kept as tensors, some 500 bytes each
constexpr size_t kAlignment = 16;    // of a piece: that of the largest element
constexpr size_t kParallelBytes = size_t{1} << 19;
constexpr size_t kReleaseGilBytes = size_t{1} << 20;
// A chunk that is not full is sent after this time, and events are asked no more often than that.
constexpr auto kMostAge = std::chrono::milliseconds(10);
constexpr auto kBetweenQuestions = std::chrono::microseconds(200);

size_t BytesOf(DType dtype, std::span<const int64_t> shape) {
  const TensorView view{
      .dtype = dtype, .ndim = static_cast<int>(shape.size()), .shape = shape.data()};
  return static_cast<size_t>(view.numel()) * DTypeSize(dtype);
}

PyRef IntTuple(std::span<const int64_t> numbers) {
  PyRef tuple = PyRef::Steal(PyTuple_New(static_cast<Py_ssize_t>(numbers.size())));
  for (size_t i = 0; tuple && i < numbers.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(numbers[i]));
  return tuple;
}

PyRef Number(size_t number) { return PyRef::Steal(PyLong_FromSize_t(number)); }

// torch.float32, looked up once.
const PyRef& DTypeObject(TorchCalls* torch, DType dtype) {
  static auto& known = *new std::map<DType, PyRef>;
  PyRef& object = known[dtype];
  if (!object) {
    const std::string name(DTypeTorchName(dtype));
    object = torch->Constant(name.substr(name.find('.') + 1).c_str());
  }
  return object;
}

// Memory that no operation of the inference mode owns: other operations may write to it.
PyRef Empty(TorchCalls* torch, const PyRef& shape, const PyRef& dtype, const PyRef& device) {
  const PyRef mode = torch->Call(torch->torch(), "inference_mode", PyRef::Borrow(Py_False));
  torch->Call(mode, "__enter__");
  const PyRef names = PyRef::Steal(PyDict_New());
  PyRef made;
  const PyRef empty = torch->Constant("empty");
  if (torch->ok() && names && PyDict_SetItemString(names.get(), "dtype", dtype.get()) == 0 &&
      (device ? PyDict_SetItemString(names.get(), "device", device.get())
              : PyDict_SetItemString(names.get(), "pin_memory", Py_True)) == 0) {
    const PyRef all = PyRef::Steal(PyTuple_Pack(1, shape.get()));
    made = torch->Checked(all ? PyObject_Call(empty.get(), all.get(), names.get()) : nullptr);
  }
  TorchCalls leave;
  const PyRef none = PyRef::Borrow(Py_None);
  if (mode) leave.Call(mode, "__exit__", none, none, none);
  return made;
}

const char* AddressOf(TorchCalls* torch, const PyRef& tensor) {
  const PyRef address = torch->Call(tensor, "data_ptr");
  void* const data = address ? PyLong_AsVoidPtr(address.get()) : nullptr;
  ClearError();
  return static_cast<const char*>(data);
}

// The tensor without a graph; its memory holds its elements themselves, not their conjugates or negatives.
PyRef Plain(TorchCalls* torch, PyObject* tensor) {
  PyRef plain = TorchApi::Get().RequiresGrad(tensor) ? torch->Call(PyRef::Borrow(tensor), "detach")
                                                     : PyRef::Borrow(tensor);
  if (plain && TorchApi::Get().IsConjugated(plain.get()))
    plain = torch->Call(plain, "resolve_conj");
  if (plain && TorchApi::Get().IsNegated(plain.get())) plain = torch->Call(plain, "resolve_neg");
  return plain;
}

// Of this thread: objects of DeviceReader::Together.
thread_local int asks_together = 0;

void CopyInto(TorchCalls* torch, const PyRef& part, const PyRef& tensor) {
  static PyObject* const copy = Interned("copy_");
  torch->CallFast(part.get(), copy, tensor);
}

// compute(pool): by several threads, and without the GIL, where the tensor is large enough.
template <typename Compute>
auto ComputeOver(size_t bytes, Compute compute) {
  ThreadPool* pool = bytes >= kParallelBytes ? &ThreadPool::Default() : nullptr;
  if (bytes < kReleaseGilBytes) return compute(pool);
  const ReleasedGil released;
  return compute(pool);
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

DeviceReader::Device* DeviceReader::DeviceOf(PyObject* tensor) {
  static PyObject* const name = Interned("device");
  TorchCalls torch;
  const PyRef device = torch.Checked(PyObject_GetAttr(tensor, name));
  if (device && last_ != nullptr &&
      PyObject_RichCompareBool(device.get(), last_->accelerator.device().get(), Py_EQ) == 1)
    return last_;
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
      Fail(known.get(), "PyTorch has no streams and events of this device");
  }
  if (known->accelerator.device()) last_ = known.get();
  return known.get();
}

void DeviceReader::Fail(Device* device, const std::string& why) {
  if (!std::exchange(device->failed, true)) {
    Log(LogLevel::kWarning,
        fmt::format("tensors of {} are copied one by one, and the program waits for each: {}",
                    device->accelerator.name(), why));
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
    Read(piece, nullptr);
    return next_ticket_++;
  }
  if (TakesHost()) return AskHost(object, request, count);
  Device* const device = DeviceOf(tensor);
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
    const bool bits = all_bits || request.bits || request.locate || !request.file.empty() ||
                      request.checksum != kernels::Checksum::kNone;
    if (!bits && bytes > kMostCopied) {
      done = (CanReduce(request.dtype) && Reduce(device, object, request, count)) ||
             Measure(device, &torch, object, request, count);
    }
    // A device without float64, for example, computes none: then the tensor is copied.
    if (!done && torch.ok()) done = Copy(device, &torch, Plain(&torch, tensor), std::move(piece));
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

std::unique_ptr<DeviceReader::Chunk> DeviceReader::NewChunk(Device* device, TorchCalls* torch) {
  if (!device->free.empty()) {
    std::unique_ptr<Chunk> chunk = std::move(device->free.back());
    device->free.pop_back();
    return chunk;
  }
  auto chunk = std::make_unique<Chunk>();
  const PyRef size = Number(kChunkBytes), bytes = torch->Constant("uint8");
  chunk->device = Empty(torch, size, bytes, device->accelerator.device());
  chunk->host = Empty(torch, size, bytes, PyRef());
  chunk->data = AddressOf(torch, chunk->host);
  return torch->ok() ? std::move(chunk) : nullptr;
}

DeviceReader::Chunk* DeviceReader::ChunkFor(Device* device, TorchCalls* torch, size_t bytes) {
  const PyRef mark = device->accelerator.StreamMark();
  if (!mark) return nullptr;
  const Chunk* const filling = device->filling.get();
  if (filling != nullptr &&
      (filling->used + bytes > kChunkBytes || filling->pieces.size() >= kMostPieces ||
       !Accelerator::SameStream(filling->mark, mark)) &&
      !Send(device))
    return nullptr;
  if (device->filling == nullptr) {
    MakeRoom(kChunkBytes);
    std::unique_ptr<Chunk> chunk = NewChunk(device, torch);
    if (chunk == nullptr) return nullptr;
    chunk->stream = device->accelerator.CurrentStream();
    chunk->mark = mark;
    chunk->begun = Clock::now();
    if (!chunk->stream) return nullptr;
    device->filling = std::move(chunk);
  }
  return device->filling.get();
}

PyRef DeviceReader::Part(Chunk* chunk, TorchCalls* torch, DType dtype,
                         const std::vector<int64_t>& shape, size_t offset) {
  static PyObject* const as_strided = Interned("as_strided");
  if (chunk->parts.size() >= kMostParts) chunk->parts.clear();
  PyRef& part = chunk->parts[{offset, dtype, shape}];
  if (part) return part;
  PyRef& memory = chunk->views[dtype];
  if (!memory) memory = torch->Call(chunk->device, "view", DTypeObject(torch, dtype));
  part = torch->CallFast(memory.get(), as_strided, IntTuple(shape),
                         IntTuple(ContiguousStrides(shape)), Number(offset / DTypeSize(dtype)));
  return part;
}

void DeviceReader::Append(Chunk* chunk, Piece piece, size_t bytes) {
  piece.offset = chunk->used;
  chunk->used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  chunk->pieces.push_back(std::move(piece));
}

bool DeviceReader::Stage(Device* device, TorchCalls* torch, const PyRef& tensor, Piece piece) {
  const size_t bytes = BytesOf(piece.dtype, piece.shape);
  Chunk* const chunk = tensor ? ChunkFor(device, torch, bytes) : nullptr;
  if (chunk == nullptr) return false;
  PyRef part = Part(chunk, torch, piece.dtype, piece.shape, chunk->used);
  if (!torch->ok()) return false;
  if (asks_together > 0) {
    chunk->to_copy.emplace_back(std::move(part), tensor);
  } else {
    CopyInto(torch, part, tensor);
  }
  if (torch->ok()) Append(chunk, std::move(piece), bytes);
  return torch->ok();
}

void DeviceReader::CopyTogether(Device* device, Chunk* chunk) {
  const std::vector<std::pair<PyRef, PyRef>> all = std::exchange(chunk->to_copy, {});
  if (all.size() > 1) {
    static PyObject* const together = Interned("_foreach_copy_");  // from PyTorch 2.1 on
    TorchCalls torch;
    const PyRef parts = PyRef::Steal(PyList_New(0)), tensors = PyRef::Steal(PyList_New(0));
    for (const auto& [part, tensor] : all) {
      if (PyList_Append(parts.get(), part.get()) != 0 ||
          PyList_Append(tensors.get(), tensor.get()) != 0)
        ClearError();
    }
    torch.CallFast(torch.torch().get(), together, parts, tensors);
    if (torch.ok()) return;
  }
  TorchCalls torch;
  for (const auto& [part, tensor] : all) CopyInto(&torch, part, tensor);
  if (torch.ok()) return;
  // What these pieces would tell is not known.
  chunk->pieces.clear();
  Fail(device, torch.error());
}

DeviceReader::Together::Together(DeviceReader* reader) : reader_(reader) { ++asks_together; }

DeviceReader::Together::~Together() {
  --asks_together;
  if (reader_ != nullptr) reader_->EndTogether();
}

void DeviceReader::EndTogether() {
  if (devices_.empty()) return;
  const Interposer::Pause pause;
  const QuietTransforms quiet;
  const std::unique_lock alone = Alone();
  for (const auto& [name, device] : devices_) {
    if (device->filling != nullptr && !device->filling->to_copy.empty())
      CopyTogether(device.get(), device->filling.get());
  }
}

bool DeviceReader::Reduce(Device* device, const PyRef& tensor, const Request& request,
                          int64_t count) {
  const std::vector<int64_t> two = {2};
  TorchCalls torch;
  const PyRef plain = Plain(&torch, tensor.get());
  Chunk* const chunk = plain ? ChunkFor(device, &torch, kReducedBytes) : nullptr;
  if (chunk == nullptr) return false;
  const PyRef extremes = Part(chunk, &torch, request.dtype, two, chunk->used);
  const PyRef sums = Part(chunk, &torch, DType::kFloat32, two, chunk->used + 8);
  if (!ReduceThere(&torch, plain, extremes, sums)) return false;
  Append(chunk,
         {.ticket = next_ticket_,
          .offset = 0,
          .dtype = request.dtype,
          .shape = {},
          .request = {},
          .statistics = count,
          .reduced = true},
         kReducedBytes);
  return true;
}

bool DeviceReader::Measure(Device* device, TorchCalls* torch, const PyRef& tensor,
                           const Request& request, int64_t count) {
  TorchCalls there;  // a failure here is no reason to give up
  const PyRef numbers = MeasureThere(&there, tensor, DTypeKindOf(request.dtype));
  return there.ok() && Stage(device, torch, numbers,
                             {.ticket = next_ticket_,
                              .offset = 0,
                              .dtype = DType::kFloat64,
                              .shape = {kDeviceNumbers},
                              .request = {},
                              .statistics = count});
}

bool DeviceReader::Send(Device* device) {
  std::unique_ptr<Chunk> chunk = std::move(device->filling);
  const PyRef stream = chunk->stream;
  std::optional<Accelerator::OnStream> there;
  if (!Accelerator::SameStream(chunk->mark, device->accelerator.StreamMark()))
    there.emplace(device->accelerator, stream);
  CopyTogether(device, chunk.get());
  TorchCalls torch;
  const PyRef dim = Number(0), used = Number(chunk->used);
  const PyRef from = torch.Call(chunk->device, "narrow", dim, dim, used);
  const PyRef to = torch.Call(chunk->host, "narrow", dim, dim, used);
  torch.CallWith("non_blocking", Py_True, to, "copy_", from);
  if (!torch.ok()) return false;
  return Launch(device, std::move(chunk), stream, kChunkBytes);
}

bool DeviceReader::Copy(Device* device, TorchCalls* torch, const PyRef& tensor, Piece piece) {
  if (!tensor) return false;
  const size_t bytes = BytesOf(piece.dtype, piece.shape);
  MakeRoom(bytes);
  auto chunk = std::make_unique<Chunk>();
  chunk->host = Empty(torch, IntTuple(piece.shape), DTypeObject(torch, piece.dtype), PyRef());
  chunk->data = AddressOf(torch, chunk->host);
  torch->CallWith("non_blocking", Py_True, chunk->host, "copy_", tensor);
  const PyRef stream = device->accelerator.CurrentStream();
  if (!torch->ok() || !stream) return false;
  chunk->pieces.push_back(std::move(piece));
  return Launch(device, std::move(chunk), stream, bytes);
}

bool DeviceReader::Launch(Device* device, std::unique_ptr<Chunk> chunk, const PyRef& stream,
                          size_t bytes) {
  PyRef event = device->accelerator.Record(stream);
  if (!event) return false;
  in_flight_.push_back({device, std::move(event), std::move(chunk), bytes});
  bytes_in_flight_ += bytes;
  return true;
}

void DeviceReader::MakeRoom(size_t bytes) {
  while (!in_flight_.empty() && bytes_in_flight_ + bytes > kMostInFlight) {
    Transfer oldest = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (!Accelerator::HasPassed(oldest.event)) {
      ++waits_.memory;
      (void)Accelerator::Wait(oldest.event);
    }
    Take(std::move(oldest));
  }
}

void DeviceReader::Take(Transfer transfer) {
  bytes_in_flight_ -= transfer.bytes;
  Chunk& chunk = *transfer.chunk;
  for (const Piece& piece : chunk.pieces) Read(piece, chunk.data + piece.offset);
  if (!chunk.device) return;
  chunk.pieces.clear();
  chunk.used = 0;
  transfer.device->free.push_back(std::move(transfer.chunk));
}

void DeviceReader::Read(const Piece& piece, const char* data) {
  DeferredNumbers numbers{.ticket = piece.ticket};
  if (piece.statistics) {
    numbers.has_counts = !piece.reduced;
    numbers.stats = piece.reduced
                        ? StatisticsFromReduced(data, piece.dtype, *piece.statistics)
                        : StatisticsFrom(reinterpret_cast<const double*>(data), *piece.statistics);
    arrived_.push_back(std::move(numbers));
    return;
  }
  const Request& asked = piece.request;
  const TensorView view{.data = data,
                        .dtype = piece.dtype,
                        .ndim = static_cast<int>(piece.shape.size()),
                        .shape = piece.shape.data()};
  const size_t bytes = BytesOf(piece.dtype, piece.shape);
  numbers.has_fingerprint = true;
  const bool sketched = asked.sketch && view.numel() > 1;
  numbers.stats = ComputeOver(bytes, [&](ThreadPool* pool) {
    return kernels::ComputeStats(view, pool, asked.checksum, sketched ? &numbers.sketch : nullptr);
  });
  if (asked.rest) {
    numbers.rest = ComputeOver(bytes, [&](ThreadPool* pool) {
      return kernels::ComputeRestStats(view, numbers.stats, pool);
    });
  }
  if (sketched && !numbers.sketch) {
    numbers.sketch = ComputeOver(bytes, [&](ThreadPool* pool) {
      return kernels::ComputeSketch(view, pool, kernels::SketchOfRest(numbers.rest));
    });
  }
  const kernels::Stats& stats = numbers.stats;
  if (asked.locate && stats.nan + stats.pos_inf + stats.neg_inf > 0)
    numbers.first_nonfinite = kernels::FirstNonfinite(view);
  if (!asked.file.empty()) numbers.file_is_lost = !store_(asked.file, view);
  arrived_.push_back(std::move(numbers));
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
    const Chunk* chunk = device->filling.get();
    if (chunk != nullptr && !chunk->pieces.empty() && now - chunk->begun > kMostAge &&
        !Send(device.get()))
      Fail(device.get(), "a transfer failed");
  }
  while (!in_flight_.empty() && Accelerator::HasPassed(in_flight_.front().event)) {
    Transfer oldest = std::move(in_flight_.front());
    in_flight_.pop_front();
    Take(std::move(oldest));
  }
  asked_ = Clock::now();
  return std::exchange(arrived_, {});
}

std::vector<DeferredNumbers> DeviceReader::Finish() {
  const Interposer::Pause pause;
  const QuietTransforms quiet;
  const std::unique_lock alone = Alone();
  for (const auto& [name, device] : devices_) {
    if (device->filling != nullptr && !device->filling->pieces.empty() && !Send(device.get()))
      Fail(device.get(), "a transfer failed");
  }
  while (!in_flight_.empty()) {
    Transfer oldest = std::move(in_flight_.front());
    in_flight_.pop_front();
    // Numbers of a device that has failed are missing.
    if (Accelerator::HasPassed(oldest.event) || Accelerator::Wait(oldest.event))
      Take(std::move(oldest));
    else
      bytes_in_flight_ -= oldest.bytes;
  }
  return std::exchange(arrived_, {});
}

}  // namespace msprobe::capture
