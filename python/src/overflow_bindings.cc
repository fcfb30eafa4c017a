// Bindings for overflows that are executed again: what one worker finds for one call.
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "convert.h"
#include "engine/anomaly/replayed_overflow.h"
#include "engine/base/messages/message.h"

namespace msprobe::python {
namespace {

// Looks for NaN and infinities in the outputs of one call after the other. It has the methods of
// PreCheck that a worker calls.
class OverflowCheck {
 public:
  void Begin(const std::string& name, const std::string& skip) {
    call_ = {.name = name, .why = skip};
    forward_ = backward_ = 0;
  }
  void Skip(const std::string& why) { call_ = {.name = call_.name, .why = why}; }
  void Output(const std::string& direction, const std::string& /*api*/, nb::handle device,
              nb::handle reference) {
    const bool forward = direction == "forward";
    const int64_t place = (forward ? forward_ : backward_)++;
    if (device.is_none() && reference.is_none()) return;
    if (device.is_none() || reference.is_none()) {
      const Message side = device.is_none() ? "device"_t : "reference"_t;
      return Note("the {} has no output.{} of the {} pass"_t(side, place, direction));
    }
    const ArrayArgument of_device(device), of_reference(reference);
    (forward ? call_.forward : call_.backward)
        .Add(place, kernels::ComputeStats(of_device.view()),
             kernels::ComputeStats(of_reference.view()));
  }
  void Note(const Message& text) { call_.note = Message::Joined({call_.note, text}, "; "); }
  std::string End() const { return anomaly::ToLine(call_); }

 private:
  anomaly::ReplayedCall call_;
  int64_t forward_ = 0, backward_ = 0;  // outputs so far
};

}  // namespace

void BindOverflow(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<OverflowCheck>(m, "OverflowCheck",
                            "Looks for NaN and infinities in a device's outputs and in a "
                            "reference's, call by call.")
      .def(nb::init<>())
      .def("begin", &OverflowCheck::Begin, "name"_a, "skip"_a,
           "Begin a call; skip: why it is not executed.")
      .def("skip", &OverflowCheck::Skip, "why"_a, "The call is not executed after all.")
      .def("fail", &OverflowCheck::Skip, "why"_a, "The call raised on the device.")
      .def("output", &OverflowCheck::Output, "direction"_a, "api"_a, "device"_a.none(),
           "reference"_a.none(), "Examine one output; None: that side has none.")
      .def(
          "note", [](OverflowCheck& check, const std::string& text) { check.Note(text); }, "text"_a,
          "Add to the message of the call.")
      .def("end", &OverflowCheck::End, "The line that tells what was found.")
      .def_prop_ro("failed", [](const OverflowCheck&) { return false; });
}

}  // namespace msprobe::python
