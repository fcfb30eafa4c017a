#include "engine/compare/ranks/rank_findings.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_set>

#include "engine/base/messages/message.h"

namespace msprobe::compare {
namespace {

void Add(const Summary& more, Summary* all) {
  for (size_t i = 0; i < more.rows.size(); ++i) all->rows[i] += more.rows[i];
  for (size_t i = 0; i < more.calls.size(); ++i) all->calls[i] += more.calls[i];
  for (int64_t Summary::*count :
       {&Summary::neutral_rows, &Summary::other_forms, &Summary::target_only_rows,
        &Summary::golden_only_rows, &Summary::target_only_calls, &Summary::golden_only_calls,
        &Summary::compiled_calls, &Summary::aligned_calls, &Summary::compared,
        &Summary::target_values, &Summary::golden_values, &Summary::unreadable_rows,
        &Summary::calls_compared_nowhere, &Summary::without_effect, &Summary::too_wide})
    all->*count += more.*count;
}

template <typename T>
void Keep(const T& more, T* first) {
  if (first->empty()) *first = more;
}

// `said`: the sentences in not_observed.
void Add(const Findings& more, std::unordered_set<std::string>* said, Findings* all) {
  Add(more.summary, &all->summary);
  for (Findings::Side Findings::*member : {&Findings::target_side, &Findings::golden_side}) {
    Findings::Side& side = all->*member;
    side.calls += (more.*member).calls;
    side.values += (more.*member).values;
    side.complete = side.complete && (more.*member).complete;
    Keep((more.*member).only_here, &side.only_here);
  }
  if (more.largest_noise > all->largest_noise) {
    all->largest_noise = more.largest_noise;
    all->why_largest_noise = more.why_largest_noise;
  }
  Keep(more.first_bits, &all->first_bits);
  if (more.exact != all->exact) all->exact = {};  // bits do not decide in all of them
  Keep(more.other_arguments, &all->other_arguments);
  Keep(more.unmatched_calls, &all->unmatched_calls);
  Keep(more.compared_nowhere, &all->compared_nowhere);
  if (all->others.empty()) all->others = more.others, all->more_others = more.more_others;
  for (const Message& sentence : more.not_observed) {
    if (said->insert(sentence.English()).second) all->not_observed.push_back(sentence);
  }
}

Findings Sum(std::span<const RankResult> results) {
  Findings all;
  std::unordered_set<std::string> said;
  bool any = false, judged = false;
  for (const RankResult& r : results) {
    if (!r.failed.ok()) continue;
    if (any) {
      Add(r, &said, &all);
    } else {
      all = r;
      for (const Message& sentence : r.not_observed) said.insert(sentence.English());
    }
    any = true;
    judged = judged || r.not_judged.empty();
  }
  if (judged) all.not_judged = {};
  all.summary.verdict = VerdictOver(results);
  return all;
}

}  // namespace

Findings FindingsOfRanks(std::span<const RankResult> results, const RankResult* first) {
  Findings found = first != nullptr ? static_cast<const Findings&>(*first) : Sum(results);
  const auto begin = std::find_if(results.begin(), results.end(), [&](const RankResult& r) {
    return !r.began.weights.empty() && (first == nullptr || r.rank == first->rank);
  });
  if (begin != results.end()) found.began.weights = begin->began.weights;
  return found;
}

}  // namespace msprobe::compare
