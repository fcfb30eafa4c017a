#include "engine/base/text_ref.h"

#include <deque>
#include <mutex>

namespace msprobe {

uint64_t TextRef::Keep(std::string_view text) {
  static std::mutex mutex;
  static auto* const kept = new std::deque<std::string_view>;  // outlives whoever refers to it
  const std::lock_guard lock(mutex);
  const auto at = reinterpret_cast<uintptr_t>(&kept->emplace_back(text));
  return static_cast<uint64_t>(kElsewhere) << kAddressBits | at;
}

}  // namespace msprobe
