#include "engine/checkpoint/compare_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/messages/message.h"
#include "engine/base/threads.h"
#include "engine/checkpoint/checkpoint_names.h"
#include "engine/checkpoint/reordered.h"
#include "engine/checkpoint/replicas.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/measure/tensor_pairs.h"
#include "engine/compare/model/value_text.h"
#include "engine/model/text_arena.h"

namespace msprobe::checkpoint {
namespace {

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

class CheckpointTensors : public compare::TensorSource {
 public:
  explicit CheckpointTensors(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  // Checkpoint::Read always verifies the checksum.
  Result<formats::TensorFile> Read(uint32_t leaf, formats::Verify) const override {
    return checkpoint_.Read(checkpoint_.tensors()[leaf]);
  }

 private:
  const Checkpoint& checkpoint_;
};

// Tensors that cannot be compared are not read: their headers tell dtype and shape.
void MeasureParameters(const Checkpoint& target, const Checkpoint& golden,
                       const compare::CompareOptions& options, ThreadPool& pool,
                       compare::Comparison* c) {
  c->measures.assign(c->rows.size(), {});
  const CheckpointTensors target_source(target), golden_source(golden);
  compare::TensorPairs pairs(target_source, golden_source, options, pool, c);
  for (uint32_t i = 0; i < c->rows.size(); ++i) {
    const compare::Row& row = c->rows[i];
    if (row.target < 0 || row.golden < 0) {
      c->measures[i].reason = compare::Reason::kNoPartner;
      continue;
    }
    const CheckpointTensor& t = target.tensors()[row.target];
    const CheckpointTensor& g = golden.tensors()[row.golden];
    if (compare::IsPacked(t.dtype) != compare::IsPacked(g.dtype)) {
      pairs.Refuse(i, compare::Reason::kPacked);
      continue;
    }
    // Parameters of one model have the same shape; dimensions of extent 1 count here.
    if (t.shape != g.shape) {
      pairs.Refuse(i, compare::Reason::kShapeDiffers);
      continue;
    }
    const Checkpoint::Cost a = Checkpoint::CostOf(t), b = Checkpoint::CostOf(g);
    pairs.Add(i,
              {.largest = std::max(a.all(), b.all()),
               .needed = options.mapped_counts ? a.all() + b.all() : a.made + b.made},
              {.limits = compare::Limits(*c, "")});
  }
  pairs.Run();
}

// Whether the elements of a row that differs may be those of the golden in another order.
bool RowMayBeReordered(const compare::Comparison& c, size_t row) {
  const compare::Row& r = c.rows[row];
  const compare::Measure& m = c.measures[row];
  if (m.verdict != compare::RowVerdict::kDiffers || r.target < 0 || r.golden < 0) return false;
  const Leaf &t = c.target.leaves[r.target], &g = c.golden.leaves[r.golden];
  if (t.dtype != g.dtype || t.shape.elements() != g.shape.elements()) return false;
  return m.tensor < 0 ? m.reason == compare::Reason::kShapeDiffers
                      : checkpoint::MayBeReordered(c.diffs[m.tensor]);
}

// Notes which weights have the golden's elements in another order. Few weights are read again.
void NoteReorderings(const Checkpoint& target, const Checkpoint& golden,
                     const compare::CompareOptions& options, ThreadPool& pool,
                     compare::Comparison* c) {
  constexpr uint64_t kSmall = uint64_t{8} << 20;  // bytes; many such pairs are read at a time
  std::vector<size_t> small, large;
  for (size_t i = 0; i < c->rows.size(); ++i) {
    if (!RowMayBeReordered(*c, i)) continue;
    const Checkpoint::Cost a = Checkpoint::CostOf(target.tensors()[c->rows[i].target]),
                           b = Checkpoint::CostOf(golden.tensors()[c->rows[i].golden]);
    const uint64_t needed = options.mapped_counts ? a.all() + b.all() : a.made + b.made;
    if (needed > options.max_pair_bytes) continue;
    (std::max(a.all(), b.all()) <= kSmall ? small : large).push_back(i);
  }
  if (small.empty() && large.empty()) return;
  if (c->notes.empty()) c->notes.resize(c->rows.size());
  const auto note = [&](size_t row) {
    const CheckpointTensor& g = golden.tensors()[c->rows[row].golden];
    const Result<formats::TensorFile> ours = target.Read(target.tensors()[c->rows[row].target]),
                                      theirs = golden.Read(g);
    // Both have been read before; a file that has changed since has no order to tell.
    if (ours.ok() && theirs.ok())
      c->notes[row] = DescribeReordering(ours->view(), theirs->view(), g.name);
  };
  pool.ParallelFor(small.size(), [&](size_t i) { note(small[i]); });
  for (const size_t row : large) note(row);
}

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
  c->first.pair = worst;  // each pair has one row: equal indices
  c->first.call_class = c->classes[worst];
  c->first.confidence = 1;
  c->first.why = WorstElement(*c, worst);
}

}  // namespace

Message WorstElement(const compare::Comparison& c, size_t row) {
  const compare::Measure& m = c.measures[row];
  const bool noted = m.verdict == compare::RowVerdict::kDiffers && !c.notes.empty();
  const Message note = noted ? c.notes[row] : Message();
  if (m.reason == compare::Reason::kShapeDiffers) {
    Message shapes = "shape {} against {}"_t(c.target.leaves[c.rows[row].target].shape.view(),
                                             c.golden.leaves[c.rows[row].golden].shape.view());
    return Message::Joined({std::move(shapes), note}, "; ");
  }
  if (m.tensor < 0) return compare::ReasonText(m.reason);
  const kernels::Diff& d = c.diffs[m.tensor];
  Message worst;
  if (d.worst_index >= 0) {
    worst = "{:.9g} against {:.9g} at {}"_t(
        d.worst_target, d.worst_golden,
        compare::IndexText(d.worst_index, c.target.leaves[c.rows[row].target].shape));
  }
  if (d.nonfinite_mismatch > 0) {
    return Message::Joined(
        {std::move(worst), "{} of {} elements NaN or infinite on one side, or of another sign"_t(
                               d.nonfinite_mismatch, d.count)},
        "; ");
  }
  return Message::Joined({std::move(worst),
                          "relative L2 {:.3g}, cosine {:.6g}, {} of {} elements differ"_t(
                              d.relative_l2, d.cosine, d.unequal, d.count),
                          note},
                         "; ");
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
  c.not_observed.assign(names.notes.begin(), names.notes.end());
  for (const Checkpoint* side : {&target, &golden}) {
    for (const Message& note : side->notes()) c.not_observed.push_back("passed over: {}"_t(note));
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
  for (const auto& [side, name] : {std::pair{&target, "target"_t}, {&golden, "golden"_t}}) {
    if (const Message text = DifferingReplicas(*side, name, options, pool); !text.empty())
      c.not_observed.push_back(text);
  }
  c.forward_of.assign(c.pairs.size(), -1);
  MeasureParameters(target, golden, options, pool, &c);
  for (const compare::Measure& m : c.measures) {
    c.classes.push_back(m.verdict == compare::RowVerdict::kEqual   ? compare::CallClass::kEqual
                        : m.verdict == compare::RowVerdict::kNoise ? compare::CallClass::kNoise
                        : m.verdict == compare::RowVerdict::kDiffers
                            ? compare::CallClass::kIntroduced
                            : compare::CallClass::kUnknown);
  }
  // A parameter that only one checkpoint has agrees with nothing.
  c.decided.emplace();
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    if (!c.pairs[p].matched()) c.decided->compared_nowhere.push_back(static_cast<int32_t>(p));
  }
  NoteReorderings(target, golden, options, pool, &c);
  NameTheWorst(&c);
  return c;
}

}  // namespace msprobe::checkpoint
