// MindSpore as a Framework: its tensors, and its graph of gradients under PyNative. No library of
// MindSpore is linked, no header of it is included, and none of its operators runs.
//
//   MSPROBE_RETURN_IF_ERROR(LoadMindSpore());   // after `import mindspore`
//   HostArray array;
//   Framework::Get().Read(tensor, &array);
#pragma once

#include "engine/base/status.h"

namespace msprobe::capture {

// Looks up MindSpore's types, and uses MindSpore from now on. kUnsupported: this MindSpore keeps
// tensors or the graph of gradients in a way that we do not know (before 2.8).
Status LoadMindSpore();

}  // namespace msprobe::capture
