#include "engine/compare/divergence.h"

#include "engine/compare/source_line.h"

namespace msprobe {

void FindFirstDivergence(Comparison* comparison) {
  Comparison& c = *comparison;
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    if (c.classes[p] == CallClass::kIntroduced) {
      c.first.pair = static_cast<int32_t>(p);
      c.first.call_class = c.classes[p];
      return;
    }
  }
}

}  // namespace msprobe
