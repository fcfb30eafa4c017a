#include <fmt/format.h>

#include <ctime>
#include <optional>

#include "cli/command_line/time_stamp.h"
#include "cli/outputs/compare_output.h"
#include "cli/verbs.h"
#include "engine/accuracy/precision_compare.h"
#include "engine/accuracy/row_verdict.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/base/threads.h"

namespace msprobe::cli {
namespace {

using accuracy::ComparedOutput;
using accuracy::PrecisionComparison;

constexpr size_t kWorst = 10;

class ApiPrecisionCompare : public Verb {
 public:
  std::string_view name() const override { return "api_precision_compare"; }
  Message summary() const override {
    return "judge a device's errors in the pre-check beside those of a reference device"_t;
  }
  void AddFlags(Flags& flags) override {
    flags
        .Text("--npu_csv_path", &npu_,
              "accuracy_checking_details_TIME.csv of the device under test"_t)
        .TypeName("FILE")
        .Required();
    flags
        .Text("--gpu_csv_path", &gpu_,
              "accuracy_checking_details_TIME.csv of the reference device"_t)
        .TypeName("FILE")
        .Required();
    flags
        .Text("-o,--out_path", &output_,
              "folder for api_precision_compare_result_TIME.csv and "
              "api_precision_compare_details_TIME.csv"_t)
        .TypeName("FOLDER")
        .ShowDefault();
    flags
        .Text("--as", &as_,
              "decide as this generation of msprobe did, with its limits and its errors: 1.0, 8 or "
              "26"_t)
        .OneOf({"1.0", "8", "26"});
    flags
        .Text("--standards", &standards_,
              "a file of standards and limits in place of the program's "
              "(docs/reference/accuracy-check.md)"_t)
        .TypeName("FILE");
    flags.Text("--format", &format_, "what is printed"_t).OneOf({"table", "json"});
    flags.Switch("--exit-code", &exit_code_, "exit with 1 if a call is an error"_t);
  }

  Result<int> Run(Console& out) override {
    MSPROBE_ASSIGN_OR_RETURN(const accuracy::Rules rules, accuracy::RulesFromName(as_));
    accuracy::PrecisionOptions options{.rules = rules};
    accuracy::Standards own;
    if (!standards_.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(own, accuracy::Standards::Read(standards_));
      options.standards = &own;
    }
    std::optional<Result<accuracy::DetailsTable>> tables[2];
    ThreadPool::Default().ParallelFor(
        2, [&](size_t i) { tables[i] = accuracy::DetailsTable::Read(i == 0 ? npu_ : gpu_); });
    MSPROBE_ASSIGN_OR_RETURN(const accuracy::DetailsTable npu, std::move(*tables[0]));
    MSPROBE_ASSIGN_OR_RETURN(const accuracy::DetailsTable gpu, std::move(*tables[1]));
    MSPROBE_ASSIGN_OR_RETURN(const PrecisionComparison c,
                             accuracy::ComparePrecision(npu, gpu, options));
    const std::string time = TimeStamp(static_cast<long long>(std::time(nullptr)));
    MSPROBE_RETURN_IF_ERROR(c.Write(output_, time));
    format_ == "json" ? PrintJson(c, time, out) : PrintTable(c, time, out);
    return exit_code_ && c.errors > 0 ? kExitDiffers : kExitOk;
  }

 private:
  std::string FileOf(std::string_view kind, std::string_view time) const {
    return JoinPath(output_, fmt::format("api_precision_compare_{}_{}.csv", kind, time));
  }

  void PrintTable(const PrecisionComparison& c, std::string_view time, Console& out) const {
    out.Tell("{} calls: {} pass, {} warning, {} error, {} SKIP"_t(c.calls.size(), c.passes,
                                                                  c.warnings, c.errors, c.skips));
    if (c.only_npu > 0) out.Tell("{} outputs are only in {}"_t(c.only_npu, npu_));
    if (c.only_gpu > 0) out.Tell("{} outputs are only in {}"_t(c.only_gpu, gpu_));
    const std::vector<const ComparedOutput*> worst = c.Worst(kWorst);
    if (!worst.empty()) out.Write("\n"), out.Tell("the worst:"_t);
    bool alone = false;  // a standard that does not look at the reference
    for (const ComparedOutput* w : worst) {
      const std::string reason =
          w->verdict.reason.empty() ? w->message : w->verdict.reason.English();
      const std::string_view standard = accuracy::StandardName(w->verdict.standard);
      alone = alone || (w->verdict.standard != accuracy::Standard::kBenchmark &&
                        w->verdict.standard != accuracy::Standard::kUlp);
      out.Print("  {:<7}  {}\n", accuracy::VerdictName(w->verdict.verdict), MakePrintable(w->name));
      if (standard.empty()) {
        out.Print("           {}\n", MakePrintable(Trim(reason)));
      } else {
        out.Tell("           {}"_t("standard {}: {}"_t(standard, Message(Trim(reason)))));
      }
    }
    if (npu_ == gpu_ || alone) out.Write("\n");
    if (npu_ == gpu_) out.Tell("note: both files are {}"_t(npu_));
    if (alone) {
      out.Tell(
          "note: binary, absolute, accumulative and thousandth judge the device by the golden "
          "result, whatever the reference"_t);
    }
    if (!worst.empty()) {
      const std::string_view call = accuracy::ParseOutputName(worst[0]->name).call;
      if (!call.empty()) {
        out.Tell(
            "next: msprobe replay DUMP {}: how far the call is from float64, in roundings"_t(call));
      }
    }
    out.Write("\n");
    out.Tell("written: {}"_t(FileOf("result", time)));
    out.Print("         {}\n", MakePrintable(FileOf("details", time)));
  }
  void PrintJson(const PrecisionComparison& c, std::string_view time, Console& out) const {
    std::string text = fmt::format(
        "{{\"calls\": {}, \"pass\": {}, \"warning\": {}, \"error\": {}, \"skip\": {}, "
        "\"only_npu\": {}, "
        "\"only_gpu\": {}, \"result_csv\": ",
        c.calls.size(), c.passes, c.warnings, c.errors, c.skips, c.only_npu, c.only_gpu);
    AppendJsonString(&text, FileOf("result", time));
    text += ", \"details_csv\": ";
    AppendJsonString(&text, FileOf("details", time));
    text += ", \"outputs\": [";
    bool first = true;
    for (const ComparedOutput& output : c.outputs) {
      text += first ? "\n  {\"name\": " : ",\n  {\"name\": ";
      first = false;
      AppendJsonString(&text, output.name);
      text += ", \"verdict\": ";
      AppendJsonString(&text, accuracy::VerdictName(output.verdict.verdict));
      text += ", \"standard\": ";
      AppendJsonString(&text, accuracy::StandardName(output.verdict.standard));
      text += ", \"largest_ratio\": ";
      AppendPythonFloat(&text, output.verdict.worst_ratio);
      text += ", \"reason\": ";
      AppendJsonString(&text, output.verdict.reason.English());
      text += ", \"message\": ";
      AppendJsonString(&text, output.message);
      text += '}';
    }
    text += "\n]}\n";
    out.Write(text);
  }

  std::string npu_, gpu_, output_ = ".", as_, standards_, format_ = "table";
  bool exit_code_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeApiPrecisionCompareVerb() {
  return std::make_unique<ApiPrecisionCompare>();
}

}  // namespace msprobe::cli
