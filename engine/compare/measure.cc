#include "engine/compare/measure.h"

#include <algorithm>
#include <cmath>

#include "engine/base/threads.h"
#include "engine/compare/judge.h"
#include "engine/compare/measure_tensors.h"
#include "engine/compare/record_keys.h"

namespace msprobe {
namespace {

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// Calls whose outputs are sums of products over an inner dimension.
bool IsContraction(std::string_view api) {
  for (const std::string_view part : {"linear", "Linear", "matmul", "addmm", "bmm", "mm", "einsum", "conv", "Conv",
                                      "Dense", "attention", "Attention", "lstm", "gru", "LSTM", "GRU", "bilinear"}) {
    if (Contains(api, part)) return true;
  }
  return false;
}

}  // namespace

bool ReturnsUninitialised(std::string_view api) {
  const std::string_view base = BaseApi(api);
  for (const std::string_view name :
       {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_with_format"}) {
    if (base == name) return true;
  }
  return false;
}

double SummedTerms(const Dump& dump, const Record& record) {
  // Of inputs A, B and output C of a contraction, |A||B| / |C| is the square of the inner dimension; of a reduction |A| / |C| is
  // the number of terms. Backward and module records are judged alike: their shapes are those of the same products.
  double largest = 0, second = 0, out = 0;
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    if (leaf.kind != LeafKind::kTensor) continue;
    const double n = ElementCount(leaf.shape);
    if (leaf.slot == Slot::kOutput || leaf.slot == Slot::kParameterGrad) {
      out = std::max(out, n);
    } else if (n > largest) {
      second = largest;
      largest = n;
    } else {
      second = std::max(second, n);
    }
  }
  if (largest <= 0) return 0;
  out = std::max(out, 1.0);
  double terms = largest / out;
  if (IsContraction(record.api) && second > 0) terms = std::max(terms, std::sqrt(largest * second / out));
  return terms > 1 ? terms : 0;
}

void MeasureRows(const CompareOptions& options, Comparison* c) {
  c->measures.assign(c->rows.size(), {});
  ThreadPool& pool = options.pool != nullptr ? *options.pool : ThreadPool::Default();
  constexpr size_t kChunk = 512;  // pairs
  const size_t chunks = (c->pairs.size() + kChunk - 1) / kChunk;
  pool.ParallelFor(chunks, [&](size_t chunk) {
    const size_t end = std::min(c->pairs.size(), (chunk + 1) * kChunk);
    for (size_t p = chunk * kChunk; p < end; ++p) {
      const RecordPair& pair = c->pairs[p];
      Measure* measures = c->measures.data() + pair.first_row;
      if (pair.target < 0 || pair.golden < 0) {
        for (uint32_t i = 0; i < pair.row_count; ++i) measures[i].reason = Reason::kNoPartner;
        continue;
      }
      const Record& record = c->golden.records[pair.golden];
      JudgeOptions judge{.tolerance = options.tolerance};
      double terms = -1;
      const bool uninitialised = record.direction == Direction::kForward && ReturnsUninitialised(record.api);
      for (uint32_t i = 0; i < pair.row_count; ++i) {
        const Row& row = c->rows[pair.first_row + i];
        if (row.target < 0 || row.golden < 0) {
          measures[i].reason = Reason::kNoPartner;
          continue;
        }
        const Leaf &target = c->target.leaves[row.target], &golden = c->golden.leaves[row.golden];
        const bool output = target.slot == Slot::kOutput;
        if (output && terms < 0) terms = SummedTerms(c->golden, record);
        judge.terms = output ? terms : 0;
        JudgeLeaves(target, golden, c->mode, judge, &measures[i]);
        if (uninitialised && output && measures[i].verdict != RowVerdict::kEqual) {
          measures[i].verdict = RowVerdict::kUnknown;
          measures[i].reason = Reason::kUninitialised;
        }
      }
    }
  });
  if (c->mode == Mode::kTensor) MeasureTensors(options, pool, c);
}

}  // namespace msprobe
