#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <set>
#include <thread>

#include "cli/compare_output.h"
#include "cli/program.h"
#include "cli/verb.h"
#include "engine/accuracy/checked_call.h"
#include "engine/accuracy/standards.h"
#include "engine/base/file.h"
#include "engine/base/memory_size.h"
#include "engine/base/text.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/source_line.h"
#include "engine/formats/text/json.h"
#include "engine/replay/recorded_call.h"
#include "engine/workers/worker_pool.h"

namespace msprobe::cli {
namespace {

using accuracy::CheckedCall;
using accuracy::Verdict;

constexpr size_t kWorst = 10;

// Section `run_ut` or `acc_check` of config.json.
struct CheckConfig {
  std::vector<std::string> white_list, black_list;
  std::string error_data_path;
};

Result<CheckConfig> ReadCheckConfig(const std::string& path) {
  CheckConfig config;
  if (path.empty()) return config;
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  MSPROBE_ASSIGN_OR_RETURN(const formats::JsonValue root, formats::ParseJson(file.bytes(), path));
  for (const char* section : {"run_ut", "acc_check"}) {
    const formats::JsonValue* values = root.Find(section);
    if (values == nullptr) continue;
    for (auto [key, list] : {std::pair{"white_list", &config.white_list},
                             std::pair{"black_list", &config.black_list}}) {
      const formats::JsonValue* names = values->Find(key);
      if (names == nullptr) continue;
      for (const formats::JsonValue& name : names->items) {
        if (name.kind != formats::JsonValue::Kind::kString) {
          return Status(ErrorCode::kInvalidConfig)
              .At(fmt::format("{}:{}", path, name.line))
              .Expected(fmt::format("names of APIs in \"{}\"", key))
              .Found(name.Describe());
        }
        list->push_back(name.text);
      }
    }
    if (const formats::JsonValue* folder = values->Find("error_data_path"))
      config.error_data_path = folder->text;
  }
  return config;
}

// What the terminal says in the end.
struct CheckSummary {
  int64_t count[accuracy::kVerdictNames.size()] = {};
  std::vector<CheckedCall> bad;  // errors, then warnings: the first ten of each
  int64_t lost = 0;              // calls whose worker crashed, hung or took too much memory

  void Add(const CheckedCall& call) {
    const Verdict worst = Worse(call.forward, call.backward);
    ++count[static_cast<size_t>(worst)];
    const auto same = [&](const CheckedCall& c) { return Worse(c.forward, c.backward) == worst; };
    const bool is_bad = worst == Verdict::kError || worst == Verdict::kWarning;
    if (is_bad && std::count_if(bad.begin(), bad.end(), same) < static_cast<int>(kWorst))
      bad.push_back(call);
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
  std::string_view summary() const override {
    return many_ ? "the same in several processes, on one or more devices"
                 : "execute the recorded calls again, and judge each against a float64 golden";
  }

  void AddFlags(Flags& flags) override {
    flags
        .Text("--api_info_file", &dump_,
              "dump.json, or a folder with one; of level L1 or mix, with statistics or tensors")
        .TypeName("PATH")
        .Required();
    flags.Text("-o,--out_path", &output_, "folder for the two csv files; created when missing")
        .TypeName("FOLDER")
        .ShowDefault();
    flags
        .Texts("-d,--device", &devices_,
               many_ ? "numbers of the devices; processes are spread over them"
                     : "number of the device: an NPU, else a GPU, else the CPU")
        .TypeName("NUMBER");
    if (many_) {
      flags.Number("-n,--num_splits", &splits_,
                   "number of processes. Default: one for each core, at most 8");
    }
    flags
        .Text("--result_csv_path", &resume_,
              "go on with the accuracy_checking_result_TIME.csv of a run that was stopped")
        .TypeName("FILE");
    flags.Switch("-f,--filter_api", &distinct_,
                 "execute only the first of several calls with equal types, shapes and values");
    flags.Text("--config_path", &config_, "config.json with a section run_ut or acc_check")
        .TypeName("FILE");
    flags.Switch("--save_error_data", &save_, "keep inputs and outputs of calls that do not pass");
    flags.Switch("-j,--jit_compile", &jit_, "NPU: compile operators just in time");
    flags.Text("--as", &as_, "judge as this generation of msprobe did: 1.0, 8 or 26")
        .OneOf({"1.0", "8", "26"});
    flags.Number("--seed", &seed_, "of elements that are made from statistics").ShowDefault();
    flags.Number("--timeout", &timeout_, "seconds that one call may take").ShowDefault();
    flags.Text("--memory", &memory_, "memory that one process may take, such as 4GB. Default: any")
        .TypeName("SIZE");
    flags.Text("--format", &format_, "what is printed").OneOf({"table", "json"});
    flags.Switch("--exit-code", &exit_code_, "exit with 1 unless every call passes");
  }

  Result<int> Run(Console& out) override {
    MSPROBE_ASSIGN_OR_RETURN(const CheckConfig config, ReadCheckConfig(config_));
    MSPROBE_ASSIGN_OR_RETURN(const Dump dump, dump::ReadDump(dump_));
    const std::vector<replay::RecordedCall> calls =
        replay::CallsOf(dump, {.white_list = {config.white_list.begin(), config.white_list.end()},
                               .black_list = {config.black_list.begin(), config.black_list.end()},
                               .distinct = distinct_});
    if (calls.empty()) {
      return InvalidArgument()
          .At(dump_)
          .Expected("calls of APIs")
          .Found(fmt::format("{} entries, none of them chosen", dump.records.size()))
          .Hint("record with level L1 or mix; white_list and black_list choose");
    }
    const std::string time = TimeStamp(static_cast<long long>(std::time(nullptr)));
    MSPROBE_ASSIGN_OR_RETURN(const accuracy::Rules rules, accuracy::RulesFromName(as_));
    MSPROBE_ASSIGN_OR_RETURN(accuracy::CheckFiles files,
                             resume_.empty() ? accuracy::CheckFiles::Create(output_, time, rules)
                                             : accuracy::CheckFiles::Resume(resume_, rules));
    const auto done_before = static_cast<size_t>(files.done());
    std::vector<size_t> left;  // indices into calls
    CheckSummary summary;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (files.IsDone(calls[i].name)) continue;
      if (calls[i].skip.empty()) {
        left.push_back(i);
        continue;
      }
      const CheckedCall skipped{
          .name = calls[i].name, .forward = Verdict::kSkip, .message = calls[i].skip};
      MSPROBE_RETURN_IF_ERROR(files.Add(skipped));
      summary.Add(skipped);
    }
    MSPROBE_RETURN_IF_ERROR(Check(config, calls, left, time, out, &files, &summary));
    format_ == "json" ? PrintJson(dump, calls, summary, files, out)
                      : PrintTable(dump, calls, summary, done_before, files, out);
    const bool passes = summary.of(Verdict::kError) + summary.of(Verdict::kWarning) == 0;
    return exit_code_ && !passes ? kExitDiffers : kExitOk;
  }

