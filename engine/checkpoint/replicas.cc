#include "engine/checkpoint/replicas.h"

#include <fmt/format.h>

#include <vector>

#include "engine/base/file.h"
#include "engine/kernels/diff.h"

namespace msprobe::checkpoint {
namespace {

std::string RankOf(const TensorPiece& piece) { return BaseName(DirectoryName(*piece.file)); }

// How a replica differs from the piece that stands for the tensor; "" when both are equal.
std::string Difference(const TensorPiece& taken, const TensorPiece& replica) {
  const Result<formats::TensorFile> a = ReadPiece(replica), b = ReadPiece(taken);
  // A piece that cannot be read is reported in the row of its tensor; a replica is reported here.
  if (!b.ok()) return "";
  if (!a.ok()) return a.status().message();
  if (a->shape != b->shape) {
    return fmt::format("shape {} against {}", ShapeText(a->shape), ShapeText(b->shape));
  }
  const Result<kernels::Diff> diff = kernels::ComputeDiff(a->view(), b->view());
  if (!diff.ok()) return diff.status().message();
  if (diff->unequal == 0) return "";
  return fmt::format("{} of {} elements differ, {:.9g} against {:.9g}", diff->unequal, diff->count,
                     diff->worst_target, diff->worst_golden);
}

}  // namespace

std::string DifferingReplicas(const Checkpoint& checkpoint, std::string_view side,
                              const compare::CompareOptions& options, ThreadPool& pool) {
  const std::vector<CheckpointTensor>& tensors = checkpoint.tensors();
  std::vector<std::string> found(tensors.size());
  const auto look = [&](size_t i) {
    for (const CheckpointTensor::Replica& replica : tensors[i].replicas) {
      const TensorPiece& taken = tensors[i].parts[replica.part].piece;
      const std::string difference = Difference(taken, replica.piece);
      if (difference.empty()) continue;
      found[i] = fmt::format("{} ({} against {}: {})", tensors[i].name, RankOf(replica.piece),
                             RankOf(taken), difference);
      break;
    }
  };
  // Small pairs are read many at a time, each on one thread; large ones one after the other.
  std::vector<size_t> small, large;
  size_t passed = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].replicas.empty()) continue;
    const uint64_t needed = 2 * Checkpoint::CostOf(tensors[i]).mapped;
    if (options.mapped_counts && needed > options.max_pair_bytes) {
      ++passed;
    } else {
      (needed <= options.max_resident_tensor_bytes / pool.threads() ? small : large).push_back(i);
    }
  }
  pool.ParallelFor(small.size(), [&](size_t i) { look(small[i]); });
  for (const size_t i : large) look(i);
  size_t count = 0;
  const std::string* first = nullptr;
  for (const std::string& text : found) {
    if (text.empty()) continue;
    if (first == nullptr) first = &text;
    ++count;
  }
  const std::string unseen =
      passed == 0
          ? ""
          : fmt::format(
                "{} parameter{} of the {} could not be compared between ranks: two replicas "
                "need more memory than is allowed",
                passed, passed == 1 ? "" : "s", side);
  if (first == nullptr) return unseen;
  return fmt::format("{} parameter{} of the {} {} not the same on all ranks that hold {}{}", count,
                     count == 1 ? "" : "s", side, count == 1 ? "is" : "are",
                     count == 1 ? "it: " : "them, the first: ", *first) +
         (unseen.empty() ? "" : "; " + unseen);
}

}  // namespace msprobe::checkpoint
