#include "engine/compare/measure/tensor_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "engine/base/memory_size.h"
#include "engine/base/threads.h"
#include "engine/kernels/stats.h"
#include "engine/model/shape.h"

namespace msprobe::compare {
namespace {

// The larger tensor of a small pair takes at most this many bytes.
constexpr uint64_t kSmall = uint64_t{8} << 20;

}  // namespace

Status TooLarge(uint64_t needed, uint64_t left) {
  return Unsupported("comparing these tensors needs {} of memory, and {} is left"_t(
      MemorySizeText(needed), MemorySizeText(left)));
}

TensorPairs::TensorPairs(const TensorSource& target, const TensorSource& golden,
                         const CompareOptions& options, ThreadPool& pool, Comparison* comparison)
    : target_(target), golden_(golden), options_(options), pool_(pool), c_(*comparison) {}

void TensorPairs::Add(uint32_t row, const Cost& cost, const JudgeOptions& judge) {
  if (cost.needed > options_.max_pair_bytes) {
    Fail(row, TooLarge(cost.needed, options_.max_pair_bytes));
    return;
  }
  const uint64_t limit = std::min(
      kSmall, options_.max_resident_tensor_bytes / (2 * std::max<size_t>(1, pool_.threads())));
  (cost.largest <= limit ? small_ : large_).push_back({row, judge, cost.largest});
  all_bytes_ += cost.largest;
}

void TensorPairs::Refuse(uint32_t row, Reason reason) {
  const bool differs = reason == Reason::kShapeDiffers;
  Measure& m = c_.measures[row];
  m.verdict = differs ? RowVerdict::kDiffers : RowVerdict::kUnknown;
  m.reason = reason;
  m.severity = differs ? std::numeric_limits<double>::infinity() : kernels::Diff::kNaN;
}

void TensorPairs::Fail(uint32_t row, Reason reason, Message note) {
  Refuse(row, reason);
  const std::lock_guard lock(mutex_);
  notes_.emplace_back(row, std::move(note));
}

void TensorPairs::Fail(uint32_t row, const Status& status) {
  Fail(row, status.code() == ErrorCode::kNotFound ? Reason::kNoFile : Reason::kBadFile,
       status.AsMessage());
}

void TensorPairs::Run() {
  found_.reserve(small_.size() + large_.size());
  pool_.ParallelFor(small_.size(), [&](size_t i) {
    Compare(small_[i], nullptr);
    IsDone(small_[i]);
  });
  for (const Job& job : large_) Compare(job, &pool_), IsDone(job);
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
  c_.target.counts.splice(c_.target.counts.end(), target_counts_);
  c_.golden.counts.splice(c_.golden.counts.end(), golden_counts_);
  if (!notes_.empty() && c_.notes.empty()) c_.notes.resize(c_.rows.size());
  for (auto& [row, note] : notes_) c_.notes[row] = std::move(note);
}

void TensorPairs::IsDone(const Job& job) {
  const uint64_t done = done_bytes_ += job.bytes;
  if (options_.progress) options_.progress(done, all_bytes_);
}

void TensorPairs::Compare(const Job& job, ThreadPool* pool) {
  const auto t = static_cast<uint32_t>(c_.rows[job.row].target);
  const auto g = static_cast<uint32_t>(c_.rows[job.row].golden);
  const Leaf &target_leaf = c_.target.leaves[t], &golden_leaf = c_.golden.leaves[g];
  Result<formats::TensorFile> target = Status(), golden = Status();
  const auto read = [&](size_t side) {
    if (side == 0) {
      target = target_.Read(t, formats::Verify::kByCaller);
    } else {
      golden = golden_.Read(g, formats::Verify::kByCaller);
    }
  };
  // Both at a time: assembling a large tensor from its shards may take as long as comparing it.
  pool != nullptr ? pool->ParallelFor(2, read) : (read(0), read(1));
  for (const Result<formats::TensorFile>* side : {&target, &golden}) {
    if (!side->ok()) return Fail(job.row, side->status());
  }
  if (IsPacked(target->dtype) != IsPacked(golden->dtype)) return Refuse(job.row, Reason::kPacked);
  if (!SameWithoutOnes(target->shape, golden->shape)) {
    // The statistics have judged a matrix and its transpose.
    if (c_.measures[job.row].reason == Reason::kTransposed) return;
    return Refuse(job.row, Reason::kShapeDiffers);
  }
  kernels::Crc32Pair checksums;
  const bool verify = target->crc32 || golden->crc32;
  const Result<kernels::Diff> diff =
      kernels::ComputeDiff(target->view(), golden->view(), pool, verify ? &checksums : nullptr);
  if (!diff.ok()) return Fail(job.row, diff.status());
  for (const Status& status :
       {Verified(target_, t, target_leaf.data_name, target->crc32, checksums.target),
        Verified(golden_, g, golden_leaf.data_name, golden->crc32, checksums.golden)}) {
    if (!status.ok()) return Fail(job.row, status);
  }
  JudgeDiff(*diff, target_leaf, golden_leaf, job.judge, &c_.measures[job.row]);
  // The counts of a sample are not those of the tensor.
  const ElementCounts* in_target = c_.target.sampled ? target_leaf.counts
                                                     : CountsOf(*target, diff->nonfinite_target,
                                                                pool, target_leaf, &target_counts_);
  const ElementCounts* in_golden = c_.golden.sampled ? golden_leaf.counts
                                                     : CountsOf(*golden, diff->nonfinite_golden,
                                                                pool, golden_leaf, &golden_counts_);
  const std::lock_guard lock(mutex_);
  found_.push_back({job.row, in_target, in_golden, *diff});
}

Status TensorPairs::Verified(const TensorSource& source, uint32_t leaf, std::string_view name,
                             std::optional<uint32_t> expected, uint32_t found) {
  if (!expected || *expected == found) return Status::Ok();
  Status status = source.Read(leaf, formats::Verify::kByReader).status();
  if (status.ok()) return InvalidDump(name).Says("changed while it was read"_t);
  return status;
}

const ElementCounts* TensorPairs::CountsOf(const formats::TensorFile& tensor, int64_t nonfinite,
                                           ThreadPool* pool, const Leaf& leaf,
                                           std::list<ElementCounts>* kept) {
  static constexpr ElementCounts kAllFinite{.nan = 0, .pos_inf = 0, .neg_inf = 0};
  if (leaf.counts->nan >= 0) return leaf.counts;
  const int64_t zero = leaf.counts->zero;
  if (nonfinite == 0 && zero < 0) return &kAllFinite;
  // One more pass over the elements; few tensors need it.
  const kernels::Stats stats =
      nonfinite > 0 ? kernels::ComputeStats(tensor.view(), pool) : kernels::Stats();
  const std::lock_guard lock(mutex_);
  return &kept->emplace_back(ElementCounts{stats.nan, stats.pos_inf, stats.neg_inf, zero});
}

}  // namespace msprobe::compare
