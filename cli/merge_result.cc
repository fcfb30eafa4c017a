#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "cli/command_line/time_stamp.h"
#include "cli/outputs/compare_output.h"
#include "cli/verbs.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/compare/merge_ranks.h"
#include "engine/compare/ranks/compared_part.h"

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
    return config_.empty() ? MergeParts(out) : MergeTables(out);
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

  // As `msprobe compare` ends that has compared all ranks itself.
  Result<int> MergeParts(Console& out) const {
    MSPROBE_ASSIGN_OR_RETURN(compare::ComparedPart all, compare::ReadParts(input_));
    PairedDumps paired{.left_out = std::move(all.left_out)};
    bool analyses = false;
    for (const compare::ComparedPair& pair : all.compared) {
      paired.pairs.push_back(
          {.target = pair.target, .golden = pair.golden, .rank = pair.rank, .step = pair.step});
      analyses |= !pair.analysis.empty();
    }
    if (paired.pairs.empty()) return NotFound(input_).Expected("a part with ranks"_t);
    CompareOutput output({.target = all.target,
                          .golden = all.golden,
                          .folder = output_,
                          .format = format_ == "json" ? StdoutFormat::kJson : StdoutFormat::kTable,
                          .diff_analyze = analyses,
                          .merges = true,
                          .reports = reports_},
                         paired, out);
    for (size_t i = 0; i < all.compared.size(); ++i) output.Add(i, std::move(all.compared[i]));
    MSPROBE_RETURN_IF_ERROR(output.Finish());
    return output.ExitCode(exit_code_);
  }

  std::string input_, output_, config_, format_ = "table";
  bool exit_code_ = false;
  ReportFlags reports_;
};

}  // namespace

std::unique_ptr<Verb> MakeMergeResultVerb() { return std::make_unique<MergeResult>(); }

}  // namespace msprobe::cli
