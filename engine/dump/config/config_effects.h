// Keys that are valid and have no effect, because of another key: they are set back to their
// defaults, with a warning for each.
//
//   if (config.level == Level::kDebug) LeaveSelectionToScript(&config);
#pragma once

#include "engine/dump/config/config.h"

namespace msprobe::dump {

// Task grad_probe: start, stop and step have no effect, and neither have the keys that change them.
void LeaveStepsToOptimizers(Config* config);
// Level debug: the script chooses the values, so keys that select calls have no effect.
void LeaveSelectionToScript(Config* config);

}  // namespace msprobe::dump
