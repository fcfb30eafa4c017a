// Which bytes of an allocation nobody has written yet.
//
//   UnwrittenBytes buffer(memory, 4096);       // torch.empty(1024)
//   buffer.Write(view);                        // every element of the view was written
//   const bool unwritten = buffer.Shows(other);  // the other view has one that nobody wrote
#pragma once

#include <cstdint>
#include <map>

#include "engine/tensor/tensor_view.h"

namespace msprobe {

class UnwrittenBytes {
 public:
  // All `size` bytes from `data` on are unwritten.
  UnwrittenBytes(const void* data, uint64_t size);

  // The elements of the view, wherever they are, are written. A view of more than a few thousand
  // separate runs is left out: its bytes stay unwritten.
  void Write(const TensorView& view);
  // Whether an element of the view lies in unwritten bytes. Of a view of more than a few thousand
  // separate runs: whether unwritten bytes lie between its first and its last element.
  bool Shows(const TensorView& view) const;
  bool empty() const { return ranges_.empty(); }

 private:
  void Remove(uintptr_t begin, uintptr_t end);
  bool Overlaps(uintptr_t begin, uintptr_t end) const;

  std::map<uintptr_t, uintptr_t> ranges_;  // begin -> end; neither overlap nor touch
};

}  // namespace msprobe
