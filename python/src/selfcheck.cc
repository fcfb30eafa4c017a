#include <nanobind/stl/string.h>

#include "bindings.h"
#include "convert.h"
#include "engine/formats/archive/zip.h"
#include "engine/kernels/stats.h"
#include "engine/selfcheck/run_log.h"

namespace msprobe::python {

void BindSelfcheck(nb::module_& m) {
  using namespace nb::literals;
  nb::enum_<selfcheck::ValueKind>(m, "ValueKind", "What a value is to a training.")
      .value("WEIGHT", selfcheck::ValueKind::kWeight)
      .value("LOSS", selfcheck::ValueKind::kLoss)
      .value("GRADIENT", selfcheck::ValueKind::kGradient)
      .value("RANDOM", selfcheck::ValueKind::kRandom);
  nb::class_<selfcheck::RunLogWriter>(m, "RunLog",
                                      "Fingerprints of what a training computes, step by step.")
      .def(
          nb::new_([](const std::string& path) {
            return new selfcheck::RunLogWriter(ValueOrRaise(selfcheck::RunLogWriter::Create(path)));
          }),
          "path"_a)
      .def("tensor",
           [](selfcheck::RunLogWriter& log, selfcheck::ValueKind kind, const std::string& name,
              nb::handle tensor) {
             const ArrayArgument array(tensor);
             log.Value(kind, name, kernels::ComputeStats(array.view()).fingerprint);
           })
      .def("bytes",
           [](selfcheck::RunLogWriter& log, selfcheck::ValueKind kind, const std::string& name,
              nb::bytes bytes) {
             log.Value(kind, name, formats::Crc32({bytes.c_str(), bytes.size()}));
           })
      .def("end_step",
           [](selfcheck::RunLogWriter& log, int64_t ns) { RaiseIfError(log.EndStep(ns)); })
      .def("end", [](selfcheck::RunLogWriter& log) { RaiseIfError(log.End()); })
      .def("note", [](selfcheck::RunLogWriter& log, const std::string& text) {
        RaiseIfError(log.Note(text));
      });
}

}  // namespace msprobe::python
