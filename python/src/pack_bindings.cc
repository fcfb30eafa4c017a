// Bindings for packs: msprobe.load(path)[name] is a view of the mapped file.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bindings.h"
#include "convert.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/dump/read/unpack.h"
#include "engine/formats/tensors/tensor_pack.h"
#include "engine/tensor/dlpack.h"

namespace msprobe::python {
namespace {

using formats::TensorPack;

nb::dlpack::dtype ToDlpack(DType wanted) {
  // dlpack.h has the table in the other direction; it is small.
  for (int code = 0; code < 32; ++code) {
    for (const int bits : {1, 4, 8, 16, 32, 64, 128}) {
      for (const int lanes : {1, 2}) {
        const std::optional<DType> dtype = dlpack::ToDType(
            {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), static_cast<uint16_t>(lanes)});
        if (dtype == wanted)
          return {static_cast<uint8_t>(code), static_cast<uint8_t>(bits),
                  static_cast<uint16_t>(lanes)};
      }
    }
  }
  Raise(Unsupported(
      "{} has no DLPack dtype; msprobe unpack writes it as a file"_t(DTypeTorchName(wanted))));
}

nb::object View(const TensorPack& pack, const std::string& name) {
  const formats::PackEntry* entry = pack.Find(name);
  if (entry == nullptr) throw nb::key_error(name.c_str());
  // The array's owner: keeps the file mapped.
  auto tensor = std::make_unique<formats::TensorFile>(ValueOrRaise(pack.Read(*entry)));
  const std::vector<size_t> shape(tensor->shape.begin(), tensor->shape.end());
  const void* data = tensor->data;
  const nb::capsule owner(tensor.release(),
                          [](void* p) noexcept { delete static_cast<formats::TensorFile*>(p); });
  return nb::cast(nb::ndarray<nb::array_api, nb::ro, nb::device::cpu>(
      data, shape.size(), shape.data(), owner, nullptr, ToDlpack(entry->dtype)));
}

TensorPack Load(nb::handle path) {
  const std::string text = PathArgument("path", path).value_or("");
  const std::string pack = dump::PackOf(text);
  if (pack.empty()) {
    Raise(NotFound(text)
              .Expected("a pack of tensors (tensors.pack), or a dump with one"_t)
              .Hint("torch.load reads the .pt files of other dumps"_t));
  }
  return ValueOrRaise(TensorPack::Open(DirectoryName(pack), BaseName(pack)));
}

std::vector<std::string> NamesOf(const TensorPack& pack) {
  std::vector<std::string> names;
  for (const formats::PackEntry& entry : pack.entries()) names.push_back(entry.name);
  return names;
}

}  // namespace

void BindPack(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<TensorPack>(m, "TensorPack",
                         "The tensors of a step in one file, by name. Elements are not copied.")
      .def("__getitem__", &View, "name"_a,
           "A read-only array with the buffer protocol and DLPack: numpy.asarray(pack[name]), "
           "torch.from_dlpack(pack[name]). Raises KeyError; DumpError if the elements are damaged.")
      .def("__len__", [](const TensorPack& pack) { return pack.entries().size(); })
      .def("__contains__", [](const TensorPack& pack,
                              const std::string& name) { return pack.Find(name) != nullptr; })
      .def("__iter__", [](const TensorPack& pack) { return nb::iter(nb::cast(NamesOf(pack))); })
      .def("keys", &NamesOf, "The names in the order in which the tensors were written.");
  m.def("load", &Load, "path"_a,
        "Opens the pack of a dump: tensors.pack, its folder, or the folder of dump.json.");
}

}  // namespace msprobe::python
