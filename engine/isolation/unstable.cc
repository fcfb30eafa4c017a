#include "engine/isolation/unstable.h"

#include <fmt/format.h>

#include <cstdlib>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/source_places.h"
#include "engine/compare/judge/operations.h"

namespace msprobe::isolation {
namespace {

using compare::Comparison;
using compare::RecordPair;
using compare::RowVerdict;
using Cause = Unstable::Cause;

bool RowDiffers(const Comparison& c, uint32_t row) {
  const RowVerdict verdict = c.measures[row].verdict;
  return verdict == RowVerdict::kDiffers || verdict == RowVerdict::kNoise;
}

// Whether the call draws random numbers: by its name, or because an argument asks for dropout.
bool Draws(const Comparison& c, const Record& record) {
  if (compare::DrawsRandomNumbers(record.api.view())) return true;
  for (const Leaf& leaf : c.target.LeavesOf(record)) {
    const bool asks = leaf.slot != Slot::kOutput && leaf.kind == LeafKind::kScalar &&
                      leaf.name.view().find("dropout") != std::string_view::npos;
    if (asks && std::strtod(std::string(leaf.value.view()).c_str(), nullptr) > 0) return true;
  }
  return false;
}

bool HasNoBits(const Leaf& leaf) {
  return leaf.kind == LeafKind::kTensor && leaf.has_stats && leaf.fingerprint.empty() &&
         leaf.checksum.empty() && leaf.data_name.empty() && leaf.shape.elements() > 0;
}

bool HasNoBits(const Comparison& c, uint32_t row) {
  const compare::Row& r = c.rows[row];
  return r.target >= 0 && r.golden >= 0 &&
         (HasNoBits(c.target.leaves[r.target]) || HasNoBits(c.golden.leaves[r.golden]));
}

// Whether the bits of some input of a call are not known.
bool HasInputWithoutBits(const Comparison& c, const RecordPair& pair) {
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    if (HasNoBits(c, i) && c.target.leaves[c.rows[i].target].slot != Slot::kOutput) return true;
  }
  return false;
}

// The first rows of a call that differ: of what goes in, of the plain values, of what comes out.
struct FirstRows {
  int32_t tensor = -1, plain = -1, output = -1;
};
FirstRows RowsOf(const Comparison& c, const RecordPair& pair) {
  FirstRows rows;
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    const int32_t leaf = c.rows[i].target;
    if (leaf < 0 || !RowDiffers(c, i)) continue;
    const Leaf& l = c.target.leaves[leaf];
    const bool out = l.slot == Slot::kOutput || l.slot == Slot::kParameterGrad;
    int32_t& first = out ? rows.output : l.kind == LeafKind::kTensor ? rows.tensor : rows.plain;
    if (first < 0) first = static_cast<int32_t>(i);
  }
  return rows;
}

void Explain(const Comparison& c, Unstable* u) {
  const bool is_module = compare::RecordOf(c, u->pair).is_module;
  switch (u->cause) {
    case Cause::kOperation:
      u->why = HasInputWithoutBits(c, c.pairs[u->pair])
                   ? "its inputs have equal statistics (their bits were not recorded) "
                     "and its result differs: {}"_t(compare::DescribeRow(c, u->row))
                   : "its inputs are bit-equal and its result is not: {}"_t(
                         compare::DescribeRow(c, u->row));
      u->advice = is_module
                      ? "no recorded call inside this module differs: an operation that the "
                        "tool does not record does; custom_op_namespaces records more"_t
                      : "torch.use_deterministic_algorithms(True) refuses operations that do "
                        "not repeat; msprobe.pytorch.seed_all(mode=True) does that and seeds"_t;
      return;
    case Cause::kRandomNumbers:
      u->why = "it draws random numbers, and its generator is in another state in each run: {}"_t(
          compare::DescribeRow(c, u->row));
      u->advice = "msprobe.pytorch.seed_all() at the top of the script seeds every generator"_t;
      return;
    case Cause::kOutside:
      u->why = "{} comes from outside of the recorded calls and differs: {}"_t(
          compare::LeafLabel(c, u->row), compare::DescribeRow(c, u->row));
      u->advice =
          "look at where the program makes it: the order of the data, workers of a DataLoader, "
          "numbers of another generator, initial weights, the environment"_t;
      return;
    case Cause::kArgument:
      u->why = "the program passes another value: {}"_t(compare::DescribeRow(c, u->row));
      u->advice =
          "look at what computes this argument: random, time, hash order, the environment"_t;
      return;
    case Cause::kCalls:
      u->why =
          "only the {} run makes this call"_t(c.pairs[u->pair].target >= 0 ? "later"_t : "first"_t);
      u->advice = "the program branches by something that is not the same in each run"_t;
      return;
  }
}

}  // namespace

Message CauseName(Cause cause) {
  const Message names[] = {"operation"_t, "random numbers"_t, "outside"_t, "argument"_t, "calls"_t};
  return names[static_cast<size_t>(cause)];
}

std::optional<Unstable> FirstUnstable(const Comparison& c) {
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    const RecordPair& pair = c.pairs[p];
    Unstable u{.pair = static_cast<int32_t>(p)};
    if (!pair.matched()) {
      u.cause = Cause::kCalls;
    } else {
      const FirstRows rows = RowsOf(c, pair);
      // No call before this one differs, so no recorded call made an input that does.
      u.row = rows.tensor >= 0 ? rows.tensor : rows.plain >= 0 ? rows.plain : rows.output;
      if (u.row < 0) continue;
      u.cause = rows.tensor >= 0                          ? Cause::kOutside
                : rows.plain >= 0                         ? Cause::kArgument
                : Draws(c, c.target.records[pair.target]) ? Cause::kRandomNumbers
                                                          : Cause::kOperation;
    }
    u.name = compare::EntryName(c, u.pair);
    u.module = compare::ModuleAround(c, u.pair);
    dump::SourcePlace place = compare::SourcePlaceOf(c, u.pair);
    u.source_line = std::move(place.line);
    u.caller_line = std::move(place.caller);
    Explain(c, &u);
    return u;
  }
  return std::nullopt;
}

int64_t CountWithoutBits(const Comparison& c) {
  int64_t count = 0;
  for (uint32_t i = 0; i < c.rows.size(); ++i) count += HasNoBits(c, i);
  return count;
}

}  // namespace msprobe::isolation
