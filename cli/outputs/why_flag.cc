#include "cli/outputs/why_flag.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <unordered_set>

#include "engine/compare/explain/evidence.h"
#include "engine/isolation/error_chain.h"

namespace msprobe::cli {
namespace {

using compare::relations::Proof;
using compare::relations::Strength;
using compare::relations::ValueProof;

constexpr int kDeepest = 3;         // premises of premises
constexpr size_t kMostValues = 60;  // that are told; the nearest to the call

// The constructor, as the end of a sentence.
const char* Because(Proof proof) {
  switch (proof) {
    case Proof::kSameNumbers:
      return "the golden has the same statistics there";
    case Proof::kNearNumbers:
      return "the golden has nearly the same statistics there";
    case Proof::kMask:
      return "it is the same mask in another coding";
    case Proof::kPartOfBatch:
      return "together with other parts it is what the golden has";
    case Proof::kPieceOfWeight:
      return "together with other pieces it is what the golden has";
    case Proof::kTransposed:
      return "the golden holds it transposed";
    case Proof::kIndex:
      return "what is taken with it has the rows in that order";
    case Proof::kBeganSo:
      return "the step began with it";
    case Proof::kLeftSo:
      return "the step before left it so";
    case Proof::kMovedAlike:
      return "both runs moved it alike between the steps";
    case Proof::kRepeats:
      return "repeats of the golden are as far from it";
    default:
      return "they stand at the same place";
  }
}

}  // namespace

void WhyFlag::Add(Flags& flags) {
  flags
      .Text("--why", &call_,
            "also show how the values of this call, and those that they were made of, are known to "
            "be the golden's, or that they are not: a name, a part of one, model.py:41, or loss")
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
  const std::lock_guard<std::mutex> lock(mutex_);
  found_[pair] = std::move(found);
}

WhyFlag::Found WhyFlag::ProofOf(const compare::Comparison& c, int32_t pair) {
  Found found{.name = std::string(compare::EntryName(c, pair))};
  const compare::relations::Proofs& proofs = *c.decided->proofs;
  if (c.pairs[pair].target < 0) return found;
  std::unordered_set<int32_t> told;
  const std::function<void(int32_t, int)> tell = [&](int32_t value, int depth) {
    if (value < 0 || depth > kDeepest || found.lines.size() >= kMostValues ||
        !told.insert(value).second)
      return;
    const ValueProof& proof = proofs.values[value];
    const auto name = [](const Dump& dump, int32_t leaf) {
      return leaf < 0 ? std::string() : std::string(dump.leaves[leaf].name);
    };
    found.exposed |= proof.exposed;
    found.lines.push_back({.depth = depth,
                           .target = name(c.target, proof.target_leaf),
                           .golden = name(c.golden, proof.golden_leaf),
                           .proof = proof});
    if (proof.strength == Strength::kEqual) return;  // bits need no premises
    for (const int32_t premise : proof.premises) tell(premise, depth + 1);
  };
  const Record& record = c.target.records[c.pairs[pair].target];
  for (uint32_t i = record.first_leaf; i < record.first_leaf + record.leaf_count; ++i)
    tell(proofs.of_leaf[i], 0);
  return found;
}

void WhyFlag::PrintLine(const Line& line, Console& out) {
  const ValueProof& proof = line.proof;
  const std::string indent(static_cast<size_t>(2 + 2 * line.depth), ' ');
  const std::string target = MakePrintable(line.target);
  const std::string golden =
      line.golden == line.target ? "the golden's" : MakePrintable(line.golden);
  const std::string times = fmt::format("{:.4g}", proof.factor);
  out.Print("{}", indent);
  const std::string off = fmt::format("{:.2g}", proof.error),
                    most = fmt::format("{:.2g}", proof.bound);
  if (proof.proof == Proof::kConstant || proof.proof == Proof::kNotRecorded) {
    if (proof.strength != Strength::kNone)
      out.Tell("{} is a constant, or has no numbers: nothing says that it is another one\n",
               target);
    else
      out.Tell("{} is another constant than the golden has at its place\n", target);
  } else if (proof.strength == Strength::kEqual) {
    out.Tell("{} is {}, bit for bit\n", target, golden);
  } else if (proof.strength == Strength::kNear && golden.empty()) {
    out.Tell("{} is off by {} where rounding explains {}: {}\n", target, off, most,
             Because(proof.proof));
  } else if (proof.strength == Strength::kNear) {
    out.Tell("{} is {}, off by {} where rounding explains {}: {}\n", target, golden, off, most,
             Because(proof.proof));
  } else if (proof.strength == Strength::kSame) {
    out.Tell("{} has the elements of {} in another order: {}\n", target, golden,
             Because(proof.proof));
  } else if (golden.empty()) {
    out.Tell("{} is nothing that the golden has\n", target);
  } else if (proof.factor != 0) {
    out.Tell("{}: {} times {}\n", target, times, golden);
  } else {
    out.Tell("{} is not {}: off by {} where rounding explains {}\n", target, golden, off, most);
  }
  if (!proof.exposed) return;
  out.Print("{}  ", indent);
  out.Tell("a result of the step is made of it, with nothing right between\n");
}

Status WhyFlag::Print(Console& out) {
  if (!given() || found_.empty()) return Status::Ok();
  auto best = std::find_if(found_.begin(), found_.end(),
                           [](const auto& item) { return item.second.exposed; });
  if (best == found_.end()) {
    best = std::find_if(found_.begin(), found_.end(),
                        [](const auto& item) { return item.second.status.ok(); });
  }
  if (best == found_.end()) return found_.begin()->second.status;
  const Found& found = best->second;
  out.Tell("\nWHY {}\n", MakePrintable(found.name));
  if (found.lines.empty()) out.Tell("  the target has no values of this call\n");
  for (const Line& line : found.lines) PrintLine(line, out);
  if (found.lines.size() >= kMostValues)
    out.Tell("  ... the first {} values; ask for one of them to see more\n", kMostValues);
  return Status::Ok();
}

}  // namespace msprobe::cli
