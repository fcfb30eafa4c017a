#include "engine/checkpoint/compare_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/base/threads.h"
#include "engine/checkpoint/checkpoint_names.h"
#include "engine/checkpoint/replicas.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/measure/measure_tensors.h"
#include "engine/compare/model/rounding.h"
#include "engine/compare/model/value_text.h"
#include "engine/model/text_arena.h"

namespace msprobe::checkpoint {
namespace {

// Pairs up to this size are read many at a time, one a thread; larger ones one after the other, all
// threads on each.
constexpr uint64_t kSmallTensor = uint64_t{8} << 20;

// What tables show of a checkpoint: a call of one output a parameter.
Dump Listed(const Checkpoint& checkpoint, const std::vector<std::string>& names) {
  Dump dump;
  dump.path = checkpoint.path();
  dump.dialect = Dialect::kCheckpoint;
  dump.dialect_detail = checkpoint.layout();
  dump.task = Task::kTensor;
  TextArena arena;
  const std::vector<CheckpointTensor>& tensors = checkpoint.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    Record record;
    record.name = record.api = arena.Copy(names[i]);
    record.first_leaf = static_cast<uint32_t>(i);
    record.leaf_count = 1;
    Leaf leaf;
    leaf.record = static_cast<uint32_t>(i);
    leaf.slot = Slot::kOutput;
    leaf.name = record.name;
    leaf.type = tensors[i].is_parameter ? "torch.nn.Parameter" : "torch.Tensor";
    leaf.dtype = tensors[i].dtype;
    leaf.shape = dump.shapes.Of(tensors[i].shape);
    leaf.data_name = arena.Copy(tensors[i].name);
    dump.records.push_back(record);
    dump.leaves.push_back(leaf);
  }
  arena.Release(&dump.arena);
  return dump;
}

class Measurer {
 public:
  Measurer(const Checkpoint& target, const Checkpoint& golden,
           const compare::CompareOptions& options, compare::Comparison* c)
      : target_(target),
        golden_(golden),
        options_(options),
        pool_(options.pool != nullptr ? *options.pool : ThreadPool::Default()),
        c_(*c) {}

  void Run() {
    c_.measures.assign(c_.rows.size(), {});
    c_.notes.resize(c_.rows.size());
    found_.resize(c_.rows.size());
    std::vector<uint32_t> small, large;
    const uint64_t limit = std::min(kSmallTensor, options_.max_resident_tensor_bytes /
                                                      (2 * std::max<size_t>(1, pool_.threads())));
    for (uint32_t i = 0; i < c_.rows.size(); ++i) {
      const compare::Row& row = c_.rows[i];
      compare::Measure& m = c_.measures[i];
      if (row.target < 0 || row.golden < 0) {
        m.reason = compare::Reason::kNoPartner;
        continue;
      }
      const CheckpointTensor& t = target_.tensors()[row.target];
      const CheckpointTensor& g = golden_.tensors()[row.golden];
      if (compare::IsPacked(t.dtype) != compare::IsPacked(g.dtype)) {
        m.reason = compare::Reason::kPacked;
        continue;
      }
      if (t.shape != g.shape) {
        m.verdict = compare::RowVerdict::kDiffers;
        m.reason = compare::Reason::kShapeDiffers;
        m.severity = std::numeric_limits<double>::infinity();
        continue;
      }
      const Checkpoint::Cost a = Checkpoint::CostOf(t), b = Checkpoint::CostOf(g);
      const uint64_t needed = options_.mapped_counts ? a.all() + b.all() : a.made + b.made;
      if (needed > options_.max_pair_bytes) {
        Fail(i, compare::TooLarge(needed, options_.max_pair_bytes));
        continue;
      }
      (std::max(a.all(), b.all()) <= limit ? small : large).push_back(i);
    }
    pool_.ParallelFor(small.size(), [&](size_t i) { Compare(small[i], nullptr); });
    for (const uint32_t row : large) Compare(row, &pool_);
    for (size_t i = 0; i < found_.size(); ++i) {
      if (!found_[i]) continue;
      c_.measures[i].tensor = static_cast<int32_t>(c_.diffs.size());
      c_.diffs.push_back(*found_[i]);
    }
    target_counts_.MoveTo(&c_.target);
    golden_counts_.MoveTo(&c_.golden);
    if (std::all_of(c_.notes.begin(), c_.notes.end(), [](const auto& n) { return n.empty(); }))
      c_.notes.clear();
  }

 private:
  void Compare(uint32_t row, ThreadPool* pool) {
    const int32_t t = c_.rows[row].target, g = c_.rows[row].golden;
    // Both at a time: checking a large one's checksum takes as long as comparing it.
    Result<formats::TensorFile> sides[2] = {Status(), Status()};
    const auto read = [&](size_t side) {
      sides[side] =
          side == 0 ? target_.Read(target_.tensors()[t]) : golden_.Read(golden_.tensors()[g]);
    };
    pool != nullptr ? pool->ParallelFor(2, read) : (read(0), read(1));
    for (const Result<formats::TensorFile>& side : sides) {
      if (!side.ok()) return Fail(row, side.status());
    }
    const Result<kernels::Diff> diff =
        kernels::ComputeDiff(sides[0]->view(), sides[1]->view(), pool);
    if (!diff.ok()) return Fail(row, diff.status());
    const Leaf &a = c_.target.leaves[t], &b = c_.golden.leaves[g];
    compare::JudgeDiff(
        *diff, a, b,
        {.tolerance = options_.tolerance,
         .explained = c_.Thresholds().Explained("", compare::CoarserType(a.dtype, b.dtype))},
        &c_.measures[row]);
    // A parameter stands in one row.
    c_.target.leaves[t].counts = target_counts_.Of(*sides[0], diff->nonfinite_target, pool, a);
    c_.golden.leaves[g].counts = golden_counts_.Of(*sides[1], diff->nonfinite_golden, pool, b);
    found_[row] = *diff;
  }

