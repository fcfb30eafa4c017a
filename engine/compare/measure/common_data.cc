#include "engine/compare/measure/common_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "engine/base/text.h"
#include "engine/compare/measure/sampled_tensors.h"
#include "engine/compare/measure/tensor_pairs.h"
#include "engine/dump/tensors/tensor_data.h"
#include "engine/kernels/stats.h"
#include "engine/model/names.h"
#include "engine/model/text_arena.h"

namespace msprobe::compare {
namespace {

bool HasTensors(const Dump& dump) {
  return dump.task == Task::kTensor ||
         std::any_of(dump.leaves.begin(), dump.leaves.end(), dump::HasTensorData);
}

bool LacksStatistics(const Leaf& leaf) {
  return leaf.max.empty() || leaf.min.empty() || leaf.mean.empty() || leaf.norm.empty();
}

struct Filled {
  size_t computed = 0, unreadable = 0;
  std::string first_unreadable;
};

// Gives the leaf those statistics that it did not record.
void SetStatistics(const kernels::Stats& stats, TextArena* arena, std::list<ElementCounts>* counts,
                   Leaf* leaf) {
  const auto set = [&](TextRef Leaf::*text, double Leaf::*number, double value) {
    if (!(leaf->*text).empty()) return;
    std::string spelled;
    AppendPythonFloat(&spelled, value);
    leaf->*text = arena->Copy(spelled);
    leaf->*number = value;
  };
  set(&Leaf::max, &Leaf::max_value, stats.max);
  set(&Leaf::min, &Leaf::min_value, stats.min);
  set(&Leaf::mean, &Leaf::mean_value, stats.mean);
  set(&Leaf::norm, &Leaf::norm_value, stats.norm);
  leaf->has_stats = true;
  leaf->counts =
      &counts->emplace_back(ElementCounts{stats.nan, stats.pos_inf, stats.neg_inf, stats.zero});
  if (leaf->fingerprint.empty()) {
    std::string digits;
    AppendHex(&digits, stats.fingerprint, 16);
    leaf->fingerprint = arena->Copy(digits);
  }
}

Filled FillStatistics(const CompareOptions& options, ThreadPool& pool, Dump* dump) {
  Filled filled;
  if (dump->sampled) return filled;  // statistics of a sample are not those of the tensor
  std::vector<uint32_t> wanting;
  for (uint32_t i = 0; i < dump->leaves.size(); ++i) {
    if (dump::HasTensorData(dump->leaves[i]) && LacksStatistics(dump->leaves[i]))
      wanting.push_back(i);
  }
  std::mutex mutex;
  TextArena arena;
  const auto fill = [&](uint32_t i, ThreadPool* threads) {
    Leaf& leaf = dump->leaves[i];
    const uint64_t size = dump::TensorDataSize(*dump, leaf);
    const bool fits = !options.mapped_counts || size <= options.max_pair_bytes;
    const Result<formats::TensorFile> tensor =
        fits ? dump::ReadTensorData(*dump, leaf) : TooLarge(size, options.max_pair_bytes);
    const kernels::Stats stats =
        tensor.ok() ? kernels::ComputeStats(tensor->view(), threads) : kernels::Stats();
    const std::lock_guard<std::mutex> lock(mutex);
    if (tensor.ok()) {
      SetStatistics(stats, &arena, &dump->counts, &leaf);
      ++filled.computed;
    } else if (filled.unreadable++ == 0) {
      filled.first_unreadable = tensor.status().message();
    }
  };
  // Small tensors: each on one thread, many at a time. Large ones: one after another, each on all
  // threads.
  const uint64_t small = options.max_resident_tensor_bytes / std::max<size_t>(1, pool.threads());
  const auto large = std::stable_partition(wanting.begin(), wanting.end(), [&](uint32_t i) {
    return dump::TensorDataSize(*dump, dump->leaves[i]) <= small;
  });
  pool.ParallelFor(static_cast<size_t>(large - wanting.begin()),
                   [&](size_t i) { fill(wanting[i], nullptr); });
  std::for_each(large, wanting.end(), [&](uint32_t i) { fill(i, &pool); });
  arena.Release(&dump->arena);
  return filled;
}

}  // namespace

Result<Mode> ChooseMode(const Dump& target, const Dump& golden, std::optional<Mode> wanted) {
  for (const Dump* dump : {&target, &golden}) {
    if (dump->task == Task::kStructure || dump->task == Task::kNanCheck) {
      return InvalidArgument()
          .At(dump->path)
          .Expected("a dump with numbers (task statistics or tensor)"_t)
          .Found("task {}, which records none"_t(TaskName(dump->task)))
          .Hint(
              "collect again with \"task\": \"statistics\", or look at the structure: msprobe show "
              "FILE"_t);
    }
  }
  if (!wanted) {
    // Both have tensor files; one may hold a sample, whose elements the other does not have.
    if (target.task == Task::kTensor && golden.task == Task::kTensor &&
        HaveCommonElements(target, golden)) {
      return Mode::kTensor;
    }
    if (target.has_checksums && golden.has_checksums) return Mode::kChecksum;
    return Mode::kStatistics;
  }
  for (const Dump* dump : {&target, &golden}) {
    if (*wanted == Mode::kChecksum && !dump->has_checksums) {
      return InvalidArgument()
          .At(dump->path)
          .Expected("checksums, to compare by checksum"_t)
          .Found("none"_t)
          .Hint("compare by statistics instead, or collect with \"summary_mode\": \"md5\""_t);
    }
    if (*wanted == Mode::kTensor && !HasTensors(*dump)) {
      return InvalidArgument()
          .At(dump->path)
          .Expected("tensor files, to compare by element"_t)
          .Found("none"_t)
          .Hint("compare by statistics instead, or collect with \"task\": \"tensor\""_t);
    }
  }
  return *wanted;
}

Message ReduceToStatistics(const CompareOptions& options, ThreadPool& pool, Dump* target,
                           Dump* golden) {
  const bool both_sampled = HaveCommonElements(*target, *golden);
  const bool t = target->task == Task::kTensor, g = golden->task == Task::kTensor;
  if (t == g && (both_sampled || !t)) return {};
  std::vector<Message> parts = {
      "{}: compared by statistics"_t(t && g ? WhatIsSampled(*target, *golden)
                                     : t    ? "the golden has no tensors"_t
                                            : "the target has no tensors"_t)};
  for (const auto& [dump, side] : {std::pair{target, "target"_t}, std::pair{golden, "golden"_t}}) {
    const Filled filled = FillStatistics(options, pool, dump);
    if (filled.computed > 0) {
      parts.push_back(
          filled.computed == 1
              ? "those of 1 value computed from the {}'s tensors"_t(side)
              : "those of {} values computed from the {}'s tensors"_t(filled.computed, side));
    }
    if (filled.unreadable > 0) {
      parts.push_back("{} of the {}'s tensors could not be read, the first: {}"_t(
          filled.unreadable, side, filled.first_unreadable));
    }
  }
  return Message::Joined(std::move(parts), ", ");
}

}  // namespace msprobe::compare
