// Bindings for the accuracy pre-check: what one worker finds for one call.
#include <fmt/format.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings.h"
#include "convert.h"
#include "engine/accuracy/checked_call.h"
#include "engine/accuracy/first_check.h"
#include "engine/accuracy/kernel_rounding.h"
#include "engine/accuracy/rounding_judge.h"
#include "engine/accuracy/rounding_steps.h"
#include "engine/base/threads.h"

namespace msprobe::python {
namespace {

using accuracy::CheckedCall;
using accuracy::CheckedOutput;
using accuracy::RoundingJudges;
using accuracy::Verdict;

// Compares the outputs of one call after the other.
class PreCheck {
 public:
  PreCheck(const std::string& rules, int decimals, const std::vector<std::string>& within_one,
           bool roundings)
      : roundings_(roundings),
        check_({.rules = ValueOrRaise(accuracy::RulesFromName(rules)),
                .decimals = decimals,
                .within_one = {within_one.begin(), within_one.end()}}) {}

  void Begin(const std::string& name, const std::string& skip) {
    call_ = {.name = name};
    forward_.clear(), backward_.clear();
    judges_.Clear();
    if (!skip.empty()) Skip(skip);
  }
  void Skip(const std::string& why) {
    call_.forward_rows.clear(), call_.backward_rows.clear();
    judges_.Clear();
    forward_ = {Verdict::kSkip};
    backward_.clear();
    call_.message = why;
  }
  void Fail(const std::string& why) {
    Skip(why);
    forward_ = {Verdict::kError};
  }

  void Output(const std::string& direction, const std::string& api, nb::handle device,
              nb::handle golden) {
    CheckedOutput out;
    if (golden.is_none()) {
      out = check_.WithoutGolden(/*on_device=*/!device.is_none());
    } else if (device.is_none()) {
      out = check_.WithoutComparing(Verdict::kError, "the device has no such output");
    } else {
      const ArrayArgument of_device(device), of_golden(golden);
      const std::string_view base = std::string_view(api).substr(api.rfind('.') + 1);
      Result<CheckedOutput> compared = [&] {
        const nb::gil_scoped_release released;
        return check_.CompareTensors(base, of_device.view(), of_golden.view());
      }();
      out = compared.ok() ? *std::move(compared)
                          : check_.WithoutComparing(Verdict::kSkip, compared.status().message());
    }
    const bool forward = direction == "forward";
    std::vector<accuracy::DetailsRow>& rows = forward ? call_.forward_rows : call_.backward_rows;
    if (roundings_ && !device.is_none() && !golden.is_none())
      AddJudge(fmt::format("{}.output.{}", direction, rows.size()), device, golden);
    (forward ? forward_ : backward_).push_back(out.verdict);
    rows.push_back(std::move(out.row));
  }

  // Gives an output that does not pass the verdict pass, if the rounding of the inputs explains it.
  void Forgive(const std::string& direction, size_t index, nb::handle device, nb::handle golden,
               nb::handle changed, double largest, int64_t elements) {
    const bool forward = direction == "forward";
    std::vector<Verdict>& verdicts = forward ? forward_ : backward_;
    if (index >= verdicts.size() || !IsBad(verdicts[index])) return;
    if (device.is_none() || golden.is_none() || changed.is_none()) return;
    const ArrayArgument d(device), g(golden), c(changed);
    if (!check_.ExplainedByInputs(d.view(), g.view(), c.view(), {largest, elements, !forward}))
      return;
    verdicts[index] = Verdict::kPass;
    accuracy::DetailsRow& row = (forward ? call_.forward_rows : call_.backward_rows)[index];
    row[accuracy::kStatus] = VerdictName(Verdict::kPass);
    row[accuracy::kMessage] = "as exact as the inputs are; else: " + row[accuracy::kMessage];
  }

  // What else there is to say of the call; its verdict stays.
  void Note(const std::string& text) {
    if (!call_.message.empty()) call_.message += "; ";
    call_.message += text;
  }

  RoundingJudges& judges() { return judges_; }

  std::string End() {
    for (RoundingJudges::Place& place : judges_.places()) FillRounding(place);
    call_.forward = forward_.empty() ? Verdict::kSkip : check_.Combine(forward_);
    call_.backward = backward_.empty() ? Verdict::kBlank : check_.Combine(backward_);
    if (forward_.empty() && call_.message.empty()) call_.message = "it has no output to compare";
    return accuracy::ToLine(call_);
  }
  // Whether a verdict of the call is warning or error.
  bool Failed() const {
    return std::any_of(forward_.begin(), forward_.end(), IsBad) ||
           std::any_of(backward_.begin(), backward_.end(), IsBad);
  }

 private:
  static bool IsBad(Verdict v) { return v == Verdict::kWarning || v == Verdict::kError; }

  void AddJudge(const std::string& place, nb::handle device, nb::handle golden) {
    const ArrayArgument of_device(device), of_golden(golden);
    const nb::gil_scoped_release released;
    judges_.Add(
        place, accuracy::RoundingJudge(of_device.view(), of_golden.view(), of_device.view().dtype));
  }

  // The cells of "forward.output.0" in its row.
  void FillRounding(const RoundingJudges::Place& place) {
    const bool forward = place.name.starts_with("forward");
    const size_t index = std::stoul(place.name.substr(place.name.rfind('.') + 1));
    accuracy::FillRounding(place.judge.verdict(), place.judge.shape(),
                           &(forward ? call_.forward_rows : call_.backward_rows)[index]);
  }

  const bool roundings_;
  RoundingJudges judges_;
  accuracy::FirstCheck check_;
  CheckedCall call_;
  std::vector<Verdict> forward_, backward_;
};

}  // namespace

void BindAccuracy(nb::module_& m) {
  using namespace nb::literals;
  m.attr("UNREADABLE") = std::string(accuracy::kUnreadable);
  nb::class_<PreCheck>(m, "PreCheck", "Compares a device's outputs with golden ones, call by call.")
      .def(nb::init<const std::string&, int, const std::vector<std::string>&, bool>(), "rules"_a,
           "decimals"_a, "within_one"_a, "roundings"_a = false)
      .def("begin", &PreCheck::Begin, "name"_a, "skip"_a, "Begin a call; skip: why it is skipped.")
      .def("skip", &PreCheck::Skip, "why"_a, "The call is skipped after all.")
      .def("fail", &PreCheck::Fail, "why"_a, "The call raised on the device.")
      .def("output", &PreCheck::Output, "direction"_a, "api"_a, "device"_a.none(),
           "golden"_a.none(), "Compare one output; None: that side has none.")
      .def(
          "forgive", &PreCheck::Forgive, "direction"_a, "index"_a, "device"_a.none(),
          "golden"_a.none(), "changed"_a.none(), "largest"_a, "elements"_a,
          "An output passes after all if inputs that change in their last place explain its error.")
      .def("note", &PreCheck::Note, "text"_a, "Add to the message of the call.")
      .def("end", &PreCheck::End, "The line that tells what was found.")
      .def_prop_ro("failed", &PreCheck::Failed)
      .def_prop_ro("judges", &PreCheck::judges, nb::rv_policy::reference_internal,
                   "The verdicts in roundings; none where they are not asked for.");
}

}  // namespace msprobe::python
