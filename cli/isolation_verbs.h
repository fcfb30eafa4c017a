// The verbs of docs/isolation.md: they make sure of what a comparison has found.
//
//   verbs.push_back(MakeDeterminismVerb());
#pragma once

#include <memory>

#include "cli/verb.h"

namespace msprobe::cli {

std::unique_ptr<Verb> MakeBisectVerb();
std::unique_ptr<Verb> MakeDeterminismVerb();
std::unique_ptr<Verb> MakeReplayVerb();

}  // namespace msprobe::cli
