// Bindings for `parse` of ptdbg_ascend, which shows pkl files and tensor files.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "cli/parse_tensors.h"
#include "convert.h"
#include "engine/dump/read/pkl_trace.h"
#include "engine/dump/read/tag_folder.h"

namespace msprobe::python {
namespace {

std::pair<std::string, std::vector<std::string>> Trace(const std::string& path,
                                                       const std::string& prefix) {
  dump::PklTrace trace = ValueOrRaise(dump::TracePklFile(path, prefix));
  return {std::move(trace.text), std::move(trace.warnings)};
}

std::string CompareFiles(const std::string& target, const std::string& golden, int64_t lines,
                         double absolute, double relative, bool save) {
  return ValueOrRaise(cli::CompareTensorFiles(
      target, golden, {.lines = lines, .absolute = absolute, .relative = relative, .save = save}));
}

}  // namespace

void BindParse(nb::module_& m) {
  using namespace nb::literals;
  m.def("trace_lines", &Trace, "path"_a, "prefix"_a,
        "The output of `msprobe parse`, and its warnings.");
  m.def(
      "has_numbered_lines",
      [](const std::string& path) { return ValueOrRaise(dump::HasNumberedLines(path)); }, "path"_a,
      "Whether torch_npu.hooks or ptdbg_ascend 0.1 wrote the file.");
  m.def("existing_tag", &dump::ExistingTag, "path"_a,
        "The path; if only the version in a folder name differs, the path below that folder.");
  m.def(
      "describe_tensor_file",
      [](const std::string& path) { return ValueOrRaise(cli::DescribeTensorFile(path)); }, "path"_a,
      "Shape, dtype, maximum, minimum and mean of a tensor file, as a line.");
  m.def("compare_tensor_files", &CompareFiles, "target"_a, "golden"_a, "lines"_a, "absolute"_a,
        "relative"_a, "save"_a, "Where two tensor files differ, as text.");
}

}  // namespace msprobe::python
