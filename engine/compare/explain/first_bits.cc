#include "engine/compare/explain/first_bits.h"

#include <fmt/format.h>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/source_places.h"

namespace msprobe::compare {
namespace {

bool OtherBits(const Measure& m) {
  return m.verdict == RowVerdict::kNoise || m.verdict == RowVerdict::kDiffers;
}

// The first row of a pair with other bits, a result if there is one; -1: there is none.
int32_t FirstRow(const Comparison& c, const RecordPair& pair) {
  int32_t first = -1;
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const Row& row = c.rows[i];
    if (row.target < 0 || row.golden < 0 || !OtherBits(c.measures[i])) continue;
    if (c.target.leaves[row.target].slot == Slot::kOutput) return static_cast<int32_t>(i);
    if (first < 0) first = static_cast<int32_t>(i);
  }
  return first;
}

}  // namespace

void FindFirstBits(Comparison* c) {
  for (size_t p = 0; p < c->pairs.size(); ++p) {
    const int32_t row = FirstRow(*c, c->pairs[p]);
    if (row < 0) continue;
    c->first_bits = {.pair = static_cast<int32_t>(p),
                     .row = row,
                     .source_line = SourceLineOf(*c, static_cast<int32_t>(p))};
    break;
  }
  if (c->first_bits.pair < 0) return;
  for (int32_t p = c->first_bits.pair + 1; p < c->first.pair; ++p)
    c->first_bits.noise_between += c->classes[p] == CallClass::kNoise;
}

Message DescribeFirstBits(const Comparison& c) {
  const FirstBits& f = c.first_bits;
  if (f.pair < 0 || (c.first.pair >= 0 && f.pair >= c.first.pair)) return {};
  const bool bits = EqualWord(c) == "bit-equal";
  std::vector<Message> parts = {
      (bits ? "first different bits: {}: {}"_t : "first different numbers: {}: {}"_t)(
          EntryName(c, f.pair), DescribeRow(c, f.row)),
      f.source_line};
  if (c.first.pair >= 0 && f.noise_between > 0) {
    parts.push_back(f.noise_between == 1
                        ? "1 call is within rounding between it and the first divergence"_t
                        : "{} calls are within rounding between it and the first divergence"_t(
                              f.noise_between));
  }
  return Message::Joined(std::move(parts), "; ");
}

}  // namespace msprobe::compare
