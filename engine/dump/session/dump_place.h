// Whether what a configuration asks for can be written, before the training begins.
#pragma once

#include <optional>

#include "engine/base/status.h"
#include "engine/dump/config/config.h"

namespace msprobe::dump {

// MSPROBE_DISABLE=1 in the environment: the configuration is read, and nothing else is done.
bool IsDisabledByEnvironment();

// Whether this process can write below `config.dump_path`. Nothing is left there. Not asked, and
// fine, where this process writes nothing: MSPROBE_DISABLE=1, "dump_enable": false, level L2, a
// `rank` of the configuration that is not this one. `rank`: of this process; unset: not known yet,
// and a configuration that selects ranks is not checked. Errors: kIo.
Status CheckDumpPlace(const Config& config, std::optional<int> rank);

}  // namespace msprobe::dump
