#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "cli/command_line/time_stamp.h"
#include "cli/inputs/replay_flags.h"
#include "cli/outputs/compare_output.h"
#include "cli/verbs.h"
#include "engine/accuracy/check_config.h"
#include "engine/accuracy/check_files.h"
#include "engine/accuracy/checked_call.h"
#include "engine/accuracy/details_table.h"
#include "engine/accuracy/standards.h"
#include "engine/base/file.h"
#include "engine/base/messages/language.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/source_line.h"
#include "engine/replay/recorded_call.h"
#include "engine/workers/worker_pool.h"

namespace msprobe::cli {
namespace {

using accuracy::CheckedCall;
using accuracy::Verdict;

constexpr size_t kMostShown = 10;
constexpr size_t kReasons = 5;  // of calls that were skipped

// What the terminal says in the end.
struct CheckSummary {
  int64_t count[accuracy::kVerdictNames.size()] = {};
  std::vector<CheckedCall> bad;          // errors, then warnings: the first ten of each
  int64_t beyond = 0;                    // calls with a result that rounding does not explain
  std::vector<CheckedCall> only_beyond;  // the first ten of those that pass the standards
  int64_t lost = 0;                      // calls whose worker crashed, hung or took too much memory
  int64_t unreadable = 0;                // calls whose data are missing or damaged
  std::string first_unreadable;
  struct Skips {
    int64_t calls = 0;
    std::string first;
  };
  std::map<std::string, Skips, std::less<>> skips;  // by their reason
  std::string log;  // what the workers printed; "" when nothing was lost

  void Add(const CheckedCall& call) {
    const Verdict worst = Worse(call.forward, call.backward);
    ++count[static_cast<size_t>(worst)];
    const auto same = [&](const CheckedCall& c) { return Worse(c.forward, c.backward) == worst; };
    const bool is_bad = worst == Verdict::kError || worst == Verdict::kWarning;
    if (worst == Verdict::kSkip) {
      const bool unread = call.message.starts_with(accuracy::kUnreadable);
      if (unread && unreadable++ == 0) first_unreadable = call.message;
      // What follows the colon is about the one call.
      if (!unread) {
        Skips& of_reason = skips[call.message.substr(0, call.message.find(": "))];
        if (of_reason.calls++ == 0) of_reason.first = call.name;
      }
    }
    if (is_bad && std::count_if(bad.begin(), bad.end(), same) < static_cast<int>(kMostShown))
      bad.push_back(call);
    if (!IsBeyond(call)) return;
    ++beyond;
    if (!is_bad && only_beyond.size() < kMostShown) only_beyond.push_back(call);
  }
  static bool IsBeyond(const CheckedCall& call) {
    return accuracy::RoundingVerdictOf(call.forward_rows) == Verdict::kError ||
           accuracy::RoundingVerdictOf(call.backward_rows) == Verdict::kError;
  }
  static Verdict Worse(Verdict a, Verdict b) {
    for (const Verdict v : {Verdict::kError, Verdict::kWarning, Verdict::kPass}) {
      if (a == v || b == v) return v;
    }
    return Verdict::kSkip;
  }
  int64_t of(Verdict v) const { return count[static_cast<size_t>(v)]; }
};

class RunUt : public Verb {
 public:
  RunUt(std::string_view name, bool many) : name_(name), many_(many) {}
  std::string_view name() const override { return name_; }
  Message summary() const override {
    return many_ ? "run_ut in several processes, on one or more devices"_t
                 : "execute the recorded calls again, and judge each against a float64 golden"_t;
  }

  void AddFlags(Flags& flags) override {
    replay_.Add(flags, many_);
    flags.Text("-o,--out_path", &output_, "folder for the two csv files; created when missing"_t)
        .TypeName("FOLDER")
        .ShowDefault();
    flags
        .Text("--result_csv_path", &resume_,
              "go on with the accuracy_checking_result_TIME.csv of a run that was stopped"_t)
        .TypeName("FILE");
    flags.Switch("-f,--filter_api", &distinct_,
                 "execute only the first of several calls with equal types, shapes and values"_t);
    flags.Text("--config_path", &config_path_, "config.json with a section run_ut or acc_check"_t)
        .TypeName("FILE");
    flags.Switch("--save_error_data", &save_,
                 "keep inputs and outputs of calls that do not pass"_t);
    flags.Text("--as", &as_, "judge as this generation of msprobe did: 1.0, 8 or 26"_t)
        .OneOf({"1.0", "8", "26"});
    flags
        .Text("--standard", &standard_,
              "both: the metrics of the older tools and the verdict in roundings; older: the "
              "tables of msprobe 26, as --as 26 (or of another generation, with --as)"_t)
        .OneOf({"both", "older"})
        .ShowDefault();
    flags.Text("--format", &format_, "what is printed"_t).OneOf({"table", "json"});
    flags.Switch("--exit-code", &exit_code_, "exit with 1 unless every call passes"_t);
  }

