// A configuration as one JSON object, with the keys that config.json has: what frameworks read as
// `debugger.config.level`. Keys of a task's section stand beside the others.
//
//   ConfigJson(config);   // {"task": "statistics", "level": "L1", "dump_path": "./dump_path", ...}
#pragma once

#include <string>

#include "engine/dump/config/config.h"

namespace msprobe::dump {

std::string ConfigJson(const Config& config);

}  // namespace msprobe::dump
