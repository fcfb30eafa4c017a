// Checks before the training begins that the files of a configuration can be written.
#pragma once

#include <optional>

#include "engine/base/status.h"
#include "engine/dump/config/config.h"

namespace msprobe::dump {

// MSPROBE_DISABLE=1 in the environment: the configuration is read, and nothing else is done.
bool IsDisabledByEnvironment();

// Whether this process can write below `config.dump_path`. The check leaves no file
// there. Ok without a check when this process writes nothing: MSPROBE_DISABLE=1,
// "dump_enable": false, level L2, or a configuration whose `rank` is not this process's. `rank`: of
// this process; unset: not known yet, and a configuration that selects ranks is not checked.
// Errors: kIo.
Status CheckDumpPlace(const Config& config, std::optional<int> rank);

}  // namespace msprobe::dump
