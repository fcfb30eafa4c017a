// What a pickle may name. Everything else is refused before anything is built from it.
#pragma once

#include <optional>
#include <string_view>

namespace msprobe::formats {

// True for the short list of globals that stand for plain data. `module` "torch" with any dtype
// name, too.
bool IsAllowedGlobal(std::string_view module, std::string_view name);

// What to do about a global that is refused, when we know: "a distributed tensor: save
// tensor.to_local()". Else "".
std::string_view RefusedGlobalHint(std::string_view module, std::string_view name);

}  // namespace msprobe::formats
