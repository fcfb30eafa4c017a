// Reads tensors of a device (an NPU, a GPU) without waiting for it.
//
// A small tensor is copied into a chunk of memory on its device (staging_ring.h). What a chunk has
// travels to the host in one transfer, into pinned memory, after which an event is recorded; a
// large tensor whose bits are wanted travels alone. When the event has passed, the engine's own
// kernels read the copy: the numbers are those of a tensor of the host, bit by bit. Of a large
// tensor whose statistics are enough, the device computes them (device_statistics.h), and the
// fingerprint where it is asked for (device_fingerprint.h); a kernel of somebody else may do both
// (device_kernel.h).
//
//   DeviceReader reader;
//   // -1: it cannot be read so
//   const int64_t ticket = reader.Ask(tensor, {.dtype = DType::kFloat32, .shape = shape});
//   session.ResolveDeferred(reader.Arrived());    // now and then: what has arrived; never waits
//   session.ResolveDeferred(reader.Finish());     // at stop: everything
#pragma once

#include <Python.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capture/devices/accelerator.h"
#include "capture/devices/device_fingerprint.h"
#include "capture/devices/device_kernel.h"
#include "capture/devices/late_tensor.h"
#include "capture/devices/staging_ring.h"
#include "capture/devices/torch_calls.h"
#include "capture/python/py_ref.h"
#include "engine/base/messages/message.h"
#include "engine/kernels/stats.h"
#include "engine/model/deferred_numbers.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::capture {

// "npu", "cpu"; "" of an object without a device. Leaves no Python error set.
std::string DeviceTypeOf(PyObject* tensor);

// Needs the GIL, and leaves it to other threads now and then: several threads may use one reader
// (each device has a thread for its backward pass). Never leaves a Python error set.
class DeviceReader {
 public:
  // A tensor of at most so many bytes shares a transfer with others.
  static constexpr size_t kMostStaged = size_t{64} << 10;
  // Statistics of a larger tensor are computed on its device, with a fingerprint only where its
  // bits are asked for.
  static constexpr size_t kMostCopied = size_t{4} << 20;
  // Bytes that are under way. When there would be more, the program waits for the oldest transfer.
  static constexpr size_t kMostInFlight = size_t{64} << 20;

  // Whether tensors of the host are measured by operations of the framework as well
  // (MSPROBE_STATISTICS=framework).
  static bool TakesHost();

  struct Request {
    DType dtype = DType::kFloat32;
    std::span<const int64_t> shape;
    kernels::Checksum checksum = kernels::Checksum::kNone;
    bool bits = false;    // the fingerprint is needed, however large the tensor is
    bool rest = false;    // RestStats
    bool sketch = false;  // Sketch
    bool locate = false;  // the first NaN or infinity
    std::string file;     // the tensor file that gets the elements; "": none
    // Gets the numbers, all of them, and the elements; they are not among those of Arrived.
    std::shared_ptr<LateTensor> late;
    // A number that tensors of the same device have, and no others; 0: not known, PyTorch is asked
    // for the device.
    uint64_t device = 0;
  };
  // Computes what is asked for of a copy that has arrived.
  using Measure =
      std::function<void(const TensorView& view, const Request& asked, DeferredNumbers* numbers)>;
  // Writes a tensor file; false: it could not be queued.
  using Store = std::function<bool(const std::string& file, const TensorView& view)>;

  DeviceReader() = default;
  DeviceReader(const DeviceReader&) = delete;
  DeviceReader& operator=(const DeviceReader&) = delete;

  // To be called before the first Ask.
  void SetMeasure(Measure measure) { measure_ = std::move(measure); }
  void SetStore(Store store) { store_ = std::move(store); }
  // Called once, when type() is known.
  void WhenFirstAsked(std::function<void()> told) { first_asked_ = std::move(told); }
  const std::string& type() const {
    return type_;
  }  // of the devices, "npu"; "": nothing was asked yet
  // A ticket under which the numbers come; -1: the tensor has to be copied while the program waits,
  // which is logged once for each device.
  int64_t Ask(PyObject* tensor, const Request& request);
  // While an object of this class lives, this thread only asks for tensors that stay as they are
  // until its end. They are copied together then, by one kernel where the device has one
  // (torch._foreach_copy_).
  //
  //   const DeviceReader::Together together(&reader);   // may be null
  class Together {
   public:
    explicit Together(DeviceReader* reader);
    ~Together();
    Together(const Together&) = delete;
    Together& operator=(const Together&) = delete;

   private:
    DeviceReader* const reader_;
  };
  std::vector<DeferredNumbers> Arrived();  // nothing, while another thread uses the reader
  std::vector<DeferredNumbers> Finish();
  std::vector<DeferredNumbers> FinishInStep();  // the same, counted as a wait
  bool is_used() const { return !devices_.empty(); }

