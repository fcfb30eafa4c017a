// One binding function per engine folder, and for what the Python side needs.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace msprobe::python {

// Before the first recording: PyTorch is looked at, forked children forget our files, and frames of
// `own_directory` are none of the program's.
void PrepareCapture(const std::string& own_directory);

void BindKernels(nanobind::module_& m);
void BindCapture(nanobind::module_& m);
void BindFront(nanobind::module_& m);
void BindPkl(nanobind::module_& m);
void BindCompare(nanobind::module_& m);
void BindParse(nanobind::module_& m);
void BindSelfcheck(nanobind::module_& m);

}  // namespace msprobe::python
