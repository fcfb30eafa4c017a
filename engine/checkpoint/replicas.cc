#include "engine/checkpoint/replicas.h"

#include <fmt/format.h>

#include <vector>

#include "engine/base/file.h"
#include "engine/kernels/diff.h"

namespace msprobe::checkpoint {
namespace {

std::string RankOf(const TensorPiece& piece) { return BaseName(DirectoryName(*piece.file)); }

// How a copy is not the piece that is taken for the tensor; "" when it is.
std::string Difference(const TensorPiece& taken, const TensorPiece& copy) {
  const Result<formats::TensorFile> a = ReadPiece(copy), b = ReadPiece(taken);
  // What cannot be read costs the row of the tensor itself; of a copy it is told here.
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

std::string DifferingCopies(const Checkpoint& checkpoint, std::string_view side,
                            const compare::CompareOptions& options, ThreadPool& pool) {
  const std::vector<CheckpointTensor>& tensors = checkpoint.tensors();
  std::vector<std::string> found(tensors.size());
  const auto look = [&](size_t i) {
    for (const CheckpointTensor::Copy& copy : tensors[i].copies) {
      const TensorPiece& taken = tensors[i].parts[copy.part].piece;
      const std::string difference = Difference(taken, copy.piece);
      if (difference.empty()) continue;
      found[i] = fmt::format("{} ({} against {}: {})", tensors[i].name, RankOf(copy.piece),
                             RankOf(taken), difference);
      break;
    }
  };
  // As many at a time as there is room for.
  std::vector<size_t> small, large;
  size_t passed = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].copies.empty()) continue;
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
      passed == 0 ? ""
                  : fmt::format(
                        "what other ranks of the {} hold of {} parameter{} is too large for "
                        "the memory there may be, and was not compared",
                        side, passed, passed == 1 ? "" : "s");
  if (first == nullptr) return unseen;
  return fmt::format("{} parameter{} of the {} {} not the same on all ranks that hold {}{}", count,
                     count == 1 ? "" : "s", side, count == 1 ? "is" : "are",
                     count == 1 ? "it: " : "them, the first: ", *first) +
         (unseen.empty() ? "" : "; " + unseen);
}

}  // namespace msprobe::checkpoint
