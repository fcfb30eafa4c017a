// weights.json: the parameters and buffers with which one step of one rank began.
//
//   std::vector<StepWeight> weights;
//   MSPROBE_RETURN_IF_ERROR(ReadStepWeights("runs/a/step3/rank0", &weights));
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/kernels/sketch.h"

namespace msprobe::dump {

struct StepWeight {
  std::string name;         // without the parts of wrappers: "encoder.ln.weight"
  std::string dtype;        // "torch.float32"
  int dimensions = -1;      // -1: not known
  bool trained = false;     // it requires a gradient: a parameter that an optimizer may change
  std::string fingerprint;  // "" where its elements could not be read, or lie on a device
  std::optional<kernels::Sketch> sketch;
  double max = NAN, min = NAN, mean = NAN, norm = NAN;  // NaN: not known
};

// In the order of the file; nothing when there is no such file (dumps of other tools, "weights":
// "first_step"). A file that a kill cut short gives what it has.
Status ReadStepWeights(const std::string& folder, std::vector<StepWeight>* weights);

}  // namespace msprobe::dump
