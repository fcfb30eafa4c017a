// Bindings for executing recorded calls again: which calls, their arguments, the elements of each.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "bindings.h"
#include "convert.h"
#include "engine/accuracy/rounding_judge.h"
#include "engine/base/messages/message.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/tensors/tensor_data.h"
#include "engine/isolation/nearer.h"
#include "engine/replay/input_numbers.h"
#include "engine/replay/recorded_call.h"
#include "engine/replay/reference_table.h"

namespace msprobe::python {
namespace {

using replay::Argument;

// Measures the results of one call after the other, for `msprobe replay`. It has the methods of
// PreCheck that a worker calls.
class NearerCheck {
 public:
  void Begin(const std::string& name, const std::string& skip) {
    call_ = {.name = name, .why = skip};
    judges_.Clear();
  }
  void Skip(const std::string& why) { call_.why = why, call_.outputs.clear(); }
  void Made() { call_.made = true; }
  void Note(const Message& text) { call_.note = Message::Joined({call_.note, text}, "; "); }
  void Output(const std::string& place, nb::handle recorded, nb::handle again, nb::handle exact) {
    const ArrayArgument here(again), truth(exact);
    std::optional<ArrayArgument> there;
    if (!recorded.is_none()) there.emplace(recorded);
    Result<isolation::OutputError> measured = isolation::MeasureOutput(
        place, there ? &there->view() : nullptr, here.view(), truth.view());
    if (!measured.ok()) return Note("{}: {}"_t(place, measured.status().AsMessage()));
    call_.outputs.push_back(*std::move(measured));
    judges_.Add(place, accuracy::RoundingJudge(there ? there->view() : here.view(), truth.view(),
                                               here.view().dtype));
  }
  // Whether a recorded result is farther from float64 than its dtype explains.
  bool Failed() {
    return std::any_of(call_.outputs.begin(), call_.outputs.end(), [&](const auto& output) {
      return output.has_recorded && !isolation::IsExact(Judged(output));
    });
  }
  accuracy::RoundingJudges& judges() { return judges_; }
  std::string End() {
    for (isolation::OutputError& output : call_.outputs) output = Judged(output);
    return isolation::ToLine(call_);
  }

 private:
  isolation::OutputError Judged(isolation::OutputError output) {
    if (accuracy::RoundingJudge* const judge = judges_.At(output.place))
      output.rounding = judge->verdict();
    return output;
  }

  accuracy::RoundingJudges judges_;
  isolation::ReplayedCall call_;
};

// A dump whose calls are executed again.
class Replay {
 public:
  Replay(const std::string& path, uint64_t seed)
      : dump_(ValueOrRaise(dump::ReadDump(path))), seed_(seed) {}
  Replay(const Replay&) = delete;

