// Bindings for `parse` of ptdbg_ascend, which shows pkl files.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "convert.h"
#include "engine/base/messages/message.h"
#include "engine/dump/read/pkl_trace.h"
#include "engine/dump/read/tag_folder.h"

namespace msprobe::python {
namespace {

std::pair<std::string, std::vector<std::string>> Trace(const std::string& path,
                                                       const std::string& prefix) {
  dump::PklTrace trace = ValueOrRaise(dump::TracePklFile(path, prefix));
  std::vector<std::string> warnings;
  for (const Message& warning : trace.warnings) warnings.push_back(warning.English());
  return {std::move(trace.text), std::move(warnings)};
}

}  // namespace

void BindParse(nb::module_& m) {
  using namespace nb::literals;
  m.def("trace_lines", &Trace, "path"_a, "prefix"_a,
        "The output of `msprobe parse FILE PREFIX`, and its warnings.");
  m.def(
      "has_numbered_lines",
      [](const std::string& path) { return ValueOrRaise(dump::HasNumberedLines(path)); }, "path"_a,
      "Whether torch_npu.hooks or ptdbg_ascend 0.1 wrote the file.");
  m.def("existing_tag", &dump::ExistingTag, "path"_a,
        "The path; if only the version in a folder name differs, the path below that folder.");
}

}  // namespace msprobe::python
