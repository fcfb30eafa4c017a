// While an object of this class lives, operations of this thread take no part in a derivative,
// neither backward nor forward: what they write to gets no graph and no tangent.
//
//   const WithoutGradients off;
//   CopyInto(part, weight);         // `part` requires no gradient afterwards
#pragma once

#include <Python.h>

namespace msprobe::capture {

// Needs the GIL. Leaves no Python error set.
class WithoutGradients {
 public:
  WithoutGradients();
  ~WithoutGradients();
  WithoutGradients(const WithoutGradients&) = delete;
  WithoutGradients& operator=(const WithoutGradients&) = delete;

 private:
  bool backward_ = false, forward_ = false;  // which were on
};

}  // namespace msprobe::capture
