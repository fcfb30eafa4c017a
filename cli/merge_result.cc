#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "cli/command_line/time_stamp.h"
#include "cli/compare_copies.h"
#include "cli/outputs/merge_parts.h"
#include "cli/verbs.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/compare/merge_ranks.h"

namespace msprobe::cli {
namespace {

class MergeResult : public Verb {
 public:
  std::string_view name() const override { return "merge_result"; }
  Message summary() const override {
    return "put the results of chosen calls of all ranks side by side, or report on all parts of a "
           "comparison"_t;
  }
  void AddFlags(Flags& flags) override {
    flags
        .Text("-i,--input_dir", &input_,
              "folder of the tables compare_result_rank0_TIME.csv or .xlsx, ...; or of the files "
              "that compare --part left"_t)
        .TypeName("FOLDER")
        .Required()
        .Common();
    flags.Text("-o,--output_dir", &output_, "folder for the files that are written"_t)
        .TypeName("FOLDER")
        .Required()
        .Common();
    flags
        .Text("--config_path", &config_,
              "yaml: api, a list of names of calls; compare_index, a list of columns, without that "
              "all metrics. Without this file the parts of compare --part are put together"_t)
        .TypeName("FILE")
        .Common();
    flags.Group("Of parts"_t);
    flags.Text("--format", &format_, "what is printed: table is a summary"_t)
        .OneOf({"table", "json"})
        .ShowDefault()
        .Common();
    AddExitCode(flags, &exit_code_);
    reports_.AddSummaries(flags);
  }

  Result<int> Run(Console& out) override {
    const bool of_parts = format_ != "table" || exit_code_ || reports_.NeedDetails();
    if (!config_.empty() && of_parts) {
      return InvalidArgument(
                 "--config_path puts tables together, and the other flags are of parts"_t)
          .Hint("leave one of them out"_t);
    }
    if (!config_.empty()) return MergeTables(out);
    const PartsToMerge parts{
        .input = input_,
        .output = output_,
        .format = format_ == "json" ? StdoutFormat::kJson : StdoutFormat::kTable,
        .exit_code = exit_code_,
        .reports = reports_};
    MSPROBE_ASSIGN_OR_RETURN(compare::ComparedPart all, compare::ReadParts(input_));
    return all.joined.empty() ? MergeParts(parts, std::move(all), out)
                              : CompareCopies(parts, std::move(all), out);
  }

 private:
  Result<int> MergeTables(Console& out) const {
    MSPROBE_ASSIGN_OR_RETURN(const compare::MergeConfig config, compare::ReadMergeConfig(config_));
    MSPROBE_ASSIGN_OR_RETURN(const compare::MergedTables merged,
                             compare::MergeRanks(input_, config));
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(output_));
    const std::string path =
        JoinPath(output_, fmt::format("multi_ranks_compare_merge_{}.xlsx",
                                      TimeStamp(static_cast<long long>(std::time(nullptr)))));
    MSPROBE_RETURN_IF_ERROR(compare::WriteMerged(merged, path));
    for (const Message& note : merged.notes) out.Warn("left out: {}"_t(note));
    for (const compare::MergedTables::Index& index : merged.indices) {
      out.Tell("{}: {} rows of {} ranks"_t(index.name, index.rows.size(), merged.ranks.size()));
    }
    out.Tell("written: {}"_t(path));
    return kExitOk;
  }

  std::string input_, output_, config_, format_ = "table";
  bool exit_code_ = false;
  ReportFlags reports_;
};

}  // namespace

std::unique_ptr<Verb> MakeMergeResultVerb() { return std::make_unique<MergeResult>(); }

}  // namespace msprobe::cli
