// Text that outlives its source: strings are appended to large chunks, so that a hundred thousand
// small names cost a hundred allocations. Views stay valid until the chunks that Release() hands
// out are destroyed.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/text.h"
#include "engine/formats/text/json.h"

namespace msprobe {

class TextArena {
 public:
  std::string_view Copy(std::string_view text) {
    if (text.empty()) return {};
    std::string& chunk = ChunkWithRoom(text.size());
    const size_t start = chunk.size();
    chunk.append(text);
    return std::string_view(chunk).substr(start);
  }

  // The characters a JSON string stands for. One without escapes is not copied: the view points
  // into its own text.
  std::string_view Decode(formats::JsonText text) {
    if (!text.escaped) return text.raw;
    std::string& chunk = ChunkWithRoom(text.raw.size());  // decoding never makes text longer
    const size_t start = chunk.size();
    formats::AppendJsonText(&chunk, text);
    return std::string_view(chunk).substr(start);
  }

  // Everything of `other`; its views stay as they are.
  void Take(TextArena* other) {
    // What is added next goes to the last chunk: ours, unless it is full.
    for (std::string& chunk : other->chunks_) chunks_.push_back(std::move(chunk));
    other->chunks_.clear();
  }

  size_t bytes() const {
    size_t sum = 0;
    for (const std::string& chunk : chunks_) sum += chunk.size();
    return sum;
  }

  void Release(std::deque<std::string>* out) {
    for (std::string& chunk : chunks_) out->push_back(std::move(chunk));
    chunks_.clear();
  }

 private:
  static constexpr size_t kSmallest = 4096, kLargest = 256 * 1024;

  // The last chunk is never filled beyond the capacity it has now: earlier views stay valid.
  std::string& ChunkWithRoom(size_t size) {
    if (chunks_.empty() || chunks_.back().capacity() - chunks_.back().size() < size) Grow(size);
    return chunks_.back();
  }

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

// A fingerprint in 16 hexadecimal digits, as our first dumps spelled it, whichever way this one is
// spelled. Any other text is returned as it is.
inline std::string_view FingerprintText(std::string_view text, TextArena* arena) {
  const std::optional<uint64_t> value = ParseBase64(text);
  if (!value) return text;
  std::string hex;
  AppendHex(&hex, *value, 16);
  return arena->Copy(hex);
}

}  // namespace msprobe
