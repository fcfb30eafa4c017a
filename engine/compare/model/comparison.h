// The comparison of two dumps, as data: read -> align -> measure -> judge -> report. Every report
// (csv, xlsx, json, terminal) is made from this and computes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/compare/model/thresholds.h"
#include "engine/kernels/diff.h"
#include "engine/model/table.h"

namespace msprobe::compare {

enum class Mode : uint8_t { kStatistics, kMd5, kTensor };

// How a row found its partner.
enum class Match : uint8_t { kExact, kAligned, kTargetOnly, kGoldenOnly };

// One row of the result: a leaf of the target, of the golden, or both.
struct Row {
  int32_t target = -1, golden = -1;  // index into Dump::leaves
  Match match = Match::kExact;
  float confidence = 1;  // of the pair, 0 to 1; 1 for equal names
};

// One call on both sides, in execution order: the unit of the first-divergence search. Rows are
// contiguous.
struct RecordPair {
  int32_t target = -1, golden = -1;  // index into Dump::records
  Match match = Match::kExact;
  float confidence = 1;
  uint32_t first_row = 0, row_count = 0;
  bool matched() const { return target >= 0 && golden >= 0; }
};

// Verdict of one row. Unknown is not a pass.
enum class RowVerdict : uint8_t {
  kEqual,  // bit-equal: same fingerprint, checksum, elements, or every recorded statistic identical
  kNoise,  // differs by no more than rounding explains for the dtype
  kDiffers,
  kUnknown,  // no partner, no data, not comparable: `reason` of the row's note says why
};

// Why a row has the verdict it has, where the numbers alone do not say it. ReasonText() in judge.h
// has the sentences.
enum class Reason : uint8_t {
  kNone,
  kNoPartner,        // unknown: recorded on one side only
  kNothingRecorded,  // unknown: null on both sides (an absent bias, an object the tool does not
                     // record); not counted against a run
  kEmpty,            // equal: no elements on either side
  kNoCommonNumber,   // unknown: no statistic, checksum or file that both sides have
  kBothNaN,          // unknown: NaN on both sides says nothing of the elements
  kUninitialised,    // unknown: the call returns memory nobody wrote (empty, empty_like, ...); not
                     // counted against a run
  kNoFile,           // unknown: the tensor file is missing; the note names it
  kBadFile,          // unknown: the tensor file cannot be read; the note says why
  kKindDiffers,      // differs: a tensor against a scalar, a float against an integer
  kShapeDiffers,     // differs: other than by dimensions of extent 1
  kValueDiffers,     // differs: plain values (int, str, ...) that are not the same
  kNonFinite,        // differs: NaN or infinity on one side only, or infinities of opposite sign
  kChecksumDiffers,  // differs: checksums say no more than that
  kOtherBits,        // noise: the same statistics, yet other bits: rounded or reordered elements
  kCoarserBefore,  // noise, differs: judged by a coarser float, which a call before it computed in
                   // on one side
  kOtherElements,  // differs: the same, of integers that rounding cannot have made
  kEnlarged,       // noise: rounding of its inputs, which the operation enlarges by its nature
  kDTypeDiffers,   // any verdict: judged by the coarser of two float dtypes; unknown for two dtype
                   // arguments, as mixed precision has
  kGradientOrder,  // unknown: gradients of an API's inputs, which the two tools list in different
                   // orders; not counted against a run
  kPacked,         // unknown: an element is two values (float4_e2m1fn_x2) on one side only
  kDevice,         // unknown: devices, which differ on purpose; not counted against a run
};

// What the measuring step leaves for one row. Numbers are NaN where they do not apply. How far its
// statistics are apart is DifferencesOf (judge.h).
struct Measure {
  int32_t tensor = -1;  // index into Comparison::diffs for tensor mode, -1: not computed
  RowVerdict verdict = RowVerdict::kUnknown;
  Reason reason = Reason::kNone;
  // Worst relative disagreement of the row, in units of its dtype's rounding (1 = one rounding of
  // the dtype's epsilon); inf for a NaN or infinity on one side only. The scale that `noise` and
  // `differs` are told apart on.
  double severity = kernels::Diff::kNaN;
};

// Class of one call.
enum class CallClass : uint8_t {
  kEqual,       // everything recorded is bit-equal
  kNoise,       // within rounding
  kIntroduced,  // inputs agree (equal or noise), an output does not: the error begins here
  kInherited,   // an input differs already
  kUnknown,     // not enough is known: missing partner, missing inputs
};

struct FirstDivergence {
  int32_t pair = -1;  // index into Comparison::pairs; -1: none found
  int32_t row =
      -1;  // its worst row (index into Comparison::rows); -1: the call as a whole (no partner)
  CallClass call_class = CallClass::kUnknown;
  double confidence = 0;    // 0 to 1
  std::string source_line;  // "train.py:41 in forward: y = F.gelu(x)"; the user's own frame when
                            // there is one
  std::string why;          // one sentence: what agreed before, how wrong it is
  std::string advice;       // what to look at next; "" when there is nothing to add
};

// What the two runs began from, as sentences without an end stop; "" where the dumps do not tell.
struct RunStart {
  std::string weights;   // "the same weights (148)"
  std::string data;      // "the same data (3 tensors)"
  std::string settings;  // what differs: "torch is 2.13.0 in the target, 2.12.0 in the golden"
};

struct Comparison {
  const ThresholdTable& Thresholds() const {
    return thresholds ? *thresholds : ThresholdTable::Shipped();
  }
  // The metrics of a row whose tensors were compared element by element; null for other rows.
  const kernels::Diff* DiffOf(size_t row) const {
    const int32_t index = measures[row].tensor;
    return index >= 0 ? &diffs[index] : nullptr;
  }
  Dump target, golden;
  Mode mode = Mode::kStatistics;
  double tolerance = 1;  // of CompareOptions, which the verdicts were made with
  std::shared_ptr<const ThresholdTable> thresholds;  // null: the shipped ones
  std::vector<RecordPair> pairs;     // in execution order of the target; golden-only pairs at their
                                     // place in the golden order
  std::vector<Row> rows;             // grouped by pair
  std::vector<Measure> measures;     // one a row
  std::vector<kernels::Diff> diffs;  // tensor mode
  // Where one side computes in a coarser float dtype: its first row, and the coarsest such dtype,
  // which floats from there on are judged by.
  uint32_t coarse_row = UINT32_MAX;
  std::string_view coarse_dtype;
  std::vector<std::string>
      notes;  // one a row when not empty(): unreadable file, ... (Measure::reason says the rest)
  std::vector<CallClass> classes;  // one a pair
  // The pair of the forward call that a backward record belongs to, one a pair; -1: none recorded,
  // or not a backward record.
  std::vector<int32_t> forward_of;
  RunStart run_start;
  FirstDivergence first;
  std::vector<FirstDivergence> runners_up;
  std::vector<std::string>
      not_observed;  // sentences: killed run, missing stack.json, records without partner, ...
};

}  // namespace msprobe::compare
