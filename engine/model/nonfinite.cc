#include "engine/model/nonfinite.h"

#include <cmath>

namespace msprobe {

void Nonfinite::Add(const kernels::Stats& stats) {
  nan |= stats.nan > 0;
  inf |= stats.pos_inf > 0 || stats.neg_inf > 0;
}

void Nonfinite::Add(double value) {
  nan |= std::isnan(value);
  inf |= std::isinf(value);
}

Message KindsIntroduced(const Nonfinite& given, const Nonfinite& made) {
  const bool nan = made.nan && !given.nan, inf = made.inf && !given.any();
  if (nan && inf) return "NaN and Inf"_t;
  return std::string(nan ? "NaN" : inf ? "Inf" : "");
}

}  // namespace msprobe
