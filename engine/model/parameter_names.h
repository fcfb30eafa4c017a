// The names of a call's arguments: those of its function's parameters.
//
//   ParameterName(dump, record, 1);   // "dim" of torch.max(x, 1), "other" of torch.max(x, y)
#pragma once

#include <string>

#include "engine/model/table.h"

namespace msprobe {

// The name of positional argument `index` of a forward call of an API; "": it is not known. Of
// overloads those count that take what the call was given. "size.1": the second argument that a
// parameter such as *size takes.
std::string ParameterName(const Dump& dump, const Record& record, size_t index);

}  // namespace msprobe
