// Bindings for executing recorded calls again: which calls, their arguments, the elements of each.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "bindings.h"
#include "convert.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/tensors/tensor_data.h"
#include "engine/replay/input_numbers.h"
#include "engine/replay/recorded_call.h"
#include "engine/replay/reference_table.h"

namespace msprobe::python {
namespace {

using replay::Argument;

// A dump whose calls are executed again.
class Replay {
 public:
  Replay(const std::string& path, uint64_t seed)
      : dump_(ValueOrRaise(dump::ReadDump(path))), seed_(seed) {}
  Replay(const Replay&) = delete;

  nb::list Calls(const std::vector<std::string>& white, const std::vector<std::string>& black,
                 bool distinct) {
    calls_ = replay::CallsOf(dump_, {.white_list = {white.begin(), white.end()},
                                     .black_list = {black.begin(), black.end()},
                                     .distinct = distinct});
    nb::list names;
    for (const replay::RecordedCall& call : calls_)
      names.append(nb::make_tuple(call.name, call.skip));
    return names;
  }

  // (api, positional arguments, keyword arguments, gradients that arrived or None, results)
  nb::tuple Call(size_t index) const {
    const replay::RecordedCall& call = At(index);
    const Record& forward = dump_.records[call.forward];
    const replay::Arguments arguments = replay::ArgumentsOf(dump_, forward);
    nb::object gradients = nb::none();
    if (call.backward >= 0)
      gradients = Value(replay::ArgumentsOf(dump_, dump_.records[call.backward]).positional);
    nb::list results;
    for (const Leaf& leaf : dump_.LeavesOf(forward)) {
      const std::optional<DType> dtype = leaf.dtype.dtype();
      if (leaf.slot == Slot::kOutput && leaf.kind == LeafKind::kTensor)
        results.append(dtype ? std::string(DTypeShortName(*dtype)) : std::string());
    }
    return nb::make_tuple(std::string(forward.api.view()), Value(arguments.positional),
                          Value(arguments.keywords), gradients, results);
  }

  void Fill(int32_t index, nb::handle tensor, double low, double high) const {
    if (index < 0 || static_cast<size_t>(index) >= dump_.leaves.size())
      Raise(InvalidArgument(fmt::format("the dump has no value {}", index)));
    const Leaf& leaf = dump_.leaves[index];
    const ArrayArgument array(tensor);
    const TensorView& to = array.view();
    auto* const bytes = static_cast<std::byte*>(const_cast<void*>(to.data));
    if (dump::HasTensorData(leaf)) return Copy(leaf, to, bytes);
    const replay::InputNumbers wanted =
        ValueOrRaise(replay::InputNumbersOf(dump_, index, {.min = low, .max = high}));
    if (wanted.dtype != to.dtype || wanted.count != to.numel() || !to.IsContiguous())
      Raise(InvalidArgument("expected a contiguous tensor of the recorded dtype and shape"));
    replay::MakeNumbers(wanted, replay::SeedOf(leaf.name.view(), seed_), {bytes, wanted.bytes()});
  }

  // The line of the program that made the call; "".
  std::string Line(size_t index) const {
    const int32_t stack = dump_.records[At(index).forward].stack;
    if (stack < 0) return "";
    const auto& frames = dump_.stacks[stack];
    return frames.empty() ? "" : std::string(frames.front());
  }

 private:
  const replay::RecordedCall& At(size_t index) const {
    if (index >= calls_.size()) Raise(InvalidArgument(fmt::format("there is no call {}", index)));
    return calls_[index];
  }

  void Copy(const Leaf& leaf, const TensorView& to, std::byte* bytes) const {
    const formats::TensorFile file = ValueOrRaise(dump::ReadTensorData(dump_, leaf));
    const TensorView from = file.view();
    if (from.dtype != to.dtype || from.numel() != to.numel() || !to.IsContiguous()) {
      Raise(InvalidDump(leaf.name.view(), std::nullopt)
                .Expected(fmt::format("a file with {} elements of {}", to.numel(),
                                      DTypeTorchName(to.dtype)))
                .Found(fmt::format("{} of {}", from.numel(), DTypeTorchName(from.dtype))));
    }
    const size_t size = DTypeSize(from.dtype);
    const auto* const source = static_cast<const std::byte*>(from.data);
    const StridedRuns runs = MakeRuns(from);
    runs.ForEach(0, runs.count, [&](int64_t offset) {
      for (int64_t i = 0; i < runs.run; ++i, bytes += size)
        std::memcpy(bytes, source + (offset + i * runs.run_stride) * static_cast<int64_t>(size),
                    size);
    });
  }

  // Lists and dictionaries of ("tensor", leaf, dtype, shape, requires_grad) and (type, text).
  nb::object Value(const Argument& argument) const {
    if (argument.kind == Argument::Kind::kList) {
      nb::list values;
      for (const Argument& value : argument.values) values.append(Value(value));
      return values;
    }
    if (argument.kind == Argument::Kind::kDictionary) {
      nb::dict values;
      for (size_t i = 0; i < argument.values.size(); ++i)
        values[nb::str(argument.names[i].c_str())] = Value(argument.values[i]);
      return values;
    }
    if (argument.leaf < 0) return nb::make_tuple();  // an empty list has no value in the dump
    const Leaf& leaf = dump_.leaves[argument.leaf];
    if (leaf.kind == LeafKind::kNone) return nb::none();
    if (leaf.kind == LeafKind::kScalar)
      return nb::make_tuple(std::string(leaf.type.view()), std::string(leaf.value.view()));
    const std::optional<DType> dtype = leaf.dtype.dtype();
    nb::list shape;
    for (const int64_t extent : leaf.shape.extents()) shape.append(extent);
    return nb::make_tuple("tensor", argument.leaf,
                          dtype ? std::string(DTypeShortName(*dtype)) : std::string(), shape,
                          leaf.requires_grad == "True");
  }

  Dump dump_;
  uint64_t seed_;
  std::vector<replay::RecordedCall> calls_;
};

}  // namespace

void BindReplay(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Replay>(m, "Replay", "A dump whose calls are executed again.")
      .def(nb::init<const std::string&, uint64_t>(), "path"_a, "seed"_a)
      .def("calls", &Replay::Calls, "white_list"_a, "black_list"_a, "distinct"_a,
           "[(name, why it is skipped or \"\")], in the order of the dump.")
      .def("call", &Replay::Call, "index"_a,
           "(api, positional arguments, keyword arguments, gradients or None, dtypes of the "
           "results); "
           "a tensor is (\"tensor\", number, dtype, shape, requires_grad), an empty list (), "
           "another "
           "value (type, text).")
      .def("fill", &Replay::Fill, "number"_a, "tensor"_a, "low"_a, "high"_a,
           "Write the recorded elements, or elements with the recorded statistics, into a "
           "contiguous tensor; low and high: the range where no statistic was recorded.")
      .def("line", &Replay::Line, "index"_a, "The source line of a call.");
  m.def(
      "read_references",
      [](const std::string& path) {
        std::map<std::string, std::pair<std::string, std::string>> table;
        for (const auto& [api, reference] : ValueOrRaise(replay::ReadReferenceTable(path)))
          table.emplace(api, std::pair(reference.file, reference.function));
        return table;
      },
      "path"_a, "{API: (file, function)}: what computes golden results.");
}

}  // namespace msprobe::python
