#include "engine/compare/layouts/whole_shape.h"

#include <algorithm>
#include <optional>
#include <span>

namespace msprobe::compare::layouts {
namespace {

// More are those of a damaged file.
constexpr int64_t kMostElements = int64_t{1} << 60;

// The number of elements; nullopt: more than are counted.
std::optional<int64_t> Elements(std::span<const int64_t> extents, int64_t times = 1) {
  int64_t n = times;
  for (const int64_t extent : extents) {
    if (extent < 0 || (extent > 0 && n > kMostElements / extent)) return std::nullopt;
    n *= extent;
  }
  return n;
}

// What the places of one side hold: so many parts of this shape.
struct Held {
  std::vector<int64_t> extents;
  int64_t places = 1;
  std::optional<int64_t> all() const { return Elements(extents, places); }
};

std::optional<Held> HeldBy(const HeldParts& side) {
  if (!side.bounded || !side.shape.known()) return std::nullopt;
  const std::span<const int64_t> own = side.shape.extents();
  if (side.uniform) return Held{{own.begin(), own.end()}, side.places()};
  if (side.units > 0 || side.side_by_side.empty()) return std::nullopt;
  return Held{side.side_by_side, 1};
}

WholeShape ShapeOf(std::vector<int64_t> extents) {
  return {.known = true, .extents = std::move(extents)};
}

// Both sides have parts of one shape.
WholeShape OfOneShape(const Held& a, const Held& b, bool gradient) {
  WholeShape whole = ShapeOf(a.extents);
  // Then each side's contents and exchanges tell whether its parts are copies or addends.
  if (a.places == 1 || a.places != b.places || Elements(a.extents) == 1 || a.extents.empty())
    return whole;
  if (gradient) {
    whole.summed = true;
    return whole;
  }
  whole.extents.front() *= a.places;
  whole.ordered = false;
  return whole;
}

// Whether the whole consists of parts of this shape.
bool Divides(const Held& held, const WholeShape& whole) {
  if (held.extents.size() != whole.extents.size()) return true;  // it has another form
  for (size_t d = 0; d < held.extents.size(); ++d) {
    const int64_t own = held.extents[d], all = whole.extents[d];
    if (own == 0 ? all != 0 : all % own != 0) return false;
  }
  return true;
}

WholeShape OfShapes(const Held& a, const Held& b, const OtherLayout& layout) {
  if (a.extents == b.extents) return OfOneShape(a, b, layout.gradient);
  if (a.extents.size() != b.extents.size()) {  // one side has it in another form
    if (*a.all() != *b.all() || (a.places > 1 && b.places > 1)) return {};
    return ShapeOf(a.places == 1 ? a.extents : b.extents);
  }
  std::vector<int64_t> larger(a.extents.size());
  std::vector<size_t> differ;
  for (size_t d = 0; d < larger.size(); ++d) {
    larger[d] = std::max(a.extents[d], b.extents[d]);
    if (a.extents[d] != b.extents[d]) differ.push_back(d);
  }
  const std::optional<int64_t> elements = Elements(larger);
  if (!elements || *elements == 0) return {};
  // The parts of one side fill it, and the other has copies, addends or shards of it.
  const auto is_less = [&](const Held& side) {
    return side.places == 1 && *side.all() < *elements;
  };
  if (is_less(a) || is_less(b)) return {};
  if (*a.all() == *elements || *b.all() == *elements) return ShapeOf(std::move(larger));
  // Both have shards of the larger extents, too.
  if (*a.all() != *b.all() || *a.all() % *elements != 0) return {};
  const int64_t times = *a.all() / *elements;
  WholeShape whole = ShapeOf(std::move(larger));
  whole.ordered = differ.size() == 1 && layout.one_way;
  whole.extents[whole.ordered ? differ.front() : 0] *= times;
  return whole;
}

}  // namespace

WholeShape WholeOf(const HeldParts& target, const HeldParts& golden, const OtherLayout& layout) {
  const auto extents_of = [](Shape shape) {
    return std::vector<int64_t>(shape.extents().begin(), shape.extents().end());
  };
  if (target.declared.known() && golden.declared.known()) {
    return extents_of(target.declared) == extents_of(golden.declared)
               ? ShapeOf(extents_of(target.declared))
               : WholeShape();
  }
  if (target.declared.known()) return ShapeOf(extents_of(target.declared));
  if (golden.declared.known()) return ShapeOf(extents_of(golden.declared));
  const std::optional<Held> a = HeldBy(target), b = HeldBy(golden);
  if (!a || !b || !a->all() || !b->all()) return {};
  WholeShape whole = OfShapes(*a, *b, layout);
  return whole.known && Divides(*a, whole) && Divides(*b, whole) ? whole : WholeShape();
}

}  // namespace msprobe::compare::layouts
