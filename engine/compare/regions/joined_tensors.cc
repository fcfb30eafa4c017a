#include "engine/compare/regions/joined_tensors.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/operations.h"

namespace msprobe::compare {
namespace {

// The parts put together. `text`: stands for the digits of the numbers, which no dump has.
Leaf Joined(const Parts& parts, std::string_view text, ElementCounts* counts) {
  Leaf whole = *parts.front();
  whole.fingerprint = whole.checksum = TextRef();
  if (parts.size() == 1) return whole;
  whole.max = whole.min = whole.mean = whole.norm = text;
  double elements = 0, sum = 0, squares = 0;
  counts->nan = counts->pos_inf = counts->neg_inf = counts->zero = 0;
  for (const Leaf* part : parts) {
    const auto n = static_cast<double>(part->shape.elements());
    elements += n;
    sum += n * part->mean_value;
    squares += part->norm_value * part->norm_value;
    whole.max_value = std::max(whole.max_value, part->max_value);
    whole.min_value = std::min(whole.min_value, part->min_value);
    const auto add = [](int64_t more, int64_t* all) {
      *all = more < 0 || *all < 0 ? -1 : *all + more;
    };
    add(part->counts->nan, &counts->nan), add(part->counts->zero, &counts->zero);
    add(part->counts->pos_inf, &counts->pos_inf), add(part->counts->neg_inf, &counts->neg_inf);
  }
  whole.mean_value = sum / elements;
  whole.norm_value = std::sqrt(squares);
  whole.counts = counts;
  return whole;
}

}  // namespace

bool AgreeJoined(const Comparison& c, const Parts& target, const Parts& golden) {
  const Leaf &t = *target.front(), &g = *golden.front();
  const bool joins = target.size() > 1 || golden.size() > 1;
  ElementCounts counts[2];
  Leaf whole = joins ? Joined(target, "joined in the target", &counts[0]) : t;
  const Leaf golden_whole = joins ? Joined(golden, "joined in the golden", &counts[1]) : g;
  whole.shape = golden_whole.shape;
  const Record &of_t = c.target.records[t.record], &of_g = c.golden.records[g.record];
  const JudgeOptions options{
      .limits = Limits(c, of_g.api),
      .terms = std::max(SummedTerms(c.target, of_t), SummedTerms(c.golden, of_g)),
      .magnitude =
          std::max(SummedMagnitude(c.target, of_t, t), SummedMagnitude(c.golden, of_g, g))};
  Measure m;
  JudgeLeaves(whole, golden_whole, Mode::kStatistics, options, &m);
  return m.verdict == RowVerdict::kEqual || m.verdict == RowVerdict::kNoise;
}

}  // namespace msprobe::compare
