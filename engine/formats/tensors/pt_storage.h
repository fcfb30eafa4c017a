// How torch names dtypes in files: some by the class of a storage ("FloatStorage"), the others by
// an UntypedStorage and the name of the dtype.
#pragma once

#include <optional>
#include <string_view>

#include "engine/tensor/dtype.h"

namespace msprobe::formats {

// "FloatStorage" is kFloat32. nullopt for UntypedStorage and for unknown names.
std::optional<DType> DTypeOfStorage(std::string_view storage_class);
// "" for the dtypes torch saves in an UntypedStorage.
std::string_view StorageOfDType(DType dtype);

}  // namespace msprobe::formats
