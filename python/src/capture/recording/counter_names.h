// The index of the call counter of each name. Calls of equal name share one counter.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace msprobe::capture {

class CounterNames {
 public:
  // Index of the session's counter (CallNames::Next) of "Functional.linear.".
  uint32_t Of(const std::string& what) {
    return index_.try_emplace(what, static_cast<uint32_t>(index_.size())).first->second;
  }

 private:
  std::unordered_map<std::string, uint32_t> index_;
};

}  // namespace msprobe::capture
