// A parameter or buffer as a step began: one entry of weights.json (dump/read/weights_file.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/kernels/sketch.h"

namespace msprobe {

struct StepWeight {
  std::string name;                           // without the parts of wrappers: "encoder.ln.weight"
  std::string dtype;                          // "torch.float32"
  std::optional<std::vector<int64_t>> shape;  // nullopt: not known
  bool trained = false;     // it requires a gradient: a parameter that an optimizer may change
  std::string fingerprint;  // "" where its elements could not be read, or lie on a device
  std::optional<kernels::Sketch> sketch;
  double max = NAN, min = NAN, mean = NAN, norm = NAN;  // NaN: not known
};

}  // namespace msprobe
