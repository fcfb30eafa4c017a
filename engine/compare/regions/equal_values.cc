#include "engine/compare/regions/equal_values.h"

#include <algorithm>
#include <cmath>

#include "engine/base/threads.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/rounding.h"

namespace msprobe::compare {
namespace {

// A candidate's norm is looked for within this relative distance: more than any rounding that is
// explained for float16, bfloat16 apart. Looser limits of the user look further.
constexpr double kNear = 0x1p-5;
constexpr int kMostCandidates = 64;  // that are judged for one value; bounds the time

}  // namespace

EqualValues::EqualValues(const Comparison& c, const std::vector<char>& candidates)
    : c_(c), content_(ContentOf(c)) {
  ThreadPool::Default().ParallelFor(2, [&](size_t side) { Collect(side == 0, candidates); });
}

void EqualValues::Collect(bool target, const std::vector<char>& candidates) {
  const int side = target ? 0 : 1;
  const Dump& dump = target ? c_.target : c_.golden;
  for (ContentSet* set : {&equal_[side], &agreeing_[side], &made_[side]})
    *set = ContentSet(*content_);
  for (size_t p = 0; p < c_.pairs.size(); ++p) {
    const RecordPair& pair = c_.pairs[p];
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const RowVerdict verdict = c_.measures[i].verdict;
      const int32_t index = target ? c_.rows[i].target : c_.rows[i].golden;
      const int32_t content = index < 0 ? -1 : content_->Of(target, index);
      if (content < 0) continue;
      if (verdict == RowVerdict::kEqual) equal_[side].Insert(content);
      if (verdict == RowVerdict::kEqual || verdict == RowVerdict::kNoise)
        agreeing_[side].Insert(content);
      if (!candidates[p] || content_->ResultOf(target, index) < 0) continue;
      made_[side].Insert(content);
      const Leaf& leaf = dump.leaves[index];
      if (leaf.has_stats && std::isfinite(leaf.norm_value))
        candidates_[side].push_back(
            {static_cast<double>(leaf.shape.elements()), leaf.norm_value, &leaf});
    }
  }
  std::sort(candidates_[side].begin(), candidates_[side].end());
  near_[side].assign(dump.leaves.size(), Answer::kNotAsked);
}

bool EqualValues::Agree(const Leaf& target, const Leaf& golden) const {
  if (RoundingOf(target.dtype).kind != RoundingOf(golden.dtype).kind) return false;
  Leaf reshaped = target;
  reshaped.shape = golden.shape;
  reshaped.fingerprint = reshaped.checksum = TextRef();
  const Record &t = c_.target.records[target.record], &g = c_.golden.records[golden.record];
  const JudgeOptions options{
      .limits = Limits(c_, g.api),
      .terms = std::max(SummedTerms(c_.target, t), SummedTerms(c_.golden, g)),
      .magnitude =
          std::max(SummedMagnitude(c_.target, t, target), SummedMagnitude(c_.golden, g, golden))};
  Measure m;
  JudgeLeaves(reshaped, golden, Mode::kStatistics, options, &m);
  return m.verdict == RowVerdict::kEqual || m.verdict == RowVerdict::kNoise;
}

bool EqualValues::IsOnBothSides(const Leaf& leaf, bool target, bool bits) const {
  const bool agrees = (bits ? equal_ : agreeing_)[target ? 0 : 1].Has(content_->Of(target, leaf));
  return agrees || HasCounterpart(leaf, target, bits);
}

bool EqualValues::HasCounterpart(const Leaf& leaf, bool target, bool bits) const {
  const int32_t content = content_->Of(target, leaf);
  if (content < 0) return false;
  if (made_[target ? 1 : 0].Has(content)) return true;
  // Zeros, ones and masks are in every run: they tell nothing.
  const bool tells = leaf.has_stats && std::isfinite(leaf.norm_value) &&
                     (leaf.shape.elements() == 1 || leaf.max_value != leaf.min_value);
  if (bits || !tells || !c_.exact.empty()) return false;
  Answer& answer = near_[target ? 0 : 1][content_->IndexOf(target, leaf)];
  if (answer == Answer::kNotAsked)
    answer = HasNearCandidate(leaf, target) ? Answer::kYes : Answer::kNo;
  return answer == Answer::kYes;
}

bool EqualValues::HasNearCandidate(const Leaf& leaf, bool target) const {
  const double elements = static_cast<double>(leaf.shape.elements()), norm = leaf.norm_value;
  const auto& list = candidates_[target ? 1 : 0];
  const Record& made = (target ? c_.target : c_.golden).records[leaf.record];
  const double scale = Limits(c_, made.api).Scale(RoundingOf(leaf.dtype));
  const auto near = [&](double a, double b, double size) {
    // True of NaN, which only JudgeLeaves understands.
    return !(std::abs(a - b) > kNear * std::max(scale, 1.0) * size);
  };
  const auto is_candidate = [&](auto at) {
    return at->elements == elements && near(at->norm, norm, std::abs(norm));
  };
  const auto agrees = [&](const Leaf& other) {
    const double size = std::max({std::abs(leaf.max_value), std::abs(leaf.min_value),
                                  std::abs(other.max_value), std::abs(other.min_value)});
    if (!near(leaf.max_value, other.max_value, size) ||
        !near(leaf.min_value, other.min_value, size))
      return false;
    return target ? Agree(leaf, other) : Agree(other, leaf);
  };
  // From the nearest norm outwards.
  auto up = std::lower_bound(list.begin(), list.end(), Candidate{elements, norm, nullptr});
  auto down = up;
  for (int looks = 0; looks < kMostCandidates; ++looks) {
    const bool above = up != list.end() && is_candidate(up);
    const bool below = down != list.begin() && is_candidate(down - 1);
    if (!above && !below) return false;
    const bool take_above = above && (!below || up->norm - norm <= norm - (down - 1)->norm);
    const Candidate& candidate = take_above ? *up++ : *--down;
    if (agrees(*candidate.leaf)) return true;
  }
  return false;
}

}  // namespace msprobe::compare
