// A tensor of a device by which something is decided when its numbers come: whether a call is
// recorded. The program goes on meanwhile, and may change the tensor; its elements, as they were,
// come to the host with the numbers and are held until the decision.
//
//   const auto late = std::make_shared<LateTensor>();
//   const auto elements = HeldElements::Reserve(DType::kFloat32, shape);  // null: there is no room
//   late->elements = elements;
//   reader.Ask(tensor, {.dtype = DType::kFloat32, .shape = shape, .late = late});
//   // later
//   if (late->arrived) Nonfinite().Add(late->numbers.stats);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/model/deferred_numbers.h"
#include "engine/model/entry.h"
#include "engine/model/nonfinite.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::capture {

// Elements on the host, contiguous.
class HeldElements {
 public:
  // Of all objects of this class together: 512 MB, twice what gradients may have that wait for
  // others; MSPROBE_HELD_MB is another number.
  static int64_t MostBytes();

  // Room for a tensor; null where there would be more than MostBytes.
  static std::shared_ptr<HeldElements> Reserve(DType dtype, std::span<const int64_t> shape);
  explicit HeldElements(DType dtype, std::span<const int64_t> shape, int64_t bytes);
  ~HeldElements();
  HeldElements(const HeldElements&) = delete;
  HeldElements& operator=(const HeldElements&) = delete;

  void Take(const TensorView& view);  // of the same dtype and shape
  TensorView view() const;            // after Take

 private:
  DType dtype_;
  std::vector<int64_t> shape_;
  int64_t bytes_;
  std::unique_ptr<char[]> data_;
};

struct LateTensor {
  bool arrived = false;
  DeferredNumbers numbers;  // its ticket from the beginning, all of it once it has arrived
  // Gets the elements, where somebody still holds it.
  std::weak_ptr<HeldElements> elements;

  void Arrive(const DeferredNumbers& found, const TensorView& view);
  // Whether both have arrived, and had the same elements.
  bool Equals(const LateTensor& other) const;
};

using LateTensors = std::vector<std::shared_ptr<LateTensor>>;

// Fills the numbers that have arrived into the tensors of an entry.
void Resolve(const LateTensors& arrived, Entry* entry);

// Which kinds of non-finite numbers some values hold: of those that are known, and of tensors whose
// numbers come later.
struct LateNonfinite {
  Nonfinite here;
  LateTensors late;

  void Add(const LateNonfinite& other);
  Nonfinite Known() const;  // with the tensors that have arrived
};

// The tensors of both.
LateTensors Joined(const LateNonfinite& a, const LateNonfinite& b);

}  // namespace msprobe::capture
