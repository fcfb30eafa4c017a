// Whether all gradients of the parameters are one number times the golden's.
//
//   if (const std::optional<CommonFactor> found = FactorOfGradients(relations))
//     Print("all {} gradients are the golden's times {}", found->gradients, found->factor);
#pragma once

#include <cstdint>
#include <optional>

#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {

struct CommonFactor {
  double factor = 1;
  double tolerance = 0;  // of the factor, relative: what rounding explains
  int64_t gradients = 0;
};

// Of the gradients as backward passes left them, or where only optimizers list them as they took
// them first. nullopt: a gradient that both runs list is another multiple or none, or fewer than
// three are multiples. A gradient of which nearly all is rounding says nothing.
std::optional<CommonFactor> FactorOfGradients(const Relations& relations);

}  // namespace msprobe::compare::relations
