// A view of text in 8 bytes, half of a std::string_view: records with a dozen texts each are held
// by the million.
//
//   TextRef name = "torch.float32";        // from anything that is a std::string_view
//   std::string_view view = name;          // and back, at no cost
//   // two refs to one place compare without reading the text
//   if (name == other) Use(view);
//
// As with a std::string_view, something else must own the text.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <string_view>

namespace msprobe {

// Keeps place and length of a text as long as the process lives, for handles that have no room for
// them.
const std::string_view* KeepView(std::string_view text);

class TextRef {
 public:
  TextRef() = default;
  template <typename Text>
  requires std::convertible_to<const Text&, std::string_view> &&
      (!std::same_as<Text, TextRef>)TextRef(const Text& text)
      : TextRef(std::string_view(text)) {}  // NOLINT: as a view
  TextRef(std::string_view text) {          // NOLINT
    const auto at = reinterpret_cast<uintptr_t>(text.data());
    // 48 bits hold the address, 16 bits the length. A longer text needs an object of its own
    // (Keep).
    bits_ = text.size() < kElsewhere && at >> kAddressBits == 0
                ? static_cast<uint64_t>(text.size()) << kAddressBits | at
                : static_cast<uint64_t>(kElsewhere) << kAddressBits |
                      reinterpret_cast<uintptr_t>(KeepView(text));
  }

  operator std::string_view() const { return view(); }  // NOLINT
  std::string_view view() const {
    const auto size = static_cast<size_t>(bits_ >> kAddressBits);
    const uint64_t at = bits_ & ((uint64_t{1} << kAddressBits) - 1);
    if (size == kElsewhere) return *reinterpret_cast<const std::string_view*>(at);
    return {reinterpret_cast<const char*>(at), size};
  }

  // Of std::string_view.
  bool empty() const { return bits_ >> kAddressBits == 0; }
  size_t size() const { return view().size(); }
  bool starts_with(std::string_view text) const { return view().starts_with(text); }
  bool ends_with(std::string_view text) const { return view().ends_with(text); }
  std::string_view substr(size_t at, size_t size = std::string_view::npos) const {
    return view().substr(at, size);
  }

  friend bool operator==(TextRef a, TextRef b) {
    return a.bits_ == b.bits_ || a.view() == b.view();
  }
  friend auto operator<=>(TextRef a, TextRef b) { return a.view() <=> b.view(); }
  template <typename Text>
  requires std::convertible_to<const Text&, std::string_view> &&
      (!std::same_as<Text, TextRef>)friend bool
      operator==(TextRef a, const Text& b) {
    return a.view() == std::string_view(b);
  }

 private:
  static constexpr int kAddressBits = 48;
  static constexpr size_t kElsewhere = 0xffff;
  static_assert(sizeof(void*) == 8);

  uint64_t bits_ = 0;
};

}  // namespace msprobe
