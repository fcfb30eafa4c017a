// How many elements of two gradients point in the same direction.
//
//   Directions target{.shape = {2}, .bytes = a.data()}, golden{.shape = {2}, .bytes = b.data()};
//   int64_t same = CountSame(target, golden);   // 0 to 2
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace msprobe::gradients {

// For each element of a gradient, in logical order, whether it is greater than zero.
struct Directions {
  std::vector<int64_t> shape;
  const uint8_t* bits = nullptr;   // the first element is the highest bit of the first byte
  const uint8_t* bytes = nullptr;  // or a byte for each element, any value but zero means "greater"
  std::shared_ptr<const void> owner;

  int64_t count() const;
  bool At(int64_t i) const;  // whether the i-th element is greater than zero
};

// Both must have the same count. A side may have bits and the other one bytes.
int64_t CountSame(const Directions& target, const Directions& golden);

// How many of the elements from `begin` on, up to `end`, have another direction.
int64_t CountDifferent(const Directions& target, const Directions& golden, int64_t begin,
                       int64_t end);

}  // namespace msprobe::gradients
