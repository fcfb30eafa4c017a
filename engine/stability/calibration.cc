#include "engine/stability/calibration.h"

#include <algorithm>

#include "engine/stability/limits.h"

namespace msprobe::stability {

std::optional<double> Calibration::Of(std::string_view api) const {
  const auto found = limits_.find(api);
  if (found == limits_.end()) return std::nullopt;
  return found->second;
}

void Calibration::Note(std::string_view api, bool consistent, bool agrees_with_cpu, double least) {
  double& limit = limits_.try_emplace(std::string(api), kFirstLimit).first->second;
  if (!consistent && agrees_with_cpu) limit = 1 + (limit - 1) * kLimitStep;
  // What the CPU does not agree with has to be found: nearer to the limit of the dtype.
  if (consistent && !agrees_with_cpu) limit = 1 + (limit - 1) / kLimitStep;
  limit = std::max(limit, least);
}

}  // namespace msprobe::stability