  void Fail(uint32_t row, const Status& status) {
    compare::Measure& m = c_.measures[row];
    m.reason = status.code() == ErrorCode::kNotFound ? compare::Reason::kNoFile
                                                     : compare::Reason::kBadFile;
    c_.notes[row] = status.message();
  }

  const Checkpoint &target_, &golden_;
  const compare::CompareOptions& options_;
  ThreadPool& pool_;
  compare::Comparison& c_;
  std::vector<std::optional<kernels::Diff>> found_;
  compare::NonFiniteCounts target_counts_, golden_counts_;
};

// NaN or an infinity on one side only is worse than any number; then the larger severity.
bool IsWorse(const compare::Measure& a, const compare::Measure& b) {
  if (a.verdict != b.verdict) return a.verdict == compare::RowVerdict::kDiffers;
  return a.severity > b.severity;
}

void NameTheWorst(compare::Comparison* c) {
  int32_t worst = -1;
  for (size_t i = 0; i < c->rows.size(); ++i) {
    const compare::Measure& m = c->measures[i];
    if (m.verdict != compare::RowVerdict::kDiffers && m.verdict != compare::RowVerdict::kNoise)
      continue;
    if (m.severity == 0) continue;
    if (worst < 0 || IsWorse(m, c->measures[worst])) worst = static_cast<int32_t>(i);
  }
  if (worst < 0) return;
  c->first.row = worst;
  c->first.pair = worst;  // a pair a row
  c->first.call_class = c->classes[worst];
  c->first.confidence = 1;
  c->first.why = WorstElement(*c, worst);
}

}  // namespace

std::string WorstElement(const compare::Comparison& c, size_t row) {
  const compare::Measure& m = c.measures[row];
  if (m.reason == compare::Reason::kShapeDiffers) {
    return fmt::format("shape {} against {}", c.target.leaves[c.rows[row].target].shape.view(),
                       c.golden.leaves[c.rows[row].golden].shape.view());
  }
  if (m.tensor < 0) return std::string(compare::ReasonText(m.reason));
  const kernels::Diff& d = c.diffs[m.tensor];
  std::string text;
  if (d.worst_index >= 0) {
    text =
        fmt::format("{:.9g} against {:.9g} at {}", d.worst_target, d.worst_golden,
                    compare::IndexText(d.worst_index, c.target.leaves[c.rows[row].target].shape));
  }
  if (d.nonfinite_mismatch > 0) {
    return text + fmt::format("; {} of {} elements NaN or infinite on one side, or of another sign",
                              d.nonfinite_mismatch, d.count);
  }
  return text + fmt::format("; relative L2 {:.3g}, cosine {:.6g}, {} of {} elements differ",
                            d.relative_l2, d.cosine, d.unequal, d.count);
}

compare::Comparison CompareCheckpoints(const Checkpoint& target, const Checkpoint& golden,
                                       const compare::CompareOptions& options,
                                       const ParameterMapping& mapping) {
  compare::Comparison c;
  c.mode = compare::Mode::kTensor;
  c.tolerance = options.tolerance;
  c.thresholds = options.thresholds;
  PairedNames names = PairNames(target, golden, mapping);
  c.target = Listed(target, names.target);
  c.golden = Listed(golden, names.golden);
  c.not_observed = std::move(names.notes);
  for (const Checkpoint* side : {&target, &golden}) {
    for (const std::string& note : side->notes()) c.not_observed.push_back("passed over: " + note);
  }
  for (const auto& [t, g] : names.pairs) {
    const compare::Match match = t < 0             ? compare::Match::kGoldenOnly
                                 : g < 0           ? compare::Match::kTargetOnly
                                 : names.mapped[t] ? compare::Match::kAligned
                                                   : compare::Match::kExact;
    const float confidence = t >= 0 && g >= 0 ? 1 : 0;
    c.pairs.push_back({t, g, match, confidence, static_cast<uint32_t>(c.rows.size()), 1});
    c.rows.push_back({t, g, match, confidence});
  }
  ThreadPool& pool = options.pool != nullptr ? *options.pool : ThreadPool::Default();
  for (const auto& [side, name] : {std::pair{&target, "target"}, {&golden, "golden"}}) {
    if (std::string text = DifferingReplicas(*side, name, options, pool); !text.empty())
      c.not_observed.push_back(std::move(text));
  }
  c.forward_of.assign(c.pairs.size(), -1);
  Measurer(target, golden, options, &c).Run();
  for (const compare::Measure& m : c.measures) {
    c.classes.push_back(m.verdict == compare::RowVerdict::kEqual   ? compare::CallClass::kEqual
                        : m.verdict == compare::RowVerdict::kNoise ? compare::CallClass::kNoise
                        : m.verdict == compare::RowVerdict::kDiffers
                            ? compare::CallClass::kIntroduced
                            : compare::CallClass::kUnknown);
  }
  NameTheWorst(&c);
  return c;
}

}  // namespace msprobe::checkpoint
