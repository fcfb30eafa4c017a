#include "engine/compare/judge/update_agreement.h"

#include <algorithm>
#include <cmath>

namespace msprobe::compare {

void UpdateAgreement::Add(BothSides before, BothSides after) {
  const double target = after.target - before.target, golden = after.golden - before.golden;
  const double larger = std::max(std::abs(target), std::abs(golden));
  if (std::isfinite(target) && std::isfinite(golden) && larger > 0)
    apart_.push_back(std::abs(target - golden) / larger);
}

bool UpdateAgreement::agrees() const {
  constexpr double kApart = 0.25;
  if (apart_.empty()) return false;
  std::vector<double> apart = apart_;
  const auto middle = apart.begin() + static_cast<std::ptrdiff_t>(apart.size() / 2);
  std::nth_element(apart.begin(), middle, apart.end());
  return *middle <= kApart;
}

}  // namespace msprobe::compare
