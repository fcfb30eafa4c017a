#include "capture/devices/late_tensor.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace msprobe::capture {
namespace {

std::atomic<int64_t> bytes_held = 0;

}  // namespace

int64_t HeldElements::MostBytes() {
  static const int64_t most = [] {
    const char* text = std::getenv("MSPROBE_HELD_MB");
    char* end = nullptr;
    const int64_t megabytes = text != nullptr ? std::strtoll(text, &end, 10) : -1;
    const bool is_number = megabytes >= 0 && megabytes < INT64_MAX >> 20 && end != text;
    return (is_number && *end == '\0' ? megabytes : 512) << 20;
  }();
  return most;
}

std::shared_ptr<HeldElements> HeldElements::Reserve(DType dtype, std::span<const int64_t> shape) {
  const TensorView view{
      .dtype = dtype, .ndim = static_cast<int>(shape.size()), .shape = shape.data()};
  const int64_t bytes = view.numel() * static_cast<int64_t>(DTypeSize(dtype));
  if (bytes_held + bytes > MostBytes()) return nullptr;
  return std::make_shared<HeldElements>(dtype, shape, bytes);
}

HeldElements::HeldElements(DType dtype, std::span<const int64_t> shape, int64_t bytes)
    : dtype_(dtype), shape_(shape.begin(), shape.end()), bytes_(bytes) {
  bytes_held += bytes;
}

HeldElements::~HeldElements() { bytes_held -= bytes_; }

void HeldElements::Take(const TensorView& view) {
  data_ = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(std::max<int64_t>(1, bytes_)));
  if (bytes_ > 0) CopyContiguous(view, data_.get());
}

TensorView HeldElements::view() const {
  return {.data = data_.get(),
          .dtype = dtype_,
          .ndim = static_cast<int>(shape_.size()),
          .shape = shape_.data()};
}

void LateTensor::Arrive(const DeferredNumbers& found, const TensorView& view) {
  numbers = found;
  arrived = true;
  if (const std::shared_ptr<HeldElements> wanted = elements.lock()) wanted->Take(view);
}

bool LateTensor::Equals(const LateTensor& other) const {
  return arrived && other.arrived && numbers.stats.fingerprint == other.numbers.stats.fingerprint;
}

void Resolve(const LateTensors& arrived, Entry* entry) {
  for (TensorValue& tensor : entry->tensors()) {
    if (tensor.numbers != TensorValue::Numbers::kDeferred) continue;
    const auto known = std::ranges::find_if(arrived, [&](const auto& each) {
      return each->arrived && each->numbers.ticket == tensor.ticket;
    });
    if (known != arrived.end()) tensor.Resolve((*known)->numbers);
  }
}

void LateNonfinite::Add(const LateNonfinite& other) {
  here.Add(other.here);
  late.insert(late.end(), other.late.begin(), other.late.end());
}

Nonfinite LateNonfinite::Known() const {
  Nonfinite known = here;
  for (const auto& each : late) {
    if (each->arrived) known.Add(each->numbers.stats);
  }
  return known;
}

LateTensors Joined(const LateNonfinite& a, const LateNonfinite& b) {
  LateTensors all = a.late;
  all.insert(all.end(), b.late.begin(), b.late.end());
  return all;
}

}  // namespace msprobe::capture
