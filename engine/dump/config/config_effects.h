// Keys that are right in themselves and have no effect beside another: they go back to their
// defaults, with a warning each.
//
//   if (config.level == Level::kDebug) LeaveSelectionToScript(&config);
#pragma once

#include "engine/dump/config/config.h"

namespace msprobe::dump {

// Task grad_probe: start, stop and step have no effect, nor has what says how they work.
void LeaveStepsToOptimizers(Config* config);
// Level debug: the script says what is saved.
void LeaveSelectionToScript(Config* config);

}  // namespace msprobe::dump
