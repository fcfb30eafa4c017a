// What the elements of a recorded value are, and how its dump spells that.
//
//   const ElementType t = "Float32";   // MindSpore's spelling
//   t.dtype();                         // DType::kFloat32
//   t.view();                          // "Float32"
//
// 8 bytes. As with a view, the text lives elsewhere.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/base/text_ref.h"
#include "engine/tensor/dtype.h"

namespace msprobe {

// Numbers of Python, which dumps record without a width.
enum class PythonNumber : uint8_t { kNone, kBool, kInt, kFloat };

class ElementType {
 public:
  ElementType() = default;   // none was recorded: ""
  ElementType(DType dtype);  // NOLINT: spelled as by PyTorch, "torch.float32"
  // "torch.float32", "Float32", "float32"; "<class 'int'>", "int". Any other text is of no known
  // type: "slice", "<class 'str'>", "N/A".
  template <typename Text>
  requires std::convertible_to<const Text&, std::string_view> &&
      (!std::same_as<Text, ElementType>)ElementType(const Text& text)  // NOLINT: as a view
      : ElementType(std::string_view(text)) {}
  ElementType(std::string_view text);  // NOLINT

  // Of a tensor's elements; unset for all other values.
  std::optional<DType> dtype() const {
    const int at = index();
    return at < kDTypeCount ? std::optional(static_cast<DType>(at)) : std::nullopt;
  }
  PythonNumber python() const {
    const int at = index();
    return at < kDTypeCount || at == kUnknown ? PythonNumber::kNone
                                              : static_cast<PythonNumber>(at - kDTypeCount + 1);
  }
  bool known() const { return index() != kUnknown; }

  // An index into tables of all types: the dtypes in their order, then Python's bool, int and
  // float, then kUnknown.
  int index() const { return kUnknown - static_cast<int>(bits_ >> (kAddressBits + 8)); }
  static constexpr int kUnknown = kDTypeCount + 3, kIndexCount = kUnknown + 1;

  // As the dump spells it.
  std::string_view view() const {
    const auto size = static_cast<size_t>(bits_ >> kAddressBits & 0xff);
    const uint64_t at = bits_ & ((uint64_t{1} << kAddressBits) - 1);
    if (size == kElsewhere) return *reinterpret_cast<const std::string_view*>(at);
    return {reinterpret_cast<const char*>(at), size};
  }
  operator std::string_view() const { return view(); }  // NOLINT: as a view
  bool empty() const { return bits_ == 0; }

  // "int" of "<class 'int'>"; any other spelling as it is.
  std::string_view class_name() const;
  bool names_class() const { return class_name().size() < view().size(); }

  // The same spelling.
  friend bool operator==(ElementType a, ElementType b) {
    return a.bits_ == b.bits_ || (a.index() == b.index() && a.view() == b.view());
  }
  template <typename Text>
  requires std::convertible_to<const Text&, std::string_view> &&
      (!std::same_as<Text, ElementType>)friend bool
      operator==(ElementType a, const Text& b) {
    return a.view() == std::string_view(b);
  }

 private:
  ElementType(std::string_view text, int index);

  static constexpr int kAddressBits = 48;
  static constexpr size_t kElsewhere = 0xff;
  uint64_t bits_ = 0;  // kUnknown - index, size of the text, its address
};
static_assert(sizeof(ElementType) == 8);

}  // namespace msprobe
