// PyTorch as a Framework. It is the one that is used until another one is set.
//
//   MSPROBE_RETURN_IF_ERROR(LoadTorch());     // after `import torch`
//   const Framework& framework = Framework::Get();
#pragma once

#include "engine/base/status.h"

namespace msprobe::capture {

Status LoadTorch();  // looks up PyTorch's types, and uses PyTorch from now on

}  // namespace msprobe::capture
