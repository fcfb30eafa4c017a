// Checks that a folder can be written to, before anything is written.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace msprobe {

// Whether folders and files can be made below `path`. If `path` does not exist, the nearest folder
// above it that exists is tried. The trial creates a folder with a unique name and in it a file of
// one byte, and removes both. Errors: kIo, with the folder and the reason.
Status CheckWritable(const std::string& path);

}  // namespace msprobe