 private:
  Status Check(const CheckConfig& config, const std::vector<replay::RecordedCall>& calls,
               const std::vector<size_t>& left, const std::string& time, Console& out,
               accuracy::CheckFiles* files, CheckSummary* summary) {
    MSPROBE_ASSIGN_OR_RETURN(workers::PoolOptions pool, Pool(config, time));
    std::vector<std::string> tasks;
    for (const size_t i : left) tasks.push_back(std::to_string(i));
    Status failed;
    out.Progress("checked {} of {} calls", 0, tasks.size());
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
            call.message = result.answer;
            ++summary->lost;
          }
          failed = files->Add(call);
          summary->Add(call);
          out.Progress("checked {} of {} calls", ++ended, tasks.size());
          return failed.ok();
        });
    (void)RemoveFile(pool.log);
    if (failed.ok()) failed = status;
    if (!failed.ok()) {
      return std::move(failed).Hint(
          fmt::format("what is done stays; go on with -csv_path {}", files->result_path()));
    }
    return Status::Ok();
  }

  Result<workers::PoolOptions> Pool(const CheckConfig& config, const std::string& time) const {
    std::set<int> numbers;
    for (const std::string& text : devices_) {
      int number = -1;
      const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
      if (end.ec != std::errc() || end.ptr != text.data() + text.size() || number < 0 ||
          !numbers.insert(number).second)
        return InvalidArgument().Expected("different device numbers from 0 on").Found(text);
    }
    if (numbers.empty()) numbers.insert(0);
    const auto cores = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
    const int64_t count = !many_ ? 1 : splits_ > 0 ? splits_ : std::min<int64_t>(8, cores);
    if (count > 64) {
      return InvalidArgument().Expected("-n from 1 to 64").Found(std::to_string(count));
    }
    workers::PoolOptions pool;
    pool.seconds = static_cast<double>(timeout_);
    pool.log = JoinPath(output_, fmt::format("accuracy_checking_{}.log", time));
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(output_));
    if (!memory_.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(pool.bytes, ParseMemorySize(memory_));
    }
    std::string python;
    for (const char* name : {"python", "python3"}) {
      if (python.empty()) python = BesideThisProgram(name);
    }
    if (python.empty()) python = "python3";
    auto number = numbers.begin();
    for (int64_t i = 0; i < count; ++i) {
      pool.workers.push_back(
          {python, "-m", "msprobe.pytorch.replay_worker", Options(config, *number, time, count)});
      if (++number == numbers.end()) number = numbers.begin();
    }
    return pool;
  }

  std::string Options(const CheckConfig& config, int device, const std::string& time,
                      int64_t processes) const {
    std::string text = "{\"dump\": ";
    const auto list = [&](const char* key, const std::vector<std::string>& names) {
      text += fmt::format(", \"{}\": [", key);
      for (size_t i = 0; i < names.size(); ++i) {
        if (i > 0) text += ", ";
        AppendJsonString(&text, names[i]);
      }
      text += ']';
    };
    AppendJsonString(&text, dump_);
    list("white_list", config.white_list);
    list("black_list", config.black_list);
    const std::string base = config.error_data_path.empty() ? output_ : config.error_data_path;
    text += ", \"error_data\": ";
    AppendJsonString(&text, save_ ? JoinPath(base, "ut_error_data" + time) : "");
    text += fmt::format(
        ", \"distinct\": {}, \"device\": {}, \"seed\": {}, \"rules\": \"{}\", \"precision\": 14, "
        "\"jit_compile\": {}, \"processes\": {}}}",
        distinct_, device, seed_, as_, jit_, processes);
    return text;
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

  static void PrintRows(std::string_view direction, const std::vector<accuracy::DetailsRow>& rows,
                        Console& out) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::string& status = rows[i][accuracy::kStatus];
      if (status != "error" && status != "warning") continue;
      out.Print("  {}.output.{}: {}; {}\n", direction, i, status,
                MakePrintable(rows[i][accuracy::kMessage]));
    }
  }

  void PrintTable(const Dump& dump, const std::vector<replay::RecordedCall>& calls,
                  const CheckSummary& s, size_t done_before, const accuracy::CheckFiles& files,
                  Console& out) const {
    out.Print("{} calls: {} pass, {} warning, {} error, {} SKIP\n", calls.size(),
              s.of(Verdict::kPass), s.of(Verdict::kWarning), s.of(Verdict::kError),
              s.of(Verdict::kSkip));
    const auto modules = std::count_if(dump.records.begin(), dump.records.end(),
                                       [](const Record& r) { return r.is_module; });
    if (modules > 0) out.Print("{} entries of modules are not executed\n", modules);
    if (done_before > 0) out.Print("{} calls were done before\n", done_before);
    if (s.lost > 0) {
      out.Print("{} {} a process that crashed, hung or took too much memory\n", s.lost,
                s.lost == 1 ? "call ended" : "calls ended");
    }
    for (const CheckedCall& call : s.bad) {
      out.Print("\n{:<7}  {}\n", VerdictName(CheckSummary::Worse(call.forward, call.backward)),
                MakePrintable(call.name));
      if (const std::string line = LineOf(dump, calls, call.name); !line.empty())
        out.Print("  {}\n", MakePrintable(line));
      if (!call.message.empty()) out.Print("  {}\n", MakePrintable(call.message));
      PrintRows("forward", call.forward_rows, out);
      PrintRows("backward", call.backward_rows, out);
    }
    out.Print("\nwritten: {}\n         {}\n", files.result_path(), files.details_path());
  }

  void PrintJson(const Dump& dump, const std::vector<replay::RecordedCall>& calls,
                 const CheckSummary& s, const accuracy::CheckFiles& files, Console& out) const {
    std::string text = fmt::format(
        "{{\"calls\": {}, \"pass\": {}, \"warning\": {}, \"error\": {}, \"skip\": {}, \"lost\": "
        "{}, "
        "\"result_csv\": ",
        calls.size(), s.of(Verdict::kPass), s.of(Verdict::kWarning), s.of(Verdict::kError),
        s.of(Verdict::kSkip), s.lost);
    AppendJsonString(&text, files.result_path());
    text += ", \"details_csv\": ";
    AppendJsonString(&text, files.details_path());
    text += ", \"worst\": [";
    for (size_t i = 0; i < s.bad.size(); ++i) {
      text += i == 0 ? "\n  {\"name\": " : ",\n  {\"name\": ";
      AppendJsonString(&text, s.bad[i].name);
      text += fmt::format(", \"forward\": \"{}\", \"backward\": \"{}\", \"message\": ",
                          VerdictName(s.bad[i].forward), Trim(VerdictName(s.bad[i].backward)));
      AppendJsonString(&text, s.bad[i].message);
      text += ", \"source_line\": ";
      AppendJsonString(&text, LineOf(dump, calls, s.bad[i].name));
      text += '}';
    }
    out.Write(text + "]}\n");
  }

  const std::string_view name_;
  const bool many_;
  std::string dump_, output_ = "./", resume_, config_, as_, memory_, format_ = "table";
  std::vector<std::string> devices_;
  int64_t splits_ = 0, seed_ = 1234, timeout_ = 600;
  bool distinct_ = false, save_ = false, jit_ = false, exit_code_ = false;
};

}  // namespace

std::unique_ptr<Verb> MakeRunUtVerb(std::string_view name, bool many) {
  return std::make_unique<RunUt>(name, many);
}

}  // namespace msprobe::cli
