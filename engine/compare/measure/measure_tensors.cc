#include "engine/compare/measure/measure_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/base/memory_size.h"
#include "engine/base/threads.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/measure/measure.h"
#include "engine/compare/measure/sampled_tensors.h"
#include "engine/compare/model/rounding.h"
#include "engine/dump/tensors/tensor_data.h"
#include "engine/kernels/stats.h"

namespace msprobe::compare {
namespace {

// Pairs of files up to this size are compared many at a time, each on one thread. Larger pairs are
// compared one after the other, each on all threads.
constexpr uint64_t kSmallFile = uint64_t{8} << 20;

struct Job {
  uint32_t row;
  double terms, magnitude;  // see JudgeOptions
  ElementType coarse_dtype;
};

class TensorMeasurer {
 public:
  TensorMeasurer(const CompareOptions& options, ThreadPool& pool, Comparison* c)
      : options_(options), pool_(pool), c_(*c) {}

  void Run() {
    std::vector<Job> small, large;
    const uint64_t limit = std::min(kSmallFile, options_.max_resident_tensor_bytes /
                                                    (2 * std::max<size_t>(1, pool_.threads())));
    for (const RecordPair& pair : c_.pairs) {
      if (pair.target < 0 || pair.golden < 0) continue;
      double terms = -1;
      for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
        if (!WantsFiles(i)) continue;
        const auto [t, g] = Leaves(i);
        if (terms < 0) terms = SummedTerms(c_.golden, c_.golden.records[pair.golden]);
        const uint64_t sizes[] = {dump::TensorDataSize(c_.target, t),
                                  dump::TensorDataSize(c_.golden, g)};
        const bool output = t.slot == Slot::kOutput;
        const Record& record = c_.golden.records[pair.golden];
        if (options_.mapped_counts && sizes[0] + sizes[1] > options_.max_pair_bytes) {
          Fail(i, TooLarge(sizes[0] + sizes[1], options_.max_pair_bytes));
          continue;
        }
        (std::max(sizes[0], sizes[1]) <= limit ? small : large)
            .push_back({i, output ? terms : 0, output ? SummedMagnitude(c_.golden, record, g) : 0,
                        CoarseDTypeFor(c_, pair, i)});
      }
    }
    found_.reserve(small.size() + large.size());
    pool_.ParallelFor(small.size(), [&](size_t i) { Compare(small[i], nullptr); });
    for (const Job& job : large) Compare(job, &pool_);
    // In the order of rows, so that the result does not depend on which thread was faster.
    std::sort(found_.begin(), found_.end(),
              [](const Found& a, const Found& b) { return a.row < b.row; });
    c_.diffs.reserve(found_.size());
    for (const Found& found : found_) {
      c_.measures[found.row].tensor = static_cast<int32_t>(c_.diffs.size());
      c_.diffs.push_back(found.diff);
      // Only now: rows may share a leaf, and other threads were reading it.
      c_.target.leaves[c_.rows[found.row].target].counts = found.target;
      c_.golden.leaves[c_.rows[found.row].golden].counts = found.golden;
    }
    target_counts_.MoveTo(&c_.target);
    golden_counts_.MoveTo(&c_.golden);
    if (!notes_.empty() && c_.notes.empty()) c_.notes.resize(c_.rows.size());
    for (auto& [row, note] : notes_) c_.notes[row] = std::move(note);
  }

 private:
  std::pair<const Leaf&, const Leaf&> Leaves(uint32_t row) const {
    return {c_.target.leaves[c_.rows[row].target], c_.golden.leaves[c_.rows[row].golden]};
  }

  bool WantsFiles(uint32_t row) const {
    if (c_.rows[row].target < 0 || c_.rows[row].golden < 0) return false;
    const auto [t, g] = Leaves(row);
    const Reason reason = c_.measures[row].reason;
    return t.kind == LeafKind::kTensor && g.kind == LeafKind::kTensor &&
           reason != Reason::kUninitialised && reason != Reason::kEmpty;
  }