  Result<int> Run(Console& out) override {
    if (standard_ == "older" && as_.empty()) as_ = "26";
    if (!config_path_.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(config_, accuracy::ReadCheckConfig(config_path_));
    }
    const std::string time = TimeStamp(static_cast<long long>(std::time(nullptr)));
    MSPROBE_ASSIGN_OR_RETURN(const accuracy::Rules rules, accuracy::RulesFromName(as_));
    MSPROBE_ASSIGN_OR_RETURN(workers::PoolOptions pool, replay_.Pool(WorkerOptions(time), out));
    MSPROBE_ASSIGN_OR_RETURN(const Dump dump, replay_.Read(out));
    const std::vector<replay::RecordedCall> calls =
        replay::CallsOf(dump, {.white_list = config_.white_list,
                               .black_list = config_.black_list,
                               .distinct = distinct_});
    if (calls.empty()) {
      return InvalidArgument()
          .At(replay_.dump)
          .Expected("calls of APIs"_t)
          .Found("{} entries, none of them chosen"_t(dump.records.size()))
          .Hint("record with level L1 or mix; white_list and black_list choose"_t);
    }
    MSPROBE_ASSIGN_OR_RETURN(accuracy::CheckFiles files,
                             resume_.empty()
                                 ? accuracy::CheckFiles::Create(output_, time, rules, Roundings())
                                 : accuracy::CheckFiles::Resume(resume_, rules));
    MSPROBE_RETURN_IF_ERROR(SameColumns(files));
    out.SetLastWords("what is done stays; go on with -csv_path {}"_t(files.result_path()));
    pool.log =
        JoinPath(DirectoryName(files.result_path()), fmt::format("accuracy_checking_{}.log", time));
    CheckSummary summary;
    for (const CheckedCall& call : files.earlier()) summary.Add(call);
    std::vector<size_t> left;  // indices into calls
    for (size_t i = 0; i < calls.size(); ++i) {
      if (files.IsDone(calls[i].name)) continue;
      if (calls[i].skip.empty()) {
        left.push_back(i);
        continue;
      }
      const CheckedCall skipped{
          .name = calls[i].name, .forward = Verdict::kSkip, .message = calls[i].skip.English()};
      MSPROBE_RETURN_IF_ERROR(files.Add(skipped));
      summary.Add(skipped);
    }
    MSPROBE_RETURN_IF_ERROR(Check(calls, left, pool, out, &files, &summary));
    format_ == "json" ? PrintJson(dump, calls, summary, files, out)
                      : PrintTable(dump, calls, summary, files, out);
    const bool passes =
        summary.of(Verdict::kError) + summary.of(Verdict::kWarning) + summary.beyond == 0;
    if (!dump.complete || summary.unreadable > 0) return kExitError;
    return exit_code_ && !passes ? kExitDiffers : kExitOk;
  }

 private:
  Status Check(const std::vector<replay::RecordedCall>& calls, const std::vector<size_t>& left,
               const workers::PoolOptions& pool, Console& out, accuracy::CheckFiles* files,
               CheckSummary* summary) {
    std::vector<std::string> tasks;
    for (const size_t i : left) tasks.push_back(std::to_string(i));
    Status failed;
    if (!tasks.empty()) out.Progress("starting {}"_t(std::string("Python")));
    size_t ended = 0;
    const Status status =
        workers::RunTasks(tasks, pool, [&](size_t task, const workers::TaskResult& result) {
          CheckedCall call{.name = calls[left[task]].name, .forward = Verdict::kError};
          if (result.end == workers::TaskEnd::kAnswered) {
            Result<CheckedCall> answered = accuracy::CheckedCallFromLine(result.answer);
            if (answered.ok()) {
              call = *std::move(answered);
            } else {
              call.message = answered.status().message();
            }
          } else {
            call.message = result.lost.English();
            ++summary->lost;
          }
          failed = files->Add(call);
          summary->Add(call);
          out.ProgressOf("checking calls"_t, ++ended, tasks.size());
          return failed.ok();
        });
    if (failed.ok()) failed = status;
    if (failed.ok() && summary->lost == 0) {
      (void)RemoveFile(pool.log);
    } else {
      summary->log = pool.log;
    }
    if (!failed.ok() && files->is_empty()) {
      files->RemoveIfEmpty();
      if (failed.code() == ErrorCode::kInvalidArgument) (void)RemoveFile(pool.log);
      return failed;
    }
    if (!failed.ok()) {
      return std::move(failed).Hint(
          "what is done stays; go on with -csv_path {}"_t(files->result_path()));
    }
    return Status::Ok();
  }

