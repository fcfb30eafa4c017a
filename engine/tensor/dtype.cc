#include "engine/tensor/dtype.h"

namespace msprobe {
namespace {

constexpr std::string_view kPrefix = "torch.";

}  // namespace

std::optional<DType> DTypeFromTorchName(std::string_view name) {
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  for (int i = 0; i < kDTypeCount; ++i) {
    if (DTypeShortName(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool IsNarrowFloat(std::string_view name) {
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  if (name == "float32" || name == "bfloat16") return true;  // most are
  const std::optional<DType> dtype = DTypeFromTorchName(name);
  return dtype && IsNarrowFloat(*dtype);
}

}  // namespace msprobe
