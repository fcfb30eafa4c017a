#include "engine/checkpoint/replicas.h"

#include <fmt/format.h>

#include <vector>

#include "engine/base/file.h"
#include "engine/kernels/diff.h"

namespace msprobe::checkpoint {
namespace {

std::string RankOf(const TensorPiece& piece) { return BaseName(DirectoryName(*piece.file)); }

// How a replica differs from the piece that stands for the tensor; empty when both are equal.
Message Difference(const TensorPiece& taken, const TensorPiece& replica) {
  const Result<formats::TensorFile> a = ReadPiece(replica), b = ReadPiece(taken);
  // A piece that cannot be read is reported in the row of its tensor; a replica is reported here.
  if (!b.ok()) return {};
  if (!a.ok()) return a.status().AsMessage();
  if (a->shape != b->shape) {
    return "shape {} against {}"_t(ShapeText(a->shape), ShapeText(b->shape));
  }
  const Result<kernels::Diff> diff = kernels::ComputeDiff(a->view(), b->view());
  if (!diff.ok()) return diff.status().AsMessage();
  if (diff->unequal == 0) return {};
  return "{} of {} elements differ, {:.9g} against {:.9g}"_t(
      diff->unequal, diff->count, diff->worst_target, diff->worst_golden);
}

}  // namespace

Message DifferingReplicas(const Checkpoint& checkpoint, const Message& side,
                          const compare::CompareOptions& options, ThreadPool& pool) {
  const std::vector<CheckpointTensor>& tensors = checkpoint.tensors();
  std::vector<Message> found(tensors.size());
  const auto look = [&](size_t i) {
    for (const CheckpointTensor::Replica& replica : tensors[i].replicas) {
      const TensorPiece& taken = tensors[i].parts[replica.part].piece;
      Message difference = Difference(taken, replica.piece);
      if (difference.empty()) continue;
      found[i] = "{} ({} against {}: {})"_t(tensors[i].name, RankOf(replica.piece), RankOf(taken),
                                            std::move(difference));
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
  const Message* first = nullptr;
  for (const Message& text : found) {
    if (text.empty()) continue;
    if (first == nullptr) first = &text;
    ++count;
  }
  Message unseen;
  if (passed == 1) {
    unseen =
        "1 parameter of the {} could not be compared between ranks: two replicas need more "
        "memory than is allowed"_t(side);
  } else if (passed > 1) {
    unseen =
        "{} parameters of the {} could not be compared between ranks: two replicas need more "
        "memory than is allowed"_t(passed, side);
  }
  if (first == nullptr) return unseen;
  Message differ =
      count == 1
          ? "1 parameter of the {} is not the same on all ranks that hold it: {}"_t(side, *first)
          : "{} parameters of the {} are not the same on all ranks that hold them, the first: {}"_t(
                count, side, *first);
  return Message::Joined({std::move(differ), std::move(unseen)}, "; ");
}

}  // namespace msprobe::checkpoint
