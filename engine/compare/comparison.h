// The comparison of two dumps, as data: read -> align -> measure -> judge -> report. Every report (csv, xlsx, json, terminal)
// is made from this and computes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/dump/table.h"
#include "engine/kernels/diff.h"

namespace msprobe {

enum class Mode : uint8_t { kStatistics, kMd5, kTensor };

// How a row found its partner.
enum class Match : uint8_t { kExact, kAligned, kTargetOnly, kGoldenOnly };

// One row of the result: a leaf of the target, of the golden, or both.
struct Row {
  int32_t target = -1, golden = -1;   // index into Dump::leaves
  Match match = Match::kExact;
  float confidence = 1;               // of the pair, 0 to 1; 1 for equal names
};

// One call on both sides, in execution order: the unit of the first-divergence search. Rows are contiguous.
struct RecordPair {
  int32_t target = -1, golden = -1;   // index into Dump::records
  Match match = Match::kExact;
  float confidence = 1;
  uint32_t first_row = 0, row_count = 0;
};

// Verdict of one row. Unknown is not a pass.
enum class RowVerdict : uint8_t {
  kEqual,      // bit-equal: same fingerprint, checksum, elements, or every recorded statistic identical
  kNoise,      // differs by no more than rounding explains for the dtype
  kDiffers,
  kUnknown,    // no partner, no data, not comparable: `reason` of the row's note says why
};

// What the measuring step leaves for one row. Numbers are NaN where they do not apply.
struct Measure {
  // statistics: target - golden, and |diff / golden| (not percent)
  double max_diff = Diff::kNaN, min_diff = Diff::kNaN, mean_diff = Diff::kNaN, norm_diff = Diff::kNaN;
  double max_rel = Diff::kNaN, min_rel = Diff::kNaN, mean_rel = Diff::kNaN, norm_rel = Diff::kNaN;
  int32_t tensor = -1;                // index into Comparison::diffs for tensor mode, -1: not computed
  RowVerdict verdict = RowVerdict::kUnknown;
  // Worst relative disagreement of the row, in units of its dtype's rounding (1 = one rounding of the dtype's epsilon); inf for
  // a NaN or infinity on one side only. The scale that `noise` and `differs` are told apart on.
  double severity = Diff::kNaN;
};

// Class of one call.
enum class CallClass : uint8_t {
  kEqual,        // everything recorded is bit-equal
  kNoise,        // within rounding
  kIntroduced,   // inputs agree (equal or noise), an output does not: the error begins here
  kInherited,    // an input differs already
  kUnknown,      // not enough is known: missing partner, missing inputs
};

struct FirstDivergence {
  int32_t pair = -1;                  // index into Comparison::pairs; -1: none found
  CallClass call_class = CallClass::kUnknown;
  double confidence = 0;              // 0 to 1
  std::string source_line;            // "train.py:41 in forward: y = F.gelu(x)"; the user's own frame when there is one
  std::string why;                    // one sentence: what agreed before, how wrong it is
};

struct Comparison {
  Dump target, golden;
  Mode mode = Mode::kStatistics;
  std::vector<RecordPair> pairs;      // in execution order of the target; golden-only pairs at their place in the golden order
  std::vector<Row> rows;              // grouped by pair
  std::vector<Measure> measures;      // one a row
  std::vector<Diff> diffs;            // tensor mode
  std::vector<std::string> notes;     // one a row when not empty(): why unknown, unreadable file, ...
  std::vector<CallClass> classes;     // one a pair
  FirstDivergence first;
  std::vector<FirstDivergence> runners_up;
  std::vector<std::string> not_observed;  // sentences: killed run, missing stack.json, records without partner, ...
};

}  // namespace msprobe
