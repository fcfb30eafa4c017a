#include <fmt/format.h>

#include <string>

#include "cli/verbs.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/exports/databases/trend_sources.h"
#include "engine/model/names.h"

namespace msprobe::cli {
namespace {

constexpr int64_t kMostThreads = 128;

Message CheckThreads(const std::string& text) {
  const int64_t threads = NumberAfter(text, "");
  return threads >= 1 && threads <= kMostThreads
             ? Message()
             : "expected a number from 1 to 128, found {}"_t(text);
}

class Data2db : public Verb {
 public:
  std::string_view name() const override { return "data2db"; }
  Message summary() const override {
    return "write statistics over steps and ranks that TensorBoard shows (.trend.db)"_t;
  }
  void AddFlags(Flags& flags) override {
    flags
        .Text("--data", &data_,
              "the folder with steps of dumps (level L0 or mix), or with the csv files of a "
              "monitor"_t)
        .TypeName("FOLDER")
        .Required();
    flags
        .Text("--db", &db_,
              "folder for dump_data.trend.db and monitor_data.trend.db; older ones are replaced"_t)
        .TypeName("FOLDER")
        .Required();
    flags.Text("--format", &format_, "what --data holds; auto: both are looked for"_t)
        .OneOf({"auto", "dump", "monitor"})
        .ShowDefault();
    flags
        .Text("--mapping", &mapping_,
              "JSON with texts and their replacements in all names: {{\".TE\": \".\"}}"_t)
        .TypeName("FILE");
    flags
        .Text("--micro_step", &micro_step_,
              "count each forward and backward pass within a step as a step"_t)
        .OneOf({"true", "false"})
        .ShowDefault();
    flags
        .Number("--process_num", &threads_,
                "how many files of a monitor are looked through at a time, at most 128"_t)
        .Check(&CheckThreads)
        .ShowDefault();
  }

  Result<int> Run(Console& out) override {
    if (!IsDirectory(data_)) return NotFound(data_).Expected("a folder of dumps or of a monitor"_t);
    if (Exists(db_) && !IsDirectory(db_))
      return InvalidArgument("--db {} is a file"_t(db_)).Hint("name a folder"_t);
    exports::TrendOptions options{.micro_steps = micro_step_ == "true",
                                  .threads = static_cast<size_t>(threads_)};
    if (!mapping_.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(options.replacements, exports::ReadReplacements(mapping_));
    }
    int64_t rows = 0;
    if (format_ != "monitor") {
      const std::string path = JoinPath(db_, "dump_data.trend.db");
      MSPROBE_ASSIGN_OR_RETURN(const exports::TrendMade made,
                               exports::TrendOfDumps(data_, path, options));
      rows += Report(made, path, out);
    }
    if (format_ != "dump") {
      const std::string path = JoinPath(db_, "monitor_data.trend.db");
      MSPROBE_ASSIGN_OR_RETURN(const exports::TrendMade made,
                               exports::TrendOfMonitor(data_, path, options));
      rows += Report(made, path, out);
    }
    if (rows > 0) return kExitOk;
    return InvalidArgument()
        .At(data_)
        .Expected(
            format_ == "monitor" ? Message(std::string("TIME-rank0-ID/actv_0-0.csv"))
            : format_ == "dump"
                ? "step0/rank0/dump.json with calls of modules"_t
                : "step0/rank0/dump.json with calls of modules, or TIME-rank0-ID/actv_0-0.csv"_t)
        .Found("none"_t)
        .Hint("record with level L0 or mix, and pass the folder above step0"_t);
  }

 private:
  static int64_t Report(const exports::TrendMade& made, const std::string& path, Console& out) {
    for (const auto& note : made.notes) out.Warn(note);
    if (made.rows > 0) out.Tell("written: {} ({} rows)"_t(path, made.rows));
    return made.rows;
  }

  std::string data_, db_, format_ = "auto", mapping_, micro_step_ = "true";
  int64_t threads_ = 1;
};

}  // namespace

std::unique_ptr<Verb> MakeData2dbVerb() { return std::make_unique<Data2db>(); }

}  // namespace msprobe::cli