  // How often the program had to wait for a device in this step, and why.
  struct Waits {
    int64_t memory = 0;  // kMostInFlight or HeldElements::MostBytes was reached
    int64_t copies = 0;  // Ask answered -1
  };
  const Waits& waits() const { return waits_; }
  void NewStep() { waits_ = {}; }

 private:
  using Clock = std::chrono::steady_clock;

  // A tensor in a transfer.
  struct Piece {
    int64_t ticket;
    size_t offset;  // in bytes
    DType dtype;
    std::vector<int64_t> shape;
    Request request;  // without its shape
    enum class Kind : uint8_t {
      kCopy,     // the elements
      kReduced,  // the numbers of ReduceThere
      kDigest,   // what DigestThere writes
      kKernel,   // what MeasureByKernel writes
    };
    Kind kind = Kind::kCopy;
    bool is_check = false;  // of the known memory; no ticket
    int64_t elements = 0;   // of the tensor, unless it is kCopy
  };
  struct Device {
    explicit Device(std::string type, int64_t index) : accelerator(std::move(type), index) {}
    Accelerator accelerator;
    StagingRing ring;
    // Of the part of ring.chunk() that was not sent yet.
    std::vector<Piece> pieces;
    // Parts of the memory, and the tensors that are still to be copied into them.
    std::vector<std::pair<PyRef, PyRef>> to_copy;
    PyRef stream, mark;    // of the pieces; Accelerator::StreamMark
    uint64_t streams = 0;  // how often that changed
    Clock::time_point begun;
    bool failed = false;
    FingerprintScratch fingerprints;  // of the stream that needed it last
    // Whether the sums of known memory were those of the host, by the operations of PyTorch or by a
    // kernel, for a dtype; unset: they are under way.
    std::map<std::pair<Piece::Kind, DType>, std::optional<bool>> adds_right;
  };
  struct Transfer {
    Device* device;
    PyRef event;
    StagingChunk* chunk;  // null: a tensor that travels alone
    PyRef host;           // its memory
    const char* data;
    std::vector<Piece> pieces;
    size_t bytes;
  };

  // The lock. Who waits for it has released the GIL, which the owner needs to go on.
  std::unique_lock<std::mutex> Alone();
  Device* DeviceOf(PyObject* tensor, uint64_t number);
  int64_t AskHost(const PyRef& tensor, const Request& request, int64_t count);
  bool Stage(Device* device, TorchCalls* torch, const PyRef& tensor, Piece piece);
  bool Reduce(Device* device, const PyRef& tensor, const Request& request, int64_t count);
  // With a fingerprint, by `kernel` or, where that is null, by operations of PyTorch.
  bool Digest(Device* device, const PyRef& tensor, const Request& request, int64_t count,
              const DeviceKernel* kernel);
  // Of known memory: shows whether the device's sums are right.
  bool LaunchCheck(Device* device, TorchCalls* torch, DType dtype, const DeviceKernel* kernel);
  bool LaunchDigest(Device* device, TorchCalls* torch, const PyRef& plain, Piece piece,
                    const DeviceKernel* kernel);
  // By the kernel that was registered; false: there is none, or it fails.
  bool MeasureOnce(Device* device, const PyRef& tensor, const Request& request, int64_t count);
  // Where the next piece goes; null after a failure.
  StagingChunk* ChunkFor(Device* device, TorchCalls* torch, size_t bytes);
  static void Append(Device* device, Piece piece, size_t bytes);  // when its memory is written
  bool Copy(Device* device, TorchCalls* torch, const PyRef& tensor, Piece piece);
  void CopyTogether(Device* device);
  void EndTogether();
  bool Send(Device* device);
  bool Launch(Transfer transfer, const PyRef& stream);
  bool LaunchAlone(Device* device, const PyRef& host, const char* data, Piece piece, size_t bytes);
  void MakeRoom(size_t bytes);
  void TakeOldest();
  void Take(const Transfer& transfer);
  void Read(Device* device, const Piece& piece, const char* data);
  void NoteCheck(Device* device, const Piece& piece, uint64_t fingerprint);
  void Fail(Device* device, Message why);

  std::mutex mutex_;  // of all that follows
  Measure measure_;
  Store store_;
  std::function<void()> first_asked_;
  std::string type_;
  std::map<std::pair<std::string, int64_t>, std::unique_ptr<Device>> devices_;
  Device* last_ = nullptr;    // the device of the last tensor
  uint64_t last_number_ = 0;  // Request::device
  std::deque<Transfer> in_flight_;
  size_t bytes_in_flight_ = 0;
  std::vector<DeferredNumbers> arrived_;
  Clock::time_point asked_;  // when an event was asked last
  int64_t next_ticket_ = 0;
  Waits waits_;
};

}  // namespace msprobe::capture