  void Compare(const Job& job, ThreadPool* pool) {
    const auto [t, g] = Leaves(job.row);
    Measure& m = c_.measures[job.row];
    if (!dump::HasTensorData(t) || !dump::HasTensorData(g)) {
      const std::string side = dump::HasTensorData(t) ? "golden" : "target";
      return Fail(job.row, Reason::kNoFile, "the " + side + " has no tensor file for this row");
    }
    Result<formats::TensorFile> target =
        dump::ReadTensorData(c_.target, t, formats::Verify::kByCaller);
    if (!target.ok()) return Fail(job.row, target.status());
    Result<formats::TensorFile> golden =
        dump::ReadTensorData(c_.golden, g, formats::Verify::kByCaller);
    if (!golden.ok()) return Fail(job.row, golden.status());
    if (c_.target.sample_step != c_.golden.sample_step) {
      const int64_t elements = t.shape.elements();
      const int64_t steps[] = {c_.target.sample_step, c_.golden.sample_step};
      target = CommonElements(*std::move(target), t.data_name, elements, steps[0], steps[1]);
      if (!target.ok()) return Fail(job.row, target.status());
      golden = CommonElements(*std::move(golden), g.data_name, elements, steps[1], steps[0]);
      if (!golden.ok()) return Fail(job.row, golden.status());
    }
    if (IsPacked(target->dtype) != IsPacked(golden->dtype)) {
      m.verdict = RowVerdict::kUnknown;
      m.reason = Reason::kPacked;
      m.severity = kernels::Diff::kNaN;
      return;
    }
    if (!SameWithoutOnes(target->shape, golden->shape)) {
      m.verdict = RowVerdict::kDiffers;
      m.reason = Reason::kShapeDiffers;
      m.severity = std::numeric_limits<double>::infinity();
      return;
    }
    kernels::Crc32Pair checksums;
    const bool verify = target->crc32 || golden->crc32;
    const Result<kernels::Diff> diff =
        kernels::ComputeDiff(target->view(), golden->view(), pool, verify ? &checksums : nullptr);
    if (!diff.ok()) return Fail(job.row, diff.status());
    for (const Status& status : {Verified(c_.target, t, target->crc32, checksums.target),
                                 Verified(c_.golden, g, golden->crc32, checksums.golden)}) {
      if (!status.ok()) return Fail(job.row, status);
    }
    JudgeDiff(diff.value(), t, g,
              {.tolerance = options_.tolerance,
               .terms = job.terms,
               .magnitude = job.magnitude,
               .explained = c_.Thresholds().Explained(
                   c_.golden.records[g.record].api, JudgedType(t.dtype, g.dtype, job.coarse_dtype)),
               .coarse_dtype = job.coarse_dtype},
              &m);
    // The counts of a sample are not those of the tensor.
    const ElementCounts* in_target =
        c_.target.sampled ? t.counts : target_counts_.Of(*target, diff->nonfinite_target, pool, t);
    const ElementCounts* in_golden =
        c_.golden.sampled ? g.counts : golden_counts_.Of(*golden, diff->nonfinite_golden, pool, g);
    const std::lock_guard<std::mutex> lock(mutex_);
    found_.push_back({job.row, in_target, in_golden, diff.value()});
  }

  // Ok, or the error of a file whose elements do not have the recorded checksum.
  static Status Verified(const Dump& dump, const Leaf& leaf, std::optional<uint32_t> expected,
                         uint32_t found) {
    if (!expected || *expected == found) return Status::Ok();
    const Status status = dump::ReadTensorData(dump, leaf).status();
    if (status.ok()) return InvalidDump(leaf.data_name).Says("changed while it was read");
    return status;
  }

  void Fail(uint32_t row, const Status& status) {
    Fail(row, status.code() == ErrorCode::kNotFound ? Reason::kNoFile : Reason::kBadFile,
         status.message());
  }

  void Fail(uint32_t row, Reason reason, std::string note) {
    Measure& m = c_.measures[row];
    m.verdict = RowVerdict::kUnknown;
    m.reason = reason;
    m.severity = kernels::Diff::kNaN;
    const std::lock_guard<std::mutex> lock(mutex_);
    notes_.emplace_back(row, std::move(note));
  }

  const CompareOptions& options_;
  ThreadPool& pool_;
  Comparison& c_;
  std::mutex mutex_;
  struct Found {
    uint32_t row;
    const ElementCounts *target, *golden;
    kernels::Diff diff;
  };
  std::vector<Found> found_;
  NonFiniteCounts target_counts_, golden_counts_;
  std::vector<std::pair<uint32_t, std::string>> notes_;
};

}  // namespace

Status TooLarge(uint64_t needed, uint64_t left) {
  return Unsupported(fmt::format("comparing these tensors needs {} of memory, and {} is left",
                                 MemorySizeText(needed), MemorySizeText(left)));
}

const ElementCounts* NonFiniteCounts::Of(const formats::TensorFile& tensor, int64_t nonfinite,
                                         ThreadPool* pool, const Leaf& leaf) {
  static constexpr ElementCounts kAllFinite{.nan = 0, .pos_inf = 0, .neg_inf = 0};
  if (leaf.counts->nan >= 0) return leaf.counts;
  const int64_t zero = leaf.counts->zero;
  if (nonfinite == 0 && zero < 0) return &kAllFinite;
  // One more pass over the elements; few tensors need it.
  const kernels::Stats stats =
      nonfinite > 0 ? kernels::ComputeStats(tensor.view(), pool) : kernels::Stats();
  const std::lock_guard lock(mutex_);
  return &found_.emplace_back(ElementCounts{stats.nan, stats.pos_inf, stats.neg_inf, zero});
}

void MeasureTensors(const CompareOptions& options, ThreadPool& pool, Comparison* comparison) {
  TensorMeasurer(options, pool, comparison).Run();
}

}  // namespace msprobe::compare
