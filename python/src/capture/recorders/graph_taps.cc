#include "capture/recorders/graph_taps.h"

#include <utility>

namespace msprobe::capture {

GraphTaps& GraphTaps::Get() {
  static GraphTaps* instance = new GraphTaps;  // never destroyed: graphs outlive static destructors
  return *instance;
}

int64_t GraphTaps::Add(GraphTap tap) {
  const std::lock_guard lock(mutex_);
  taps_.push_back(std::move(tap));
  return static_cast<int64_t>(taps_.size()) - 1;
}

const GraphTap* GraphTaps::Find(int64_t number) const {
  const std::lock_guard lock(mutex_);
  const bool known = number >= 0 && number < static_cast<int64_t>(taps_.size());
  return known ? &taps_[static_cast<size_t>(number)] : nullptr;
}

void GraphTaps::Want(std::optional<KnownNumbers::Asked> asked) {
  const std::lock_guard lock(mutex_);
  asked_ = asked;
}

std::optional<KnownNumbers::Asked> GraphTaps::wanted() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

}  // namespace msprobe::capture
