#include "engine/model/shape.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>

#include "engine/formats/tensors/tensor_file.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe {
namespace {

// A key of what came before and of one more extent.
constexpr uint64_t Mix(uint64_t key, uint64_t extent) {
  const auto product =
      static_cast<unsigned __int128>(key ^ 0x9e3779b97f4a7c15u) * (extent ^ 0xd6e8feb86659fd93u);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

std::optional<int64_t> Extent(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Calls visit(text) for what stands between brackets, commas and blanks.
template <typename Visit>
void ForEachWord(std::string_view text, Visit&& visit) {
  constexpr std::string_view kBetween = "[](), ";
  for (size_t begin = 0; (begin = text.find_first_not_of(kBetween, begin)) != text.npos;) {
    const size_t end = std::min(text.find_first_of("]),", begin), text.size());
    visit(text.substr(begin, end - begin));
    begin = end;
  }
}

// The product of the extents; -1 when int64_t does not hold it.
int64_t Product(std::span<const int64_t> extents) {
  if (std::find(extents.begin(), extents.end(), 0) != extents.end()) return 0;
  int64_t product = 1;
  for (const int64_t extent : extents) {
    if (__builtin_mul_overflow(product, extent, &product)) return -1;
  }
  return product;
}

// Whether `text` is a list of Python with these extents, "[2, 3]" or "(3,)".
bool IsList(std::string_view text, std::span<const int64_t> extents) {
  if (text.size() < 2 || text.find_first_of("[(", 1) != text.npos) return false;
  const char close = text.front() == '[' ? ']' : text.front() == '(' ? ')' : '\0';
  if (close == '\0' || text.find_first_of("])") != text.size() - 1 || text.back() != close)
    return false;
  const auto commas = static_cast<size_t>(std::count(text.begin(), text.end(), ','));
  const bool ends_with_comma = extents.size() == 1 && text[text.size() - 2] == ',';
  return commas + 1 == extents.size() + ends_with_comma || (extents.empty() && text.size() == 2);
}

}  // namespace

Shape Shape::Scalar() { return Shape(&kScalar); }

Shape Shape::NotRecorded() {
  static ShapePool pool;
  static const Shape shape = pool.Of("N/A");
  return shape;
}

Shape Shape::OfSlice() {
  static ShapePool pool;
  static const Shape shape = pool.Of("(3,)");
  return shape;
}

Shape ShapePool::Of(std::string_view text) {
  if (text.empty()) return Shape();
  if (text == Shape::kScalar.text) return Shape::Scalar();
  if (const auto found = by_text_.find(text); found != by_text_.end()) return Shape(found->second);
  Kept& kept = kept_.emplace_back(Kept{.text = std::string(text)});
  ShapeFacts& facts = kept.facts;
  bool known = true;
  ForEachWord(kept.text, [&](std::string_view word) {
    const std::optional<int64_t> extent = Extent(word);
    if (extent != 1)
      facts.key = Mix(
          facts.key, extent ? static_cast<uint64_t>(*extent) : std::hash<std::string_view>()(word));
    known = known && extent && kept.extents.size() < formats::kMaxTensorDimensions;
    if (known) kept.extents.push_back(*extent);
  });
  facts.text = kept.text;
  facts.known = known && IsList(kept.text, kept.extents);
  if (facts.known) {
    facts.extents = kept.extents;
    facts.elements = Product(kept.extents);
  } else {
    kept.extents = {};
  }
  bytes_ += sizeof(Kept) + 4 * sizeof(void*) + kept.text.capacity() +
            kept.extents.capacity() * sizeof(int64_t);
  by_text_.emplace(facts.text, &facts);
  return Shape(&facts);
}

Shape ShapePool::Of(std::span<const int64_t> extents) { return Of(ShapeText(extents)); }

void ShapePool::Take(ShapePool* other) {
  kept_.splice(kept_.end(), other->kept_);
  bytes_ += other->bytes_;
  *other = ShapePool();
}

bool SameWithoutOnes(std::span<const int64_t> a, std::span<const int64_t> b) {
  size_t i = 0, j = 0;
  for (;; ++i, ++j) {
    while (i < a.size() && a[i] == 1) ++i;
    while (j < b.size() && b[j] == 1) ++j;
    if (i == a.size() || j == b.size()) return i == a.size() && j == b.size();
    if (a[i] != b[j]) return false;
  }
}

}  // namespace msprobe