  nb::list Calls(const std::vector<std::string>& white, const std::vector<std::string>& black,
                 bool distinct, bool functions) {
    calls_ = replay::CallsOf(dump_, {.white_list = {white.begin(), white.end()},
                                     .black_list = {black.begin(), black.end()},
                                     .distinct = distinct,
                                     .functions = functions});
    nb::list names;
    for (const replay::RecordedCall& call : calls_)
      names.append(nb::make_tuple(call.name, call.skip.English()));
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

  // {"forward.output.0": tensor}: the results and gradients whose elements were stored, by the
  // place that each has among the results of a replay.
  nb::dict Recorded(size_t index) const {
    const replay::RecordedCall& call = At(index);
    nb::dict recorded;
    for (const int32_t at : {call.forward, call.backward}) {
      if (at < 0) continue;
      const Record& record = dump_.records[at];
      int64_t place = 0;
      for (const Leaf& leaf : dump_.LeavesOf(record)) {
        if (leaf.slot != Slot::kOutput) continue;
        const bool forward = at == call.forward;
        if (forward && leaf.kind != LeafKind::kTensor) continue;
        const int64_t here = place++;
        if (leaf.kind != LeafKind::kTensor || !dump::HasTensorData(leaf)) continue;
        const replay::Argument argument{.leaf = static_cast<int32_t>(&leaf - dump_.leaves.data())};
        const std::string key = fmt::format("{}.output.{}", forward ? "forward" : "backward", here);
        recorded[nb::str(key.c_str())] = Value(argument);
      }
    }
    return recorded;
  }

  // Whether elements of an argument were not stored.
  bool Makes(size_t index) const {
    const replay::RecordedCall& call = At(index);
    for (const int32_t at : {call.forward, call.backward}) {
      if (at < 0) continue;
      for (const Leaf& leaf : dump_.LeavesOf(dump_.records[at])) {
        const bool given = leaf.slot == Slot::kInput || leaf.slot == Slot::kKwarg;
        if (given && leaf.kind == LeafKind::kTensor && !dump::HasTensorData(leaf)) return true;
      }
    }
    return false;
  }

  void Fill(int32_t index, nb::handle tensor, double low, double high) const {
    if (index < 0 || static_cast<size_t>(index) >= dump_.leaves.size())
      Raise(InvalidArgument("the dump has no value {}"_t(index)));
    const Leaf& leaf = dump_.leaves[index];
    const ArrayArgument array(tensor);
    const TensorView& to = array.view();
    auto* const bytes = static_cast<std::byte*>(const_cast<void*>(to.data));
    if (dump::HasTensorData(leaf)) return Copy(leaf, to, bytes);
    const replay::InputNumbers wanted =
        ValueOrRaise(replay::InputNumbersOf(dump_, index, {.min = low, .max = high}));
    if (wanted.dtype != to.dtype || wanted.count != to.numel() || !to.IsContiguous())
      Raise(InvalidArgument("expected a contiguous tensor of the recorded dtype and shape"_t));
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
    if (index >= calls_.size()) Raise(InvalidArgument("there is no call {}"_t(index)));
    return calls_[index];
  }

  void Copy(const Leaf& leaf, const TensorView& to, std::byte* bytes) const {
    const formats::TensorFile file = ValueOrRaise(dump::ReadTensorData(dump_, leaf));
    const TensorView from = file.view();
    if (from.dtype != to.dtype || from.numel() != to.numel() || !to.IsContiguous()) {
      Raise(InvalidDump(leaf.name.view(), std::nullopt)
                .Expected("a file with {} elements of {}"_t(to.numel(), DTypeTorchName(to.dtype)))
                .Found("{} elements of {}"_t(from.numel(), DTypeTorchName(from.dtype))));
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
      .def("calls", &Replay::Calls, "white_list"_a, "black_list"_a, "distinct"_a, "functions"_a,
           "[(name, why it is skipped or \"\")], in the order of the dump; functions: "
           "whether classes of torch.autograd.Function can be called.")
      .def("call", &Replay::Call, "index"_a,
           "(api, positional arguments, keyword arguments, gradients or None, dtypes of the "
           "results); "
           "a tensor is (\"tensor\", number, dtype, shape, requires_grad), an empty list (), "
           "another "
           "value (type, text).")
      .def("fill", &Replay::Fill, "number"_a, "tensor"_a, "low"_a, "high"_a,
           "Write the recorded elements, or elements with the recorded statistics, into a "
           "contiguous tensor; low and high: the range where no statistic was recorded.")
      .def("recorded", &Replay::Recorded, "index"_a,
           "{\"forward.output.0\": tensor as in call()}: the results whose elements were stored.")
      .def("makes", &Replay::Makes, "index"_a,
           "Whether elements of an argument were not stored, and are made from statistics.")
      .def("line", &Replay::Line, "index"_a, "The source line of a call.");
  nb::class_<NearerCheck>(m, "NearerCheck",
                          "Measures recorded and new results of calls against float64.")
      .def(nb::init<>())
      .def("begin", &NearerCheck::Begin, "name"_a, "skip"_a,
           "Begin a call; skip: why it is not executed.")
      .def("skip", &NearerCheck::Skip, "why"_a, "The call is not executed after all.")
      .def("fail", &NearerCheck::Skip, "why"_a, "The call raised on the device.")
      .def("made", &NearerCheck::Made, "Elements of an input are made from statistics.")
      .def(
          "note", [](NearerCheck& check, const std::string& text) { check.Note(text); }, "text"_a,
          "Add to the message of the call.")
      .def("output", &NearerCheck::Output, "place"_a, "recorded"_a.none(), "again"_a, "exact"_a,
           "Measure one result; recorded: None where the dump has no elements of it.")
      .def_prop_ro("judges", &NearerCheck::judges, nb::rv_policy::reference_internal,
                   "The verdicts in roundings.")
      .def("end", &NearerCheck::End, "The line that tells what was found.")
      .def_prop_ro("failed", &NearerCheck::Failed,
                   "Whether a recorded result is farther from float64 than its dtype explains.");
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
