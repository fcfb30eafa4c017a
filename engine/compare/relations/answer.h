// A candidate of expose.h as an answer for people: the place in the comparison, what agrees before
// it, what is wrong with it and what to look at next.
#pragma once

#include "engine/compare/relations/expose.h"

namespace msprobe::compare::relations {

// The rows of the comparison must have their verdicts, and its calls their classes.
// `without_effect`: no result of the step shows it (Exposure::without_effect).
FirstDivergence AnswerOf(const Comparison& comparison, const Relations& relations,
                         const Candidate& candidate, bool without_effect);

}  // namespace msprobe::compare::relations
