// One binding function per engine folder.
#pragma once

#include <nanobind/nanobind.h>

namespace msprobe::python {

void BindKernels(nanobind::module_& m);
void BindCapture(nanobind::module_& m);

}  // namespace msprobe::python
