#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <unordered_map>

#include "cli/command_line/time_stamp.h"
#include "cli/inputs/replay_flags.h"
#include "cli/outputs/compare_output.h"
#include "cli/verbs.h"
#include "engine/accuracy/check_csv.h"
#include "engine/anomaly/call_kinds.h"
#include "engine/anomaly/replayed_overflow.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/source_line.h"
#include "engine/replay/recorded_call.h"

namespace msprobe::cli {
namespace {

using anomaly::OverflowVerdict;
using anomaly::ReplayedDirection;

// A recorded call in one direction whose output has NaN or infinity.
struct Overflow {
  int32_t record = -1;   // index into Dump::records
  int32_t forward = -1;  // the same of its forward entry; -1: not recorded
  int64_t call = -1;     // index into the calls that a worker can execute; -1: none
  bool is_forward = true, inputs_clean = true;
  bool made_of_statistics = false;  // the elements of its inputs were not stored
  OverflowVerdict verdict = OverflowVerdict::kNotExecuted;
  std::string device, reference;  // "NaN", "Inf", "finite"; "" when not executed
  Message message;
};

constexpr std::string_view kTitles[] = {
    "API",     "Direction", "Inputs Clean", "Device Overflow", "Reference Overflow",
    "Verdict", "Message",   "Source Line"};

class RunOverflowCheck : public Verb {
 public:
  std::string_view name() const override { return "run_overflow_check"; }
  Message summary() const override {
    return "execute calls that overflowed again, and say whether the overflow is normal"_t;
  }

  void AddFlags(Flags& flags) override {
    replay_.Add(flags, /*several=*/false);
    flags
        .Text("-o,--out_path", &output_,
              "folder for overflow_check_TIME.csv; created when missing"_t)
        .TypeName("FOLDER")
        .ShowDefault();
    flags.Text("--format", &format_, "what is printed"_t).OneOf({"table", "json"});
    flags.Switch("--exit-code", &exit_code_, "exit with 1 if an overflow is abnormal"_t);
    flags.Footer(
        "An overflow is normal if the reference overflows too: the CPU in the recorded dtype or, "
        "when the\ndevice is the CPU, float64 cast to that dtype. Where both give NaN, the "
        "operation is undefined for\nits inputs, or for some of them. Record with task "
        "overflow_check or tensor."_t);
  }

  Result<int> Run(Console& out) override {
    const std::string time = TimeStamp(static_cast<long long>(std::time(nullptr)));
    MSPROBE_ASSIGN_OR_RETURN(workers::PoolOptions pool,
                             replay_.Pool({{"mode", QuotedJson("overflow")},
                                           {"white_list", "[]"},
                                           {"black_list", "[]"},
                                           {"distinct", "false"},
                                           {"error_data", "\"\""}},
                                          out));
    MSPROBE_ASSIGN_OR_RETURN(const Dump dump, replay_.Read(out));
    const std::vector<replay::RecordedCall> calls = replay::CallsOf(dump, {});
    MSPROBE_RETURN_IF_ERROR(Find(dump, calls));
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(output_));
    pool.log = JoinPath(output_, fmt::format("overflow_check_{}.log", time));
    MSPROBE_RETURN_IF_ERROR(Execute(pool, out));
    out.ClearProgress();
    const std::string file = JoinPath(output_, fmt::format("overflow_check_{}.csv", time));
    MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(file, Table(dump)));
    format_ == "json" ? PrintJson(dump, file, out) : PrintTable(dump, calls.size(), file, out);
    if (!dump.complete) return kExitError;
    return exit_code_ && Of(OverflowVerdict::kAbnormal) > 0 ? kExitDiffers : kExitOk;
  }

 private:
  // Fills overflows_, in the order of the dump.
  Status Find(const Dump& dump, const std::vector<replay::RecordedCall>& calls) {
    std::vector<int64_t> call_of(dump.records.size(), -1);
    size_t entries = 0;
    for (size_t i = 0; i < calls.size(); ++i) {
      for (const int32_t record : {calls[i].forward, calls[i].backward})
        if (record >= 0) call_of[record] = static_cast<int64_t>(i);
    }
    for (size_t r = 0; r < dump.records.size(); ++r) {
      const Record& record = dump.records[r];
      const bool is_call =
          record.direction == Direction::kForward || record.direction == Direction::kBackward;
      if (!is_call) continue;
      ++entries;
      const anomaly::CallKinds kinds = anomaly::KindsOfCall(dump, record);
      if (!kinds.made.any() || anomaly::NeverAnAnomaly(record)) continue;
      if (record.is_module) {
        ++modules_;
        continue;
      }
      overflows_.push_back(Found(dump, calls, static_cast<int32_t>(r), call_of[r], kinds));
    }
    if (entries > 0) return Status::Ok();
    return InvalidArgument()
        .At(replay_.dump)
        .Expected("calls of APIs"_t)
        .Found("{} entries, none of them a call"_t(dump.records.size()))
        .Hint("record with task overflow_check and level L1"_t);
  }

