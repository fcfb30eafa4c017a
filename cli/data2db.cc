#include <fmt/format.h>

#include <string>

#include "cli/verbs.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/exports/databases/trend_sources.h"
#include "engine/model/names.h"

namespace msprobe::cli {
namespace {

constexpr int64_t kMostThreads = 128;

std::string CheckThreads(const std::string& text) {
  const int64_t threads = NumberAfter(text, "");
  return threads >= 1 && threads <= kMostThreads ? ""
                                                 : "expected a number from 1 to 128, found " + text;
}

class Data2db : public Verb {
 public:
  std::string_view name() const override { return "data2db"; }
  std::string_view summary() const override {
    return "write statistics over steps and ranks that TensorBoard shows (.trend.db)";
  }
  void AddFlags(Flags& flags) override {
    flags
        .Text(
            "--data", &data_,
            "the folder with steps of dumps (level L0 or mix), or with the csv files of a monitor")
        .TypeName("FOLDER")
        .Required();
    flags
        .Text("--db", &db_,
              "folder for dump_data.trend.db and monitor_data.trend.db; older ones are replaced")
        .TypeName("FOLDER")
        .Required();
    flags.Text("--format", &format_, "what --data holds; auto: both are looked for")
        .OneOf({"auto", "dump", "monitor"})
        .ShowDefault();
    flags
        .Text("--mapping", &mapping_,
              "JSON with texts and their replacements in all names: {\".TE\": \".\"}")
        .TypeName("FILE");
    flags
        .Text("--micro_step", &micro_step_,
              "count each forward and backward pass within a step as a step")
        .OneOf({"true", "false"})
        .ShowDefault();
    flags
        .Number("--process_num", &threads_,
                "how many files of a monitor are looked through at a time, at most 128")
        .Check(&CheckThreads)
        .ShowDefault();
  }

  Result<int> Run(Console& out) override {
    if (!IsDirectory(data_)) return NotFound(data_).Expected("a folder of dumps or of a monitor");
    if (Exists(db_) && !IsDirectory(db_))
      return InvalidArgument(fmt::format("--db {} is a file", db_)).Hint("name a folder");
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
        .Expected(format_ == "monitor" ? kMonitor
                  : format_ == "dump"  ? kDumps
                                       : fmt::format("{}, or {}", kDumps, kMonitor))
        .Found("none")
        .Hint("record with level L0 or mix, and pass the folder above step0");
  }

 private:
  static constexpr const char* kDumps = "step0/rank0/dump.json with calls of modules";
  static constexpr const char* kMonitor = "TIME-rank0-ID/actv_0-0.csv";

  static int64_t Report(const exports::TrendMade& made, const std::string& path, Console& out) {
    for (const std::string& note : made.notes) out.Warn(MakePrintable(note) + "\n");
    if (made.rows > 0) out.Tell("written: {} ({} rows)\n", MakePrintable(path), made.rows);
    return made.rows;
  }

  std::string data_, db_, format_ = "auto", mapping_, micro_step_ = "true";
  int64_t threads_ = 1;
};

}  // namespace

std::unique_ptr<Verb> MakeData2dbVerb() { return std::make_unique<Data2db>(); }

}  // namespace msprobe::cli
