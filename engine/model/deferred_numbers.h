// What arrives later of a tensor of a device (TensorValue::Numbers::kDeferred).
//
//   DeferredNumbers numbers{.ticket = 7, .stats = ComputeStats(view), .has_fingerprint = true};
//   for (TensorValue& tensor : entry.tensors()) tensor.Resolve(numbers);
#pragma once

#include <cstdint>
#include <optional>

#include "engine/kernels/rest_stats.h"
#include "engine/kernels/stats.h"

namespace msprobe {

struct DeferredNumbers {
  int64_t ticket = -1;  // TensorValue::ticket
  kernels::Stats stats;
  bool has_fingerprint =
      false;  // false: a device computed them; stats.fingerprint and .checksum mean nothing
  bool has_counts = true;  // false: stats.nan, .zero and their kin mean nothing
  std::optional<kernels::RestStats> rest;
  std::optional<kernels::Sketch> sketch;
  int64_t first_nonfinite = -1;
  bool file_is_lost = false;  // its tensor file could not be kept
};

}  // namespace msprobe
