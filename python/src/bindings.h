// One binding function per engine folder, and for what the Python side needs.
#pragma once

#include <nanobind/nanobind.h>

namespace msprobe::python {

void BindKernels(nanobind::module_& m);
void BindCapture(nanobind::module_& m);
void BindFront(nanobind::module_& m);
void BindCompare(nanobind::module_& m);
void BindSelfcheck(nanobind::module_& m);

}  // namespace msprobe::python
