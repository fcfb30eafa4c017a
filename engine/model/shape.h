// The shape of a recorded value: its extents, and its text as tables print it.
//
//   ShapePool pool;                               // one for each dump or reading thread
//   const Shape s = pool.Of("[2, 1, 3]");         // the spelling of every dialect
//   s.elements();                                 // 6
//   s.SameWithoutOnes(pool.Of("[2, 3]"));         // true
//   Print(s.view());                              // "[2, 1, 3]"
//
// A Shape takes 8 bytes: values are held by the million, and their shapes are few. It is valid as
// long as the pool that made it, or the pool that took its shapes (Dump::shapes).
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace msprobe {

// What a Shape refers to.
struct ShapeFacts {
  std::string_view text;
  std::span<const int64_t> extents;
  int64_t elements = -1;
  uint64_t key = 0;  // Shape::key_without_ones
  bool known = false;
};

class Shape {
 public:
  Shape() = default;           // none was recorded: ""
  static Shape Scalar();       // "[]": a value without dimensions
  static Shape NotRecorded();  // "N/A", as tables have it for None
  static Shape OfSlice();      // "(3,)", as msprobe spells a slice

  // As the dump spells it.
  std::string_view view() const { return facts_->text; }
  operator std::string_view() const { return view(); }  // NOLINT: as a view
  bool empty() const { return view().empty(); }

  // Whether the extents say as much as the text. They do not for "", "N/A", extents with names
  // ("[s0, 4]"), extents below zero or beyond int64_t, and of too many of them
  // (formats::kMaxTensorDimensions).
  bool known() const { return facts_->known; }
  std::span<const int64_t> extents() const { return facts_->extents; }  // none when not known
  // -1: not known, or more than int64_t holds.
  int64_t elements() const { return facts_->elements; }
  bool is_scalar() const { return known() && extents().empty(); }

  // Whether nothing but dimensions of extent 1 tells the two apart: [2, 1, 3] and [2, 3].
  bool SameWithoutOnes(Shape other) const { return key_without_ones() == other.key_without_ones(); }
  // A hash. It is equal for shapes of which SameWithoutOnes holds.
  uint64_t key_without_ones() const { return facts_->key; }

  // The same text.
  friend bool operator==(Shape a, Shape b) {
    return a.facts_ == b.facts_ || (a.facts_->key == b.facts_->key && a.view() == b.view());
  }
  friend bool operator==(Shape a, std::string_view text) { return a.view() == text; }
  friend bool operator==(Shape a, const char* text) { return a.view() == text; }

 private:
  friend class ShapePool;
  static constexpr ShapeFacts kEmpty{};
  static constexpr ShapeFacts kScalar{.text = "[]", .elements = 1, .known = true};
  explicit Shape(const ShapeFacts* facts) : facts_(facts) {}

  const ShapeFacts* facts_ = &kEmpty;
};
static_assert(sizeof(Shape) == 8);

// Keeps what the shapes of a dump stand for, each text once.
class ShapePool {
 public:
  // "[2, 3]", "(2, 3)", "(3,)", "[]". Any other text is a shape that is not known.
  Shape Of(std::string_view text);
  Shape Of(std::span<const int64_t> extents);
  // The shapes of `other` become this pool's, and stay valid.
  void Take(ShapePool* other);
  uint64_t bytes() const { return bytes_; }

 private:
  struct Kept {
    std::string text;
    std::vector<int64_t> extents;
    ShapeFacts facts;
  };
  std::list<Kept> kept_;
  std::unordered_map<std::string_view, const ShapeFacts*> by_text_;
  uint64_t bytes_ = 0;
};

// Whether nothing but dimensions of extent 1 tells the extents of two tensors apart.
bool SameWithoutOnes(std::span<const int64_t> a, std::span<const int64_t> b);

}  // namespace msprobe
