#include "engine/compare/model/value_names.h"

#include <algorithm>

#include "engine/compare/model/record_keys.h"
#include "engine/model/names.h"
#include "engine/model/parameter_names.h"

namespace msprobe::compare {
namespace {

// The side of a row that is named: the target's, where it has one.
struct Side {
  const Dump& dump;
  const Leaf& leaf;
};

Side SideOf(const Comparison& c, int32_t row) {
  const Row& r = c.rows[row];
  return r.target >= 0 ? Side{c.target, c.target.leaves[r.target]}
                       : Side{c.golden, c.golden.leaves[r.golden]};
}

std::string_view PathOf(const Leaf& leaf, const Record& record) {
  std::string_view path = LeafSuffix(leaf, record);
  while (path.starts_with('.') || path.starts_with('_')) path.remove_prefix(1);
  return path.empty() ? leaf.name.view() : path;
}

// "training" of "input.5", "tensors.1" of "input.0.1", "dim" of the keyword argument "input.dim",
// "changed.running_mean" of "changed.input.1". "" when the name is not known.
std::string ArgumentName(const Dump& dump, const Leaf& leaf, std::string_view path) {
  const Record& record = dump.records[leaf.record];
  if (record.is_module) return "";
  constexpr std::string_view kChanged = "changed.", kInput = "input.";
  const bool changed = leaf.slot == Slot::kOutput && path.starts_with(kChanged);
  if (changed) path.remove_prefix(kChanged.size());
  if (!path.starts_with(kInput)) return "";
  path.remove_prefix(kInput.size());
  if (leaf.slot == Slot::kKwarg) return std::string(path);
  if (leaf.slot != Slot::kInput && !changed) return "";
  const std::string_view digits = path.substr(0, path.find('.'));
  const int64_t index = NumberAfter(digits, "");
  std::string name = index < 0 ? "" : ParameterName(dump, record, static_cast<size_t>(index));
  if (name.empty()) return "";
  return (changed ? std::string(kChanged) : "") + name + std::string(path.substr(digits.size()));
}

// The pair that a row belongs to.
size_t PairOf(const Comparison& c, int32_t row) {
  const auto next =
      std::upper_bound(c.pairs.begin(), c.pairs.end(), static_cast<uint32_t>(row),
                       [](uint32_t at, const RecordPair& pair) { return at < pair.first_row; });
  return static_cast<size_t>(next - c.pairs.begin()) - 1;
}

// Number `index` of the tensors that the call was given; null: it has fewer.
const Leaf* TensorGiven(const Dump& dump, const Record& record, int64_t index) {
  for (const Leaf& leaf : dump.LeavesOf(record)) {
    const bool given = leaf.slot == Slot::kInput || leaf.slot == Slot::kKwarg;
    if (given && leaf.kind == LeafKind::kTensor && index-- == 0) return &leaf;
  }
  return nullptr;
}

// What the gradient is the gradient of: "output.0" of what goes into a backward call, "weight" of
// what comes out. "" when it is not known.
std::string DifferentiatedName(const Dump& dump, const Leaf& leaf, int32_t forward,
                               std::string_view path) {
  if (!FactsOf(dump.dialect).orders_gradients_by_argument) return "";
  if (leaf.slot == Slot::kInput && path.starts_with("input."))
    return "output." + std::string(path.substr(6));
  const int64_t index = leaf.slot == Slot::kOutput ? NumberAfter(path, "output.") : -1;
  if (index < 0 || forward < 0) return "";
  const Record& call = dump.records[forward];
  const Leaf* given = TensorGiven(dump, call, index);
  if (given == nullptr) return "";
  const std::string_view place = PathOf(*given, call);
  std::string name = ArgumentName(dump, *given, place);
  return name.empty() ? std::string(place) : name;
}

}  // namespace

std::string_view LeafPath(const Leaf& leaf, const Record& record) { return PathOf(leaf, record); }

std::string_view LeafPath(const Comparison& c, int32_t row) {
  const Side side = SideOf(c, row);
  return PathOf(side.leaf, side.dump.records[side.leaf.record]);
}

Message LeafLabel(const Dump& dump, const Leaf& leaf, int32_t forward) {
  const Record& record = dump.records[leaf.record];
  const std::string_view path = PathOf(leaf, record);
  std::string name;
  if (record.direction == Direction::kBackward) {
    if (std::string of = DifferentiatedName(dump, leaf, forward, path); !of.empty())
      return "the gradient of {}"_t(std::move(of));
  } else if (record.direction == Direction::kForward) {
    name = ArgumentName(dump, leaf, path);
  }
  return "{}"_t(name.empty() ? std::string(path) : name);
}

Message LeafLabel(const Comparison& c, int32_t row) {
  const Side side = SideOf(c, row);
  const size_t pair = c.forward_of.empty() ? 0 : PairOf(c, row);
  const int32_t forward = pair < c.forward_of.size() ? c.forward_of[pair] : -1;
  const bool in_target = &side.dump == &c.target;
  return LeafLabel(side.dump, side.leaf,
                   forward < 0 ? -1
                   : in_target ? c.pairs[forward].target
                               : c.pairs[forward].golden);
}

}  // namespace msprobe::compare