  static Overflow Found(const Dump& dump, const std::vector<replay::RecordedCall>& calls, int32_t r,
                        int64_t call, const anomaly::CallKinds& kinds) {
    Overflow found{.record = r, .call = call};
    found.is_forward = dump.records[r].direction == Direction::kForward;
    found.inputs_clean = !kinds.given.any();
    found.forward = call < 0 ? (found.is_forward ? r : -1) : calls[call].forward;
    if (!found.is_forward && found.forward >= 0) {
      const anomaly::CallKinds forward = anomaly::KindsOfCall(dump, dump.records[found.forward]);
      found.inputs_clean &= !forward.given.any();
    }
    if (!found.inputs_clean) {
      found.verdict = OverflowVerdict::kInputsNotFinite;
    } else if (call < 0) {
      found.message = "the dump has no forward entry of this call"_t;
    } else {
      found.message = Message(calls[call].skip);
      if (found.message.empty() && !found.is_forward)
        found.message = Message(calls[call].backward_skip);
      found.made_of_statistics = MadeOfStatistics(dump, dump.records[found.forward]);
    }
    return found;
  }

  static bool MadeOfStatistics(const Dump& dump, const Record& forward) {
    const auto leaves = dump.LeavesOf(forward);
    return std::any_of(leaves.begin(), leaves.end(), [](const Leaf& leaf) {
      return leaf.slot != Slot::kOutput && leaf.kind == LeafKind::kTensor &&
             (leaf.data_name.empty() || leaf.data_name == "-1");
    });
  }

  // Executes each call with an overflow of finite inputs once, for both of its directions.
  Status Execute(const workers::PoolOptions& pool, Console& out) {
    std::vector<std::string> tasks;
    std::unordered_map<int64_t, std::vector<size_t>> of_call;  // indices into overflows_
    std::vector<int64_t> order;
    for (size_t i = 0; i < overflows_.size(); ++i) {
      const Overflow& overflow = overflows_[i];
      if (!overflow.inputs_clean || overflow.call < 0 || !overflow.message.empty()) continue;
      std::vector<size_t>& of = of_call[overflow.call];
      if (of.empty()) {
        order.push_back(overflow.call);
        tasks.push_back(std::to_string(overflow.call));
      }
      of.push_back(i);
    }
    if (tasks.empty()) return Status::Ok();
    out.Progress("starting {}"_t(std::string("Python")));
    size_t ended = 0;
    bool lost = false;
    MSPROBE_RETURN_IF_ERROR(
        workers::RunTasks(tasks, pool, [&](size_t task, const workers::TaskResult& result) {
          anomaly::ReplayedCall call{.why = result.lost};
          if (result.end == workers::TaskEnd::kAnswered) {
            Result<anomaly::ReplayedCall> answered = anomaly::ReplayedCallFromLine(result.answer);
            call = answered.ok() ? *std::move(answered)
                                 : anomaly::ReplayedCall{.why = answered.status().AsMessage()};
          } else {
            lost = true;
          }
          for (const size_t i : of_call[order[task]]) Judge(call, &overflows_[i]);
          out.ProgressOf("executing calls"_t, ++ended, tasks.size());
          return true;
        }));
    if (lost) {
      log_ = pool.log;
    } else {
      (void)RemoveFile(pool.log);
    }
    return Status::Ok();
  }

  static void Judge(const anomaly::ReplayedCall& call, Overflow* overflow) {
    const ReplayedDirection& found = overflow->is_forward ? call.forward : call.backward;
    overflow->verdict = anomaly::VerdictOf(call, found);
    overflow->message = Message(call.why.empty() ? found.differs : call.why);
    const auto add = [&](Message text) {
      overflow->message = Message::Joined({std::move(overflow->message), std::move(text)}, "; ");
    };
    add(Message(call.note));
    if (overflow->verdict == OverflowVerdict::kNotExecuted) {
      if (overflow->message.empty())
        add(overflow->is_forward ? "it has no tensor as result"_t : "it gave no gradient"_t);
      return;
    }
    overflow->device = found.device.empty() ? "finite" : found.device;
    overflow->reference = found.reference.empty() ? "finite" : found.reference;
    if (overflow->verdict == OverflowVerdict::kNotReproduced && overflow->made_of_statistics)
      add("elements of its inputs were made from statistics: record with task tensor"_t);
  }

  int64_t Of(OverflowVerdict verdict) const {
    return std::count_if(overflows_.begin(), overflows_.end(),
                         [&](const Overflow& o) { return o.verdict == verdict; });
  }

  // "train.py:41 in forward: y = torch.exp(x)", of the forward call; "".
  static std::string LineOf(const Dump& dump, const Overflow& overflow) {
    for (const int32_t record : {overflow.forward, overflow.record}) {
      if (record < 0 || dump.records[record].stack < 0) continue;
      return dump::UserSourceLine(dump.stacks[dump.records[record].stack]);
    }
    return "";
  }
  static Message Entries(int64_t n) { return n == 1 ? "1 entry"_t : "{} entries"_t(n); }
  // "Torch.exp.0"
  static std::string_view CallName(const Dump& dump, const Overflow& overflow) {
    const std::string_view entry = dump.records[overflow.record].name;
    return entry.substr(0, entry.rfind('.'));
  }
  static std::string_view DirectionName(const Overflow& overflow) {
    return overflow.is_forward ? "forward" : "backward";
  }

