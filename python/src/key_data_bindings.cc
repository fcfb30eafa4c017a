// Bindings for SingleSave and SingleComparator (python/msprobe/core/single_save/).
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <tuple>

#include "bindings.h"
#include "capture/calls/interpose.h"
#include "convert.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/key_data/key_data_compare.h"
#include "engine/key_data/key_data_writer.h"

namespace msprobe::python {
namespace {

using key_data::KeyDataWriter;

// The tensor's elements on the host, as float32 or what NumPy has: by methods of the framework,
// whose calls are not recorded.
nb::object OnHost(nb::handle tensor) {
  if (!nb::hasattr(tensor, "detach")) return tensor.attr("asnumpy")();  // MindSpore
  return tensor.attr("detach")().attr("cpu")().attr("float")();
}

void Save(const KeyDataWriter& writer, const std::string& key, std::string_view form,
          const std::vector<std::pair<std::string, nb::object>>& values, int rank,
          std::optional<int64_t> micro_step) {
  const capture::Interposer::Pause pause;
  std::deque<ArrayArgument> arrays;
  std::vector<key_data::KeyTensor> tensors;
  for (const auto& [name, value] : values) {
    arrays.emplace_back(OnHost(value));
    tensors.push_back({name, arrays.back().view()});
  }
  RaiseIfError(writer.Save(key,
                           form == "list"   ? key_data::KeyForm::kList
                           : form == "dict" ? key_data::KeyForm::kDict
                                            : key_data::KeyForm::kTensor,
                           tensors, rank, micro_step));
}

}  // namespace

void BindKeyData(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<KeyDataWriter>(m, "KeyDataWriter", "Writes values by name: key_data_writer.h.")
      .def(nb::init<std::string>(), "dump_path"_a)
      .def("save", &Save, "key"_a, "form"_a, "values"_a, "rank"_a, "micro_step"_a.none(),
           "form: \"tensor\", \"list\" or \"dict\"; values: [(name, tensor), ...].")
      .def("next_micro_step", &KeyDataWriter::NextMicroStep, "key"_a)
      .def("step", &KeyDataWriter::Step)
      .def_prop_ro("step_count", &KeyDataWriter::step)
      .def_prop_ro("dump_path", &KeyDataWriter::dump_path);
  m.attr("KEY_DATA_COLUMNS") = std::vector<std::string>(std::begin(key_data::kKeyDataColumns),
                                                        std::end(key_data::kKeyDataColumns));
  m.def(
      "compare_key_data",
      [](const std::string& first, const std::string& second, const std::string& output) {
        const key_data::KeyDataComparison found =
            ValueOrRaise(key_data::CompareKeyData(first, second, output));
        std::vector<std::string> errors;
        for (const Message& error : found.errors) errors.push_back(error.English());
        return std::tuple(found.keys, found.values, found.unequal, found.only_one, errors);
      },
      "first"_a, "second"_a, "output"_a, nb::call_guard<nb::gil_scoped_release>(),
      "(keys, values, unequal values, values of one side, errors); writes a table for each key.");
  m.def(
      "compare_key_values",
      [](nb::handle first, nb::handle second) {
        const ArrayArgument a(first), b(second);
        const key_data::KeyDifference d = key_data::CompareKeyValues(a.view(), b.view());
        return std::tuple(d.max_abs_error, d.max_rel_error, d.same, d.first_mismatch,
                          d.within_thousandth, d.within_hundredth);
      },
      "first"_a, "second"_a, "The fields of CompareResult, of two arrays.");
  m.def(
      "write_text",
      [](const std::string& path, std::string_view text) {
        RaiseIfError(MakeDirectories(DirectoryName(path)));
        RaiseIfError(WriteFileAtomically(path, text));
      },
      "path"_a, "text"_a, "A whole file, or the former one.");
}

}  // namespace msprobe::python
