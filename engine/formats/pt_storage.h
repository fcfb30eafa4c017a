// How torch names dtypes in files: a storage class for the older ones, a bare storage plus the
// dtype for the rest.
#pragma once

#include <optional>
#include <string_view>

#include "engine/tensor/dtype.h"

namespace msprobe::formats {

// "FloatStorage" is kFloat32. nullopt for UntypedStorage and names we do not know.
std::optional<DType> DTypeOfStorage(std::string_view storage_class);
// "" for the dtypes torch saves in an UntypedStorage.
std::string_view StorageOfDType(DType dtype);

}  // namespace msprobe::formats
