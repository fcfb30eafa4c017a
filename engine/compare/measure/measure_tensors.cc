#include "engine/compare/measure/measure_tensors.h"

#include <algorithm>
#include <utility>

#include "engine/base/messages/message.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/measure/judge_row.h"
#include "engine/compare/measure/measure.h"
#include "engine/compare/measure/sampled_tensors.h"
#include "engine/compare/measure/tensor_pairs.h"
#include "engine/compare/model/rounding.h"
#include "engine/dump/tensors/tensor_data.h"

namespace msprobe::compare {
namespace {

// Reads the tensors of a dump. Of two samples of one tensor it reads the elements that both have.
class DumpTensors : public TensorSource {
 public:
  DumpTensors(const Dump& dump, const Dump& other) : dump_(dump), other_(other) {}

  Result<formats::TensorFile> Read(uint32_t index, formats::Verify verify) const override {
    const Leaf& leaf = dump_.leaves[index];
    Result<formats::TensorFile> tensor = dump::ReadTensorData(dump_, leaf, verify);
    if (!tensor.ok() || dump_.sample_step == other_.sample_step) return tensor;
    return CommonElements(*std::move(tensor), leaf.data_name, leaf.shape.elements(),
                          dump_.sample_step, other_.sample_step);
  }

 private:
  const Dump &dump_, &other_;
};

// Whether the row needs its tensor files: not when the statistics already decided it.
bool WantsElements(const Comparison& c, uint32_t row) {
  const Row& r = c.rows[row];
  if (r.target < 0 || r.golden < 0) return false;
  const Reason reason = c.measures[row].reason;
  return c.target.leaves[r.target].kind == LeafKind::kTensor &&
         c.golden.leaves[r.golden].kind == LeafKind::kTensor && reason != Reason::kUninitialised &&
         reason != Reason::kEmpty;
}

JudgeOptions OptionsFor(const Comparison& c, const RecordPair& pair, uint32_t row, double terms) {
  const Leaf& t = c.target.leaves[c.rows[row].target];
  JudgeOptions judge{.limits = Limits(c, c.golden.records[pair.golden].api),
                     .noise_dtype = c.NoiseDTypeOf(row),
                     .target_rest = c.target.RestOf(c.rows[row].target),
                     .golden_rest = c.golden.RestOf(c.rows[row].golden)};
  if (t.slot == Slot::kOutput || t.slot == Slot::kParameterGrad) {
    judge.terms = terms;
    judge.magnitude = MagnitudeOf(c, pair, row);
  }
  return judge;
}

}  // namespace

void MeasureTensors(const CompareOptions& options, ThreadPool& pool, Comparison* comparison) {
  const Comparison& c = *comparison;
  const DumpTensors target(c.target, c.golden), golden(c.golden, c.target);
  TensorPairs pairs(target, golden, options, pool, comparison);
  for (const RecordPair& pair : c.pairs) {
    if (!pair.matched()) continue;
    double terms = -1;
    for (uint32_t row = pair.first_row; row < pair.first_row + pair.row_count; ++row) {
      if (!WantsElements(c, row)) continue;
      const Leaf &t = c.target.leaves[c.rows[row].target], &g = c.golden.leaves[c.rows[row].golden];
      // Neither run stored it, as with optimizers: the statistics have judged it.
      if (!dump::HasTensorData(t) && !dump::HasTensorData(g) &&
          c.measures[row].verdict != RowVerdict::kUnknown)
        continue;
      if (!dump::HasTensorData(t) || !dump::HasTensorData(g)) {
        const Message side = dump::HasTensorData(t) ? "golden"_t : "target"_t;
        pairs.Fail(row, Reason::kNoFile, "the {} has no tensor file for this row"_t(side));
        continue;
      }
      if (terms < 0) terms = TermsOf(c, pair);
      const uint64_t a = dump::TensorDataSize(c.target, t), b = dump::TensorDataSize(c.golden, g);
      pairs.Add(row, {.largest = std::max(a, b), .needed = options.mapped_counts ? a + b : 0},
                OptionsFor(c, pair, row, terms));
    }
  }
  pairs.Run();
}

}  // namespace msprobe::compare
