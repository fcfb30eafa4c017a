// Whether a folder can be written to, before anything is written.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace msprobe {

// Whether folders and files can be made below `path`, which need not exist yet: then its nearest
// folder that exists is tried. The trial is a folder with a file of one byte, of a name that nobody
// else has; both are removed. Errors: kIo, naming the folder and the reason.
Status CheckWritable(const std::string& path);

}  // namespace msprobe
