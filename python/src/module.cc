// msprobe._engine: the engine as Python sees it. One function per engine folder; no logic here.
#include "bindings.h"
#include "capture/calls/interpose.h"
#include "capture/calls/observed_callable.h"
#include "capture/gradients/backward.h"
#include "capture/gradients/parameter_hooks.h"
#include "convert.h"
#include "engine/base/version.h"

NB_MODULE(_engine, m) {
  m.doc() = "The engine of msprobe.";
  m.attr("__version__") = nanobind::str(msprobe::kVersion.data(), msprobe::kVersion.size());
  msprobe::python::DefineErrors(m);
  msprobe::python::BindKernels(m);
  msprobe::python::BindCapture(m);
  msprobe::python::BindFront(m);
  msprobe::python::BindFacade(m);
  msprobe::python::BindKeyData(m);
  msprobe::python::BindPkl(m);
  msprobe::python::BindCompare(m);
  msprobe::python::BindPack(m);
  msprobe::python::BindParse(m);
  msprobe::python::BindAccuracy(m);
  msprobe::python::BindOverflow(m);
  msprobe::python::BindRounding(m);
  msprobe::python::BindReplay(m);
  msprobe::python::BindSelfcheck(m);
  if (!msprobe::capture::Interposer::Init() || !msprobe::capture::InitBackward() ||
      !msprobe::capture::ParameterHooks::Init() || !msprobe::capture::InitObservedCallable())
    throw nanobind::python_error();
}
