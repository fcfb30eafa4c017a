// Bindings for the verdict in roundings: rules of kernels, tensors that are off by roundings,
// judges.
#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "convert.h"
#include "engine/accuracy/kernel_rounding.h"
#include "engine/accuracy/rounding_judge.h"
#include "engine/accuracy/rounding_steps.h"
#include "engine/base/messages/message.h"

namespace msprobe::python {
namespace {

using accuracy::RoundingJudge;
using accuracy::RoundingJudges;
using Shapes = std::vector<std::vector<int64_t>>;

DType FloatOf(const std::string& dtype) {
  const std::optional<DType> found = DTypeFromTorchName(dtype);
  if (!found || !accuracy::FormatOf(*found))
    Raise(InvalidArgument().Expected("a float dtype"_t).Found(dtype));
  return *found;
}

// The elements of a contiguous tensor of float64, which are written.
class Float64Argument {
 public:
  explicit Float64Argument(nb::handle tensor) : array_(tensor) {
    if (array_.view().dtype != DType::kFloat64 || !array_.view().IsContiguous())
      Raise(InvalidArgument("expected a contiguous tensor of float64"_t));
  }
  const TensorView& view() const { return array_.view(); }

 private:
  ArrayArgument array_;
};

nb::tuple RuleOf(const std::string& name, bool pointwise, bool inside, const Shapes& inputs,
                 const Shapes& outputs, const std::string& dtype) {
  const accuracy::KernelRounding rule = accuracy::RoundingOf(
      {name, pointwise, inside, inputs, outputs}, FloatOf(dtype), DType::kFloat32);
  return nb::make_tuple(name, pointwise, rule.input, rule.output, rule.sum, rule.terms,
                        rule.in_dtype);
}

std::string Text(const std::vector<std::pair<std::string, int64_t>>& kernels) {
  std::vector<accuracy::NamedKernel> named;
  for (const auto& [name, terms] : kernels) named.push_back({name, terms});
  return accuracy::KernelsText(named);
}

bool RoundElements(nb::handle tensor, const std::string& dtype) {
  const Float64Argument elements(tensor);
  return accuracy::RoundElements(elements.view(), *accuracy::FormatOf(FloatOf(dtype)));
}

void Move(nb::handle tensor, uint64_t seed, double relative, const std::string& unrounded) {
  const Float64Argument elements(tensor);
  accuracy::RoundingSteps steps{.seed = seed, .relative = relative};
  if (!unrounded.empty()) steps.unrounded = accuracy::FormatOf(FloatOf(unrounded));
  accuracy::MoveByRoundings(elements.view(), steps);
}

std::string Coarsest(const std::vector<std::string>& dtypes) {
  std::string found = "float32";
  int mantissa = FactsOf(DType::kFloat32).format.mantissa;
  for (const std::string& dtype : dtypes) {
    const std::optional<FloatFormat> format = accuracy::FormatOf(FloatOf(dtype));
    if (format->mantissa < mantissa) found = dtype, mantissa = format->mantissa;
  }
  return found;
}

// The judge of a place that is beyond its bound; null: none is.
RoundingJudge* Beyond(RoundingJudges& judges, const std::string& place) {
  RoundingJudge* const judge = judges.At(place);
  return judge != nullptr && judge->IsBeyond() ? judge : nullptr;
}

void AddMoved(RoundingJudges& judges, const std::string& place, nb::handle moved) {
  RoundingJudge* const judge = Beyond(judges, place);
  if (judge == nullptr) return;
  const ArrayArgument array(moved);
  const nb::gil_scoped_release released;
  const Status added = judge->AddMoved(array.view());
  if (!added.ok()) judge->GiveUp(added.message());
}

void FindCause(RoundingJudges& judges, const std::string& place, nb::handle result,
               nb::handle exact) {
  RoundingJudge* const judge = Beyond(judges, place);
  if (judge == nullptr) return;
  const ArrayArgument made(result), truth(exact);
  RaiseIfError(judge->FindCause(made.view(), truth.view()));
}

}  // namespace

void BindRounding(nb::module_& m) {
  using namespace nb::literals;
  m.def("coarsest_float", &Coarsest, "dtypes"_a, "The coarsest one, float32 at least.");
  m.def("kernel_rounding", &RuleOf, "name"_a, "pointwise"_a, "inside"_a, "inputs"_a, "outputs"_a,
        "dtype"_a,
        "(name, pointwise, error of an input, of a result, terms, whether it rounds inside) of a "
        "kernel: relative errors, by the shapes of its tensors and the dtype of its result.");
  m.def("kernels_text", &Text, "kernels"_a, "For people; kernels: [(name, terms)].");
  m.def("round_elements", &RoundElements, "tensor"_a, "dtype"_a,
        "Round a contiguous tensor of float64 in place; whether an element changed.");
  m.def("move_by_roundings", &Move, "tensor"_a, "seed"_a, "relative"_a, "unrounded"_a,
        "Move each element of a contiguous tensor of float64 up or down in place; unrounded: a "
        "dtype to which it has not been rounded, or \"\".");
  nb::class_<RoundingJudges>(m, "RoundingJudges", "Verdicts in roundings, of one call's results.")
      .def_prop_ro("beyond", &RoundingJudges::IsBeyond, "Whether a result is beyond its bound.")
      .def("add_moved", &AddMoved, "place"_a, "moved"_a,
           "Widen the bound by a result whose kernels are off by roundings.")
      .def(
          "judge",
          [](RoundingJudges& judges) {
            for (RoundingJudges::Place& place : judges.places()) {
              if (place.judge.IsBeyond()) place.judge.Judge();
            }
          },
          "Look again at the results that are beyond their bounds.")
      .def(
          "set_kernels",
          [](RoundingJudges& judges, const std::string& place, const std::string& text, bool once) {
            if (RoundingJudge* const judge = Beyond(judges, place)) judge->SetKernels(text, once);
          },
          "place"_a, "text"_a, "once"_a, "What the bound comes from; once: it rounds once.")
      .def(
          "give_up",
          [](RoundingJudges& judges, const std::string& why) {
            for (RoundingJudges::Place& place : judges.places()) {
              if (place.judge.IsBeyond()) place.judge.GiveUp(why);
            }
          },
          "why"_a, "There is no bound where one rounding is none.")
      .def(
          "no_cause",
          [](RoundingJudges& judges, const std::string& why) {
            for (RoundingJudges::Place& place : judges.places()) place.judge.NoCause(why);
          },
          "why"_a, "The cause of what is beyond cannot be looked for.")
      .def("find_cause", &FindCause, "place"_a, "result"_a, "exact"_a,
           "Tell lost upcasts from other formulas; of inputs that have moved a little.");
}

}  // namespace msprobe::python
