#include "engine/base/text_ref.h"

#include <deque>
#include <mutex>

namespace msprobe {

const std::string_view* KeepView(std::string_view text) {
  static std::mutex mutex;
  static auto* const kept = new std::deque<std::string_view>;  // outlives whoever refers to it
  const std::lock_guard lock(mutex);
  return &kept->emplace_back(text);
}

}  // namespace msprobe
