#include "engine/model/element_type.h"

#include <array>
#include <utility>

namespace msprobe {
namespace {

constexpr std::array<std::string_view, 3> kPythonNames = {"bool", "int", "float"};

bool SameIgnoringCase(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

std::string_view WithoutClass(std::string_view text) {
  constexpr std::string_view kBefore = "<class '", kBehind = "'>";
  const bool quoted = text.size() >= kBefore.size() + kBehind.size() && text.starts_with(kBefore) &&
                      text.ends_with(kBehind);
  return quoted ? text.substr(kBefore.size(), text.size() - kBefore.size() - kBehind.size()) : text;
}

int IndexOf(std::string_view text) {
  const std::string_view name = WithoutClass(text);
  const bool python = name.size() < text.size();
  text = name;
  if (!python && text.starts_with("torch.")) text.remove_prefix(6);
  for (int i = 0; i < kDTypeCount && !python; ++i) {
    if (SameIgnoringCase(text, DTypeShortName(static_cast<DType>(i)))) return i;
  }
  for (size_t i = 0; i < kPythonNames.size(); ++i) {
    if (SameIgnoringCase(text, kPythonNames[i])) return kDTypeCount + static_cast<int>(i);
  }
  return ElementType::kUnknown;
}

}  // namespace

ElementType::ElementType(DType dtype)
    : ElementType(DTypeTorchName(dtype), static_cast<int>(dtype)) {}

ElementType::ElementType(std::string_view text)
    : ElementType(text, text.empty() ? kUnknown : IndexOf(text)) {}

std::string_view ElementType::class_name() const { return WithoutClass(view()); }

ElementType::ElementType(std::string_view text, int index) {
  if (text.empty()) return;
  const auto at = reinterpret_cast<uintptr_t>(text.data());
  const bool fits = text.size() < kElsewhere && at >> kAddressBits == 0;
  const uint64_t size = fits ? text.size() : kElsewhere;
  const uint64_t address = fits ? at : reinterpret_cast<uintptr_t>(KeepView(text));
  bits_ = static_cast<uint64_t>(kUnknown - index) << (kAddressBits + 8) | size << kAddressBits |
          address;
}

}  // namespace msprobe
