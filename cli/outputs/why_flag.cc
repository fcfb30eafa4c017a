#include "cli/outputs/why_flag.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/compare/explain/evidence.h"
#include "engine/isolation/error_chain.h"

namespace msprobe::cli {
namespace {

constexpr size_t kMostValues = 100;  // that are told; the nearest to the call

}  // namespace

void WhyFlag::Add(Flags& flags) {
  flags
      .Text("--why", &call_,
            "also show how the values of this call, and those that they were made of, are known to "
            "be the golden's, or that they are not: a name, a part of one, model.py:41, or loss"_t)
      .TypeName("CALL");
}

void WhyFlag::Look(size_t pair, const compare::Comparison& comparison) {
  if (!given()) return;
  Found found;
  const Result<int32_t> call = isolation::FindCall(comparison, call_);
  if (!call.ok()) {
    found.status = call.status();
  } else {
    found = ProofOf(comparison, *call);
  }
  found.refusal = compare::RefusalOf(comparison);
  const std::lock_guard<std::mutex> lock(mutex_);
  found_[pair] = std::move(found);
}

WhyFlag::Found WhyFlag::ProofOf(const compare::Comparison& c, int32_t pair) {
  return {.name = std::string(compare::EntryName(c, pair)),
          .chain = compare::ChainOf(c, pair, kMostValues)};
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
