// The functions and classes that a pickle may name. All others are refused before anything is
// built.
#pragma once

#include <optional>
#include <string_view>

#include "engine/base/messages/message.h"

namespace msprobe::formats {

// True for the short list of globals that stand for plain data. `module` "torch" with any dtype
// name, too.
bool IsAllowedGlobal(std::string_view module, std::string_view name);

// Advice about a global that is refused: "a distributed tensor: save tensor.to_local()"; "" when
// there is none.
Message RefusedGlobalHint(std::string_view module, std::string_view name);

}  // namespace msprobe::formats
