// The comparison of two dumps, as data: read -> align -> measure -> judge -> report. Every report
// (csv, xlsx, json, terminal) is made from this and computes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/model/content_ids.h"
#include "engine/compare/model/thresholds.h"
#include "engine/kernels/diff.h"
#include "engine/model/table.h"

namespace msprobe::compare {

namespace relations {
struct Proofs;
}

enum class Mode : uint8_t { kStatistics, kChecksum, kTensor };

// How the two sides of a row or of a call were paired: by equal names, or by what they look like;
// or the row has one side only.
enum class Match : uint8_t { kExact, kAligned, kTargetOnly, kGoldenOnly };

// One row of the result: a leaf of the target and its partner in the golden, or a leaf of one side
// without a partner.
struct Row {
  int32_t target = -1, golden = -1;  // index into Dump::leaves
  Match match = Match::kExact;
  float confidence = 1;  // of the pair, 0 to 1; 1 for equal names
  bool has_both() const { return target >= 0 && golden >= 0; }
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
  kUnknown,  // no partner, no data, not comparable: Measure::reason says why
};

// Why a row has its verdict, when the numbers alone do not say it. ReasonText() in judge.h has the
// sentences.
enum class Reason : uint8_t {
  kNone,
  kNoPartner,        // unknown: recorded on one side only
  kNothingRecorded,  // unknown: null on both sides (an absent bias, an object the tool does not
                     // record); not counted against a run
  kEmpty,            // equal: no elements on either side
  kNoCommonNumber,   // unknown: no statistic, checksum or file that both sides have
  kBothNaN,          // unknown: NaN on both sides says nothing of the elements
  kUninitialised,    // unknown: the call returns memory that is not written yet (empty, empty_like,
                     // ...); not counted against a run
  kOtherForm,        // unknown: passed in another form, and the results agree; not counted
  kOneFramework,     // unknown: only one of the two frameworks records it; not counted
  kOneRecorded,      // unknown: only one of the two recordings has what calls change in place; not
                     // counted
  kTransposed,       // any verdict: compared with the transpose of the golden's matrix
  kOverwritten,      // unknown: the old content of memory that the call overwrites; not counted
                     // against a run
  kNoFile,           // unknown: the tensor file is missing; the note names it
  kBadFile,          // unknown: the tensor file cannot be read; the note says why
  kKindDiffers,      // differs: a tensor against a scalar, a float against an integer
  kShapeDiffers,     // differs: shapes that are not equal without their dimensions of extent 1
  kValueDiffers,     // differs: plain values (int, str, ...) that are not the same
  kNonFinite,        // differs: NaN or infinity on one side only, or infinities of opposite sign
  kExtremes,         // differs: another number of extremes (kernels/rest_stats.h)
  kChecksumDiffers,  // differs: the checksums differ; nothing tells by how much
  kOtherBits,        // noise: equal statistics and different bits: rounded or reordered elements
  kCoarserBefore,    // noise, differs: judged by a coarser float dtype, in which values before it
                     // were computed
  kOtherElements,  // differs: equal statistics, different bits of integers (these are not rounded)
  kMoved,          // differs: other bits of a call that only moves the equal bits it was given
  kEnlarged,       // noise: the rounding of its inputs, which the operation enlarges by its nature
  kRewritten,      // unknown: of calls that differ in structure and compute the same; not counted
  kWithoutEffect,  // unknown: no result of the step depends on it; not counted
  kTooWide,        // unknown: rounding explains it, and would explain nearly anything; not counted
  kDTypeDiffers,   // any verdict: judged by the coarser of two float dtypes; unknown for arguments
                   // that are dtypes (a run in mixed precision passes others)
  kGradientOrder,  // unknown: gradients of an API's inputs, which the two tools list in different
                   // orders; not counted against a run
  kPacked,         // unknown: an element is two values (float4_e2m1fn_x2) on one side only
  kDevice,         // unknown: devices, which differ on purpose; not counted against a run
};

// The result of measuring and judging one row. DifferencesOf (judge.h) tells how far its statistics
// are apart.
struct Measure {
  int32_t tensor = -1;  // index into Comparison::diffs; -1: the elements were not compared
  RowVerdict verdict = RowVerdict::kUnknown;
  Reason reason = Reason::kNone;
  // The largest relative difference of the row, in roundings of its dtype (1: the dtype's epsilon).
  // A row is `noise` up to the number of roundings that are explained, beyond it `differs`. inf for
  // a NaN or an infinity on one side only; NaN when the row has no such number.
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
  // The worst row of the call, index into Comparison::rows; -1: the call as a whole (it has no
  // partner).
  int32_t row = -1;
  CallClass call_class = CallClass::kUnknown;
  double confidence = 0;  // 0 to 1
  // "layers.3.mlp (LlamaMLP)": the module in which an API ran; "" for calls of modules, and when it
  // is not known.
  std::string module;
  // "train.py:41 in forward: y = F.gelu(x)", of the model's code; and the lines of the program from
  // which it was called, where they say more (CodePlace in source_places.h).
  std::string source_line, caller_line;
  // The golden's line, where its code is another one (CodePlaceOf in source_places.h); else "".
  std::string golden_line;
  Message why;     // one sentence: what agreed before, how wrong it is
  Message advice;  // what to look at next; "" when there is nothing to add
  // Of a joined run (layouts/): the ranks that are wrong, as far as the dumps tell; empty: not
  // known.
  std::vector<int32_t> ranks;
  // The call has no partner, and its result leads to the first wrong number; false: it is only near
  // it.
  bool leads_to_it = false;
};

// The first row whose bits differ, within rounding or beyond it.
struct FirstBits {
  int32_t pair = -1;          // index into Comparison::pairs; -1: no bits differ
  int32_t row = -1;           // index into Comparison::rows
  int64_t noise_between = 0;  // calls within rounding from there to the first divergence
  std::string source_line;
};

// What the two runs started from, as sentences without a full stop; "" when the dumps do not tell.
struct RunStart {
  Message
      mistake;  // what hardly anybody wants to compare: "step 3 of the target is compared with..."
  Message weights;   // "the same weights (148)"
  Message data;      // "the same data (3 tensors)"
  Message settings;  // what differs: "torch is 2.13.0 in the target, 2.12.0 in the golden"
};

// What relations (relations/) know beside the verdicts of rows.
struct Decided {
  bool differs = false;  // a result of the step is wrong
  // Names in weights.json of the weights with which the target began, and that are none of the
  // golden's.
  std::vector<std::string> unrelated_weights;
  // Names of those that are values of the golden. A buffer that no recorded call takes is in
  // neither.
  std::vector<std::string> related_weights;
  // Names in weights.json of those that recorded calls of both runs wrote, other than optimizers:
  // what they hold in the end was judged.
  std::vector<std::string> written_weights;
  // Calls of one run whose results were not recorded, and that may change memory: indices into
  // pairs.
  std::vector<int32_t> compared_nowhere;
  // How many rows of paired calls hold a result that only one run has, and of whose content nothing
  // was recorded.
  int64_t open_results = 0;
  // What relates the values; null unless CompareOptions::keep_proofs.
  std::shared_ptr<const relations::Proofs> proofs;
};

class OperationTable;  // judge/operation_facts.h

struct Comparison {
  const ThresholdTable& Thresholds() const {
    return thresholds ? *thresholds : ThresholdTable::Shipped();
  }
  // The metrics of a row whose tensors were compared element by element; null for other rows.
  const kernels::Diff* DiffOf(size_t row) const {
    const int32_t index = measures[row].tensor;
    return index >= 0 ? &diffs[index] : nullptr;
  }
  ElementType NoiseDTypeOf(size_t row) const {
    return noise_dtypes.empty() ? ElementType() : noise_dtypes[row];
  }
  static constexpr char kRewrite = 1, kCompiled = 2;
  // Whether the calls are no part of what differs: a rewrite, compiled code.
  bool IsRewritten(int32_t pair) const { return !rewritten.empty() && rewritten[pair] != 0; }
  bool IsCompiled(int32_t pair) const { return !rewritten.empty() && rewritten[pair] == kCompiled; }
  Dump target, golden;
  Mode mode = Mode::kStatistics;
  double tolerance = 1;  // CompareOptions::tolerance that the verdicts were made with
  std::shared_ptr<const ThresholdTable> thresholds;  // null: the shipped ones
  std::shared_ptr<const OperationTable> operations;  // the same; see OperationsOf
  std::vector<RecordPair> pairs;  // in execution order of the target; a call that only the golden
                                  // has follows the call before it in the golden
  std::vector<Row> rows;          // grouped by pair
  std::vector<Measure> measures;  // one for each row
  std::vector<kernels::Diff> diffs;  // tensor mode; Measure::tensor is an index
  // Empty, or one for each row: the dtype in which the row's noise was made, where it is coarser
  // than the row's own (measure/noise_dtype.h). An empty type: its own decides.
  std::vector<ElementType> noise_dtypes;
  // When one run computes in a coarser float dtype than the other: the first row where this is
  // seen, and the coarsest such dtype.
  uint32_t coarse_row = UINT32_MAX;
  ElementType coarse_dtype;
  // Empty, or one text for each row: details that its Reason does not have, such as the file that
  // cannot be read.
  std::vector<Message> notes;
  std::vector<CallClass> classes;  // one for each pair
  // Empty, or one for each pair: 0, kRewrite for a part of a rewrite (relations/decide.h), or
  // kCompiled (model/compiled_code.h).
  std::vector<char> rewritten;
  // Empty, or for each pair the number of its region (regions/regions.h) as a document of an
  // earlier comparison states it, from 1; 0: none. A document does not have the values that tell.
  std::vector<uint32_t> stated_regions;
  // For each pair of backward records the pair of their forward call; -1: not recorded, or not a
  // backward record.
  std::vector<int32_t> forward_of;
  std::shared_ptr<const ContentIds> content;  // null until the first ContentOf
  RunStart run_start;
  FirstDivergence first;
  FirstBits first_bits;
  std::optional<Decided> decided;  // set where relations decide (relations/)
  Message exact;                   // why bits decide; "": differences within rounding are noise
  bool tolerant = false;  // differences within rounding are noise, whatever the environments are
  // Where repeats of the golden were given: of each row whether its difference was measured to be
  // noise (kNoise) or to be none (kDiffers); kUnknown: nothing is known of it. Else empty.
  std::vector<RowVerdict> by_repeats;
  std::vector<FirstDivergence> runners_up;
  // Sentences on what this comparison cannot know: a killed run, a missing stack.json, records
  // without a partner, ...
  std::vector<Message> not_observed;
};

}  // namespace msprobe::compare
