// Functions that add bindings to the module; each is one file.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace msprobe::python {

// To be called before the first recording: looks up the types of the framework ("pytorch",
// "mindspore"), makes forked children forget our files, and hides frames of files below
// `own_directory` from stacks.
void PrepareCapture(const std::string& own_directory, std::string_view framework = "pytorch");

void BindKernels(nanobind::module_& m);
void BindCapture(nanobind::module_& m);
void BindFront(nanobind::module_& m);
void BindFacade(nanobind::module_& m);
void BindKeyData(nanobind::module_& m);
void BindPkl(nanobind::module_& m);
void BindCompare(nanobind::module_& m);
void BindPack(nanobind::module_& m);
void BindParse(nanobind::module_& m);
void BindAccuracy(nanobind::module_& m);
void BindOverflow(nanobind::module_& m);
void BindReplay(nanobind::module_& m);
void BindRounding(nanobind::module_& m);
void BindSelfcheck(nanobind::module_& m);

}  // namespace msprobe::python