  // What a person reads of the verdict.
  static Message WordsOf(const Overflow& overflow) {
    switch (overflow.verdict) {
      case OverflowVerdict::kNormal:
        return "normal overflow"_t;
      case OverflowVerdict::kAbnormal:
        return "abnormal overflow"_t;
      case OverflowVerdict::kUndefined:
        return overflow.device.ends_with("Inf")
                   ? "NaN and infinity, undefined for some of these inputs"_t
                   : "NaN, undefined for these inputs"_t;
      case OverflowVerdict::kNotReproduced:
        return "not reproduced"_t;
      case OverflowVerdict::kNotExecuted:
        return "not executed"_t;
      case OverflowVerdict::kInputsNotFinite:
        break;
    }
    return {};
  }

  std::string Table(const Dump& dump) const {
    accuracy::CheckCsv csv;
    csv.AddRow(kTitles);
    for (const Overflow& overflow : overflows_) {
      const std::string line = LineOf(dump, overflow);
      const std::string message = overflow.message.English();
      const std::string_view cells[] = {CallName(dump, overflow),
                                        DirectionName(overflow),
                                        overflow.inputs_clean ? "yes" : "no",
                                        overflow.device,
                                        overflow.reference,
                                        VerdictName(overflow.verdict),
                                        message,
                                        line};
      csv.AddRow(cells);
    }
    return std::string(csv.text());
  }

  void PrintTable(const Dump& dump, size_t calls, const std::string& file, Console& out) const {
    for (const Overflow& overflow : overflows_) {
      if (overflow.verdict == OverflowVerdict::kInputsNotFinite) continue;
      const Message what = Message::Joined({WordsOf(overflow), overflow.message}, "; ");
      out.Tell("{}: {}"_t(dump.records[overflow.record].name, what));
      const bool of_interest = overflow.verdict != OverflowVerdict::kNotReproduced;
      if (const std::string line = LineOf(dump, overflow); of_interest && !line.empty())
        out.Print("  {}\n", MakePrintable(line));
    }
    const int64_t unclean = Of(OverflowVerdict::kInputsNotFinite);
    if (overflows_.empty()) {
      out.Tell("{} calls: none of them has a NaN or an infinity as a result"_t(calls));
    } else {
      out.Tell(
          "{} calls: {} normal, {} undefined, {} abnormal, {} not reproduced, {} not executed"_t(
              calls, Of(OverflowVerdict::kNormal), Of(OverflowVerdict::kUndefined),
              Of(OverflowVerdict::kAbnormal), Of(OverflowVerdict::kNotReproduced),
              Of(OverflowVerdict::kNotExecuted)));
    }
    if (unclean > 0) out.Tell("{} got NaN or infinity as input: not judged"_t(Entries(unclean)));
    if (modules_ > 0) out.Tell("{} of modules not executed"_t(Entries(modules_)));
    if (!log_.empty()) out.Tell("what the lost processes printed: {}"_t(log_));
    out.Tell("written: {}"_t(file));
  }

  void PrintJson(const Dump& dump, const std::string& file, Console& out) const {
    std::string text = fmt::format(
        "{{\"normal\": {}, \"undefined\": {}, \"abnormal\": {}, \"not_reproduced\": {}, "
        "\"not_executed\": {}, "
        "\"inputs_not_finite\": {}, \"modules\": {}, \"csv\": {}, \"calls\": [",
        Of(OverflowVerdict::kNormal), Of(OverflowVerdict::kUndefined),
        Of(OverflowVerdict::kAbnormal), Of(OverflowVerdict::kNotReproduced),
        Of(OverflowVerdict::kNotExecuted), Of(OverflowVerdict::kInputsNotFinite), modules_,
        QuotedJson(file));
    for (const Overflow& overflow : overflows_) {
      text += &overflow == overflows_.data() ? "\n  {" : ",\n  {";
      text += fmt::format(
          "\"name\": {}, \"direction\": \"{}\", \"inputs_clean\": {}, \"device\": {}, "
          "\"reference\": {}, \"verdict\": \"{}\", \"message\": {}, \"source_line\": {}}}",
          QuotedJson(CallName(dump, overflow)), DirectionName(overflow),
          JsonBool(overflow.inputs_clean), QuotedJson(overflow.device),
          QuotedJson(overflow.reference), VerdictName(overflow.verdict),
          QuotedJson(overflow.message.English()), QuotedJson(LineOf(dump, overflow)));
    }
    out.Write(text + "]}\n");
  }

  ReplayFlags replay_;
  std::string output_ = "./", format_ = "table", log_;
  bool exit_code_ = false;
  std::vector<Overflow> overflows_;
  int64_t modules_ = 0;  // entries of modules whose output has NaN or infinity
};

}  // namespace

std::unique_ptr<Verb> MakeRunOverflowCheckVerb() { return std::make_unique<RunOverflowCheck>(); }

}  // namespace msprobe::cli
