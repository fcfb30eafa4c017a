#include "engine/compare/regions/joined_weights.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/judge/operations.h"
#include "engine/compare/regions/joined_tensors.h"

namespace msprobe::compare {
namespace {

// The tensors of one kind in the layers of one module: what only the target has, what only the golden
// has, and their rows.
struct Pieces {
  Parts target, golden;
  std::vector<uint32_t> rows;
};

// "input.gradients.attn.*.weight" of "input.gradients.attn.to_q.weight" and
// "input.state.attn.*.weight.exp_avg" of "input.state.attn.to_q.weight.exp_avg"; "" for names of too
// few parts.
std::string KeyOf(const Record& record, const Leaf& leaf) {
  const std::string_view name = leaf.name.view();
  if (name.size() <= record.name.size()) return "";
  std::string key(name.substr(record.name.size() + 1));
  const bool of_state = key.starts_with("input.state.") || key.starts_with("output.0.state.");
  size_t end = key.npos;  // of the layer's name, behind which the parameter's and the state's are
  for (int i = of_state ? 2 : 1; i > 0; --i) {
    end = end == 0 ? 0 : key.rfind('.', end == key.npos ? end : end - 1);
    if (end == key.npos || end == 0) return "";
  }
  const size_t begin = key.rfind('.', end - 1);
  return begin == key.npos ? "" : key.replace(begin + 1, end - begin - 1, "*");
}

// The sum of the first extents; -1 when the shapes differ in another one, or are not known.
int64_t FirstExtents(const Parts& parts, Shape like) {
  int64_t sum = 0;
  for (const Leaf* part : parts) {
    const auto a = part->shape.extents(), b = like.extents();
    if (!part->shape.known() || !part->has_stats || a.empty() || a.size() != b.size() ||
        !std::equal(a.begin() + 1, a.end(), b.begin() + 1))
      return -1;
    if (__builtin_add_overflow(sum, a[0], &sum)) return -1;
  }
  return sum;
}

bool Agree(const Comparison& c, const Pieces& pieces) {
  const Parts &t = pieces.target, &g = pieces.golden;
  // One beside one is another name, not another division.
  if (t.empty() || g.empty() || t.size() + g.size() < 3) return false;
  const int64_t extents = FirstExtents(t, g.front()->shape);
  return extents > 0 && extents == FirstExtents(g, g.front()->shape) && AgreeJoined(c, t, g);
}

}  // namespace

bool JoinWeights(Comparison* c) {
  bool any = false;
  for (const RecordPair& pair : c->pairs) {
    if (!pair.matched() || !IsOptimizerCall(c->golden.records[pair.golden].api)) continue;
    std::map<std::string, Pieces> all;
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const Row& row = c->rows[i];
      const auto tensor = [](const Dump& dump, int32_t index) -> const Leaf* {
        const Leaf* leaf = index < 0 ? nullptr : &dump.leaves[index];
        return leaf != nullptr && leaf->kind == LeafKind::kTensor ? leaf : nullptr;
      };
      const Leaf* t = tensor(c->target, row.target);
      const Leaf* g = tensor(c->golden, row.golden);
      if ((t == nullptr) == (g == nullptr)) continue;
      const Dump& dump = t != nullptr ? c->target : c->golden;
      const Leaf& leaf = t != nullptr ? *t : *g;
      const std::string key = KeyOf(dump.records[leaf.record], leaf);
      if (key.empty()) continue;
      Pieces& pieces = all[key];
      (t != nullptr ? pieces.target : pieces.golden).push_back(&leaf);
      pieces.rows.push_back(i);
    }
    for (const auto& [key, pieces] : all) {
      if (!Agree(*c, pieces)) continue;
      any = true;
      for (const uint32_t i : pieces.rows) {
        Measure& m = c->measures[i];
        m = {.tensor = m.tensor, .verdict = RowVerdict::kUnknown, .reason = Reason::kOtherParts};
      }
    }
  }
  return any;
}

}  // namespace msprobe::compare
