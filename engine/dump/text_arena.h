// Text that outlives its source: strings are appended to large chunks, so that a hundred thousand
// small names cost a hundred allocations. Views stay valid until the chunks that Release() hands
// out are destroyed.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

namespace msprobe {

class TextArena {
 public:
  std::string_view Copy(std::string_view text) {
    if (text.empty()) return {};
    if (chunks_.empty() || chunks_.back().capacity() - chunks_.back().size() < text.size())
      Grow(text.size());
    std::string& chunk = chunks_.back();
    const size_t start = chunk.size();
    chunk.append(text);  // never beyond the reserved capacity: earlier views stay valid
    return std::string_view(chunk).substr(start);
  }

  void Release(std::deque<std::string>* out) {
    for (std::string& chunk : chunks_) out->push_back(std::move(chunk));
    chunks_.clear();
  }

 private:
  static constexpr size_t kSmallest = 4096, kLargest = 256 * 1024;

  void Grow(size_t at_least) {
    const size_t next =
        chunks_.empty() ? kSmallest : std::min(chunks_.back().capacity() * 2, kLargest);
    std::string chunk;
    chunk.reserve(std::max(
        next,
        at_least));  // beyond the small-string buffer: moving the string keeps its bytes in place
    chunks_.push_back(std::move(chunk));
  }

  std::deque<std::string> chunks_;
};

}  // namespace msprobe
