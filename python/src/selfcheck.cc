#include <nanobind/stl/string.h>

#include "bindings.h"
#include "convert.h"
#include "engine/formats/zip.h"
#include "engine/kernels/stats.h"
#include "engine/selfcheck/run_log.h"

namespace msprobe::python {

void BindSelfcheck(nb::module_& m) {
  using namespace nb::literals;
  nb::enum_<ValueKind>(m, "ValueKind", "What a value is to a training.")
      .value("WEIGHT", ValueKind::kWeight)
      .value("LOSS", ValueKind::kLoss)
      .value("GRADIENT", ValueKind::kGradient)
      .value("RANDOM", ValueKind::kRandom);
  nb::class_<RunLogWriter>(m, "RunLog", "Fingerprints of what a training computes, step by step.")
      .def(nb::new_([](const std::string& path) {
             return new RunLogWriter(ValueOrRaise(RunLogWriter::Create(path)));
           }),
           "path"_a)
      .def("tensor",
           [](RunLogWriter& log, ValueKind kind, const std::string& name, nb::handle tensor) {
             const ArrayArgument array(tensor);
             log.Value(kind, name, ComputeStats(array.view()).fingerprint);
           })
      .def("bytes",
           [](RunLogWriter& log, ValueKind kind, const std::string& name, nb::bytes bytes) {
             log.Value(kind, name, Crc32({bytes.c_str(), bytes.size()}));
           })
      .def("end_step", [](RunLogWriter& log, int64_t ns) { RaiseIfError(log.EndStep(ns)); })
      .def("end", [](RunLogWriter& log) { RaiseIfError(log.End()); })
      .def("note",
           [](RunLogWriter& log, const std::string& text) { RaiseIfError(log.Note(text)); });
}

}  // namespace msprobe::python
