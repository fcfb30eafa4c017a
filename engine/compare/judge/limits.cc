#include "engine/compare/judge/limits.h"

namespace msprobe::compare {

Rounding RoundingOfRow(const Comparison& c, int32_t row) {
  const Leaf &t = c.target.leaves[c.rows[row].target], &g = c.golden.leaves[c.rows[row].golden];
  const ElementType before = c.NoiseDTypeOf(row);
  return JudgedType(t.dtype, g.dtype, before) == before ? RoundingOf(before)
                                                        : CoarserRounding(t.dtype, g.dtype);
}

}  // namespace msprobe::compare