  bool Roundings() const { return as_.empty(); }
  // The files of an earlier run have the columns of this one.
  Status SameColumns(const accuracy::CheckFiles& files) const {
    if (files.has_roundings() == Roundings()) return Status::Ok();
    return InvalidArgument()
        .At(files.details_path())
        .Expected(Roundings() ? "the columns of the verdict in roundings"_t
                              : "the older columns alone"_t)
        .Found(Roundings() ? "the older columns alone"_t
                           : "the columns of the verdict in roundings"_t)
        .Hint(Roundings() ? "add --standard older"_t : "leave --standard and --as out"_t);
  }

  ReplayOptions WorkerOptions(const std::string& time) const {
    const std::string base = config_.error_data_path.empty() ? output_ : config_.error_data_path;
    return {
        {"white_list", JsonList(config_.white_list)},
        {"black_list", JsonList(config_.black_list)},
        {"distinct", JsonBool(distinct_)},
        {"error_data", QuotedJson(save_ ? JoinPath(base, "ut_error_data" + time) : "")},
        {"rules", QuotedJson(as_)},
        {"roundings", JsonBool(Roundings())},
        {"precision", std::to_string(config_.precision)},
        {"within_one", JsonList(config_.quantization_api_list)},
    };
  }

  // "train.py:41 in forward: y = F.gelu(x)"; "".
  static std::string LineOf(const Dump& dump, const std::vector<replay::RecordedCall>& calls,
                            const std::string& name) {
    const auto call = std::find_if(calls.begin(), calls.end(),
                                   [&](const replay::RecordedCall& c) { return c.name == name; });
    if (call == calls.end()) return "";
    const int32_t stack = dump.records[call->forward].stack;
    return stack < 0 ? "" : dump::UserSourceLine(dump.stacks[stack]);
  }

  static void PrintRounding(std::string_view direction, size_t i, const accuracy::DetailsRow& row,
                            Console& out) {
    if (row[accuracy::kRoundingVerdict] != VerdictName(Verdict::kError)) return;
    const std::string& cause = row[accuracy::kRoundingCause];
    const Message off = "{}.output.{}: off by {} roundings at {} where {} are explained ({})"_t(
        direction, i, row[accuracy::kErrorInRoundings], row[accuracy::kWorstIndex],
        row[accuracy::kBoundInRoundings], Message(row[accuracy::kBoundFrom]));
    const Message why = accuracy::IsBlankCell(cause) ? Message() : Message(cause);
    out.Tell("  {}"_t(Message::Joined({off, why}, ": ")));
  }

  static void PrintRows(std::string_view direction, const std::vector<accuracy::DetailsRow>& rows,
                        Console& out) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::string& status = rows[i][accuracy::kStatus];
      if (status == "error" || status == "warning") {
        out.Tell("  {}.output.{}: {}; {}"_t(direction, i,
                                            status == "error" ? "error"_t : "warning"_t,
                                            Message(rows[i][accuracy::kMessage])));
      }
      PrintRounding(direction, i, rows[i], out);
    }
  }

  static void PrintSkips(const CheckSummary& s, Console& out) {
    std::vector<std::pair<std::string_view, const CheckSummary::Skips*>> most;
    for (const auto& [why, skips] : s.skips) most.emplace_back(why, &skips);
    std::stable_sort(most.begin(), most.end(), [](const auto& a, const auto& b) {
      return a.second->calls > b.second->calls;
    });
    for (size_t i = 0; i < std::min(most.size(), kReasons); ++i) {
      const auto& [why, skips] = most[i];
      out.Print("  SKIP {:>4}  {} ({})\n", skips->calls, MakePrintable(Message(why).Shown()),
                MakePrintable(skips->first));
    }
    if (most.size() > kReasons) out.Tell("  {}"_t("and others, see the result file"_t));
    if (s.unreadable > 0) {
      const Message first(s.first_unreadable);
      out.Tell(s.unreadable == 1
                   ? "{} call was not checked, the first: {}"_t(s.unreadable, first)
                   : "{} calls were not checked, the first: {}"_t(s.unreadable, first));
    }
  }

