#include "cli/outputs/why_flag.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/compare/explain/evidence.h"
#include "engine/isolation/error_chain.h"

namespace msprobe::cli {
namespace {

constexpr size_t kMostValues = 100;  // that are told; the nearest to the call

// The pair whose call takes or makes the value of this name; -1: there is none.
int32_t PairOfValue(const compare::Comparison& c, std::string_view value) {
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    if (c.pairs[p].target < 0) continue;
    const auto leaves = c.target.LeavesOf(c.target.records[c.pairs[p].target]);
    const bool has = std::ranges::any_of(
        leaves, [&](const Leaf& leaf) { return std::string(leaf.name) == value; });
    if (has) return static_cast<int32_t>(p);
  }
  return -1;
}

}  // namespace

void WhyFlag::Add(Flags& flags) {
  flags
      .Text(
          "--why", &call_,
          "also show how the values of this call, and those that they were made of, are known to "
          "be the golden's, or that they are not: a name, a part of one, model.py:41, loss, or the "
          "whole name of one value"_t)
      .TypeName("CALL");
}

void WhyFlag::Look(size_t pair, const compare::Comparison& comparison) {
  if (!given()) return;
  Found found;
  const Result<int32_t> call = isolation::FindCall(comparison, call_);
  const int32_t pair_of_value = call.ok() ? -1 : PairOfValue(comparison, call_);
  if (call.ok()) {
    found = {.name = std::string(compare::EntryName(comparison, *call)),
             .chain = compare::ChainOf(comparison, *call, kMostValues)};
  } else if (pair_of_value >= 0) {
    found = {.name = call_,
             .chain = compare::ChainOf(comparison, pair_of_value, kMostValues, call_)};
  } else {
    found.status = call.status();
  }
  found.refusal = compare::RefusalOf(comparison);
  const std::lock_guard<std::mutex> lock(mutex_);
  found_[pair] = std::move(found);
}

void WhyFlag::PrintLine(const compare::ProofLine& line, Console& out) {
  constexpr int kDeepest = 12;  // what is farther away is not indented more
  const std::string indent(static_cast<size_t>(2 + 2 * std::min(line.depth, kDeepest)), ' ');
  out.Tell("{}{}"_t(indent, line.text));
  if (!line.exposed) return;
  out.Tell("{}  {}"_t(indent, "a result of the step is made of it, with nothing right between"_t));
}

Status WhyFlag::Print(Console& out) {
  if (!given() || found_.empty()) return Status::Ok();
  auto best = std::find_if(found_.begin(), found_.end(),
                           [](const auto& item) { return item.second.chain.exposed; });
  if (best == found_.end()) {
    best = std::find_if(found_.begin(), found_.end(),
                        [](const auto& item) { return item.second.status.ok(); });
  }
  if (best == found_.end()) return found_.begin()->second.status;
  const Found& found = best->second;
  out.Write("\n");
  out.Tell("WHY {}"_t(found.name));
  if (found.chain.lines.empty()) out.Tell("  {}"_t("the target has no values of this call"_t));
  for (const compare::ProofLine& line : found.chain.lines) PrintLine(line, out);
  if (found.chain.more)
    out.Tell("  {}"_t("... the first {} values; ask for one of them to see more"_t(kMostValues)));
  // What is printed may still help; that a proof is a mistake of this program is not hidden.
  for (const auto& [pair, each] : found_) {
    if (!each.refusal.empty()) return Internal(each.refusal);
  }
  return Status::Ok();
}

}  // namespace msprobe::cli
