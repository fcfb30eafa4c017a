#include "engine/compare/regions/joined_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/judge/operations.h"
#include "engine/compare/model/record_keys.h"
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

// "forward 0 Module.layers.0.mlp weight" of the weight of a layer in a module: what the modules beside
// it have, too. "": the leaf is no parameter of a module, and no gradient of one.
std::string KeyBesideModules(const Record& record, const Leaf& leaf) {
  if (!record.is_module && record.direction != Direction::kParameterGrad) return "";
  if (leaf.slot != Slot::kParameter && leaf.slot != Slot::kParameterGrad) return "";
  std::string_view around = record.api.view();  // "Module.layers.0.mlp.up.Linear"
  for (int part = 0; part < 2; ++part) around = around.substr(0, around.rfind('.'));
  const std::string_view name = leaf.name.view();
  return fmt::format("{} {} {} {}", static_cast<int>(record.direction), record.call, around,
                     name.substr(name.rfind('.') + 1));
}

using Groups = std::map<std::string, Pieces>;

// Adds the tensors of a row that may be pieces. `matched`: also where both sides have one, of other
// shapes.
template <typename Key>
void Add(const Comparison& c, uint32_t i, bool matched, Key key_of, Groups* groups) {
  const Row& row = c.rows[i];
  const auto tensor = [](const Dump& dump, int32_t index) -> const Leaf* {
    const Leaf* leaf = index < 0 ? nullptr : &dump.leaves[index];
    return leaf != nullptr && leaf->kind == LeafKind::kTensor ? leaf : nullptr;
  };
  const Leaf* t = tensor(c.target, row.target);
  const Leaf* g = tensor(c.golden, row.golden);
  const bool one_side = (t == nullptr) != (g == nullptr);
  if (!one_side && !(matched && t != nullptr && c.measures[i].reason == Reason::kShapeDiffers))
    return;
  const Dump& dump = t != nullptr ? c.target : c.golden;
  const Leaf& leaf = t != nullptr ? *t : *g;
  const std::string key = key_of(dump.records[leaf.record], leaf);
  if (key.empty()) return;
  Pieces& pieces = (*groups)[key];
  if (t != nullptr) pieces.target.push_back(t);
  if (g != nullptr) pieces.golden.push_back(g);
  pieces.rows.push_back(i);
}

// Whether the wholes of any group agree: then its rows are not counted.
bool Join(const Groups& groups, Comparison* c) {
  bool any = false;
  for (const auto& [key, pieces] : groups) {
    if (!Agree(*c, pieces)) continue;
    any = true;
    for (const uint32_t i : pieces.rows) {
      Measure& m = c->measures[i];
      m = {.tensor = m.tensor, .verdict = RowVerdict::kUnknown, .reason = Reason::kOtherParts};
    }
  }
  return any;
}

// Whether a row has a weight, its gradient or its state, and the other run has the transpose of it: a
// layer that multiplies by W beside one that multiplies by the transpose of W.
bool IsTransposedWeight(const Comparison& c, const Record& record, uint32_t i) {
  const Row& row = c.rows[i];
  if (c.measures[i].reason != Reason::kShapeDiffers || row.target < 0 || row.golden < 0)
    return false;
  const Leaf &t = c.target.leaves[row.target], &g = c.golden.leaves[row.golden];
  const bool weight =
      g.slot == Slot::kParameter || g.slot == Slot::kParameterGrad || IsOptimizerCall(record.api);
  return weight && t.has_stats && g.has_stats && IsTransposed(t.shape, g.shape) &&
         AgreeJoined(c, {&t}, {&g});
}

}  // namespace

bool JoinWeights(Comparison* c) {
  bool any = false;
  Groups of_modules;
  for (const RecordPair& pair : c->pairs) {
    const bool optimizer = pair.matched() && IsOptimizerCall(c->golden.records[pair.golden].api);
    Groups of_optimizer;
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      if (pair.matched() && IsTransposedWeight(*c, c->golden.records[pair.golden], i)) {
        Measure& m = c->measures[i];
        m = {.tensor = m.tensor, .verdict = RowVerdict::kNoise, .reason = Reason::kTransposed};
        any = true;
      } else if (optimizer) {
        Add(*c, i, /*matched=*/false, KeyOf, &of_optimizer);
      } else {
        Add(*c, i, /*matched=*/true, KeyBesideModules, &of_modules);
      }
    }
    any |= Join(of_optimizer, c);
  }
  return Join(of_modules, c) || any;
}

}  // namespace msprobe::compare
