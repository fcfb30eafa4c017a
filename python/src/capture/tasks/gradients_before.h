// What lay in .grad of the models' parameters when a backward pass began, as one entry for each
// pass that found something (engine/model/gradients_before.h).
//
//   before.Begin(has_models);   // at start; true: the header of the dump may say so
//   // at each gradient that arrives: the first one of a pass is its beginning
//   before.OnArrival();
//   before.End();               // at stop
#pragma once

#include <Python.h>

#include "capture/modules/parameter_names.h"
#include "capture/recording/recording.h"

namespace msprobe::capture {

class GradientsBefore {
 public:
  // `names`: of the models' parameters.
  GradientsBefore(Recording* recording, ParameterNames* names)
      : recording_(recording), names_(names) {}

  // Whether passes are recorded from now on.
  bool Begin(bool has_models);
  void End() { on_ = false; }
  // `complete`: a .grad to which this pass has added already, which is not recorded; null: there is
  // none. Costs nothing after the first call in a pass.
  void OnArrival(PyObject* complete = nullptr);

 private:
  void Record(PyObject* complete);

  Recording* recording_;
  ParameterNames* names_;
  bool on_ = false;
  bool knows_models_ = false, said_in_header_ = false;
};

}  // namespace msprobe::capture