  void PrintTable(const Dump& dump, const std::vector<replay::RecordedCall>& calls,
                  const CheckSummary& s, const accuracy::CheckFiles& files, Console& out) const {
    out.Tell("{} calls: {} pass, {} warning, {} error, {} SKIP"_t(
        calls.size(), s.of(Verdict::kPass), s.of(Verdict::kWarning), s.of(Verdict::kError),
        s.of(Verdict::kSkip)));
    const auto modules = std::count_if(dump.records.begin(), dump.records.end(),
                                       [](const Record& r) { return r.is_module; });
    if (modules > 0) out.Tell("{} entries of modules are not executed"_t(modules));
    if (const size_t before = files.earlier().size(); before > 0)
      out.Tell("{} of them were done before"_t(before));
    PrintSkips(s, out);
    if (s.lost > 0) {
      out.Tell(s.lost == 1 ? "{} call ended a process that crashed, hung or took too much memory; "
                             "it printed: {}"_t(s.lost, s.log)
                           : "{} calls ended a process that crashed, hung or took too much memory; "
                             "it printed: {}"_t(s.lost, s.log));
    }
    if (s.beyond == 1) out.Tell("1 call has results that rounding does not explain"_t);
    if (s.beyond > 1) out.Tell("{} calls have results that rounding does not explain"_t(s.beyond));
    std::vector<CheckedCall> told = s.bad;
    told.insert(told.end(), s.only_beyond.begin(), s.only_beyond.end());
    for (const CheckedCall& call : told) {
      out.Print("\n{:<7}  {}\n", VerdictName(CheckSummary::Worse(call.forward, call.backward)),
                MakePrintable(call.name));
      if (const std::string line = LineOf(dump, calls, call.name); !line.empty())
        out.Print("  {}\n", MakePrintable(line));
      if (!call.message.empty()) out.Tell("  {}"_t(Message(call.message)));
      PrintRows("forward", call.forward_rows, out);
      PrintRows("backward", call.backward_rows, out);
    }
    out.Write("\n");
    out.Tell("written: {}"_t(files.result_path()));
    out.Print("         {}\n", MakePrintable(files.details_path()));
  }

  void PrintJson(const Dump& dump, const std::vector<replay::RecordedCall>& calls,
                 const CheckSummary& s, const accuracy::CheckFiles& files, Console& out) const {
    std::string text = fmt::format(
        "{{\"calls\": {}, \"pass\": {}, \"warning\": {}, \"error\": {}, \"skip\": {}, "
        "\"beyond_rounding\": {}, \"lost\": {}, \"unreadable\": {}, \"result_csv\": ",
        calls.size(), s.of(Verdict::kPass), s.of(Verdict::kWarning), s.of(Verdict::kError),
        s.of(Verdict::kSkip), s.beyond, s.lost, s.unreadable);
    AppendJsonString(&text, files.result_path());
    text += ", \"details_csv\": ";
    AppendJsonString(&text, files.details_path());
    text += ", \"worst\": [";
    std::vector<CheckedCall> told = s.bad;
    told.insert(told.end(), s.only_beyond.begin(), s.only_beyond.end());
    for (size_t i = 0; i < told.size(); ++i) {
      const CheckedCall& call = told[i];
      text += i == 0 ? "\n  {\"name\": " : ",\n  {\"name\": ";
      AppendJsonString(&text, call.name);
      text += fmt::format(
          ", \"forward\": \"{}\", \"backward\": \"{}\", \"forward_rounding\": \"{}\", "
          "\"backward_rounding\": \"{}\", \"message\": ",
          VerdictName(call.forward), Trim(VerdictName(call.backward)),
          Trim(VerdictName(accuracy::RoundingVerdictOf(call.forward_rows))),
          Trim(VerdictName(accuracy::RoundingVerdictOf(call.backward_rows))));
      AppendJsonString(&text, call.message);
      text += ", \"source_line\": ";
      AppendJsonString(&text, LineOf(dump, calls, call.name));
      text += '}';
    }
    out.Write(text + "]}\n");
  }

  const std::string_view name_;
  const bool many_;
  ReplayFlags replay_;
  accuracy::CheckConfig config_;
  std::string output_ = "./", resume_, config_path_, as_, format_ = "table", standard_ = "both";
  bool distinct_ = false, save_ = false, exit_code_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeRunUtVerb(std::string_view name, bool many) {
  return std::make_unique<RunUt>(name, many);
}

}  // namespace msprobe::cli
