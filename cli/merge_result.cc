#include <fmt/format.h>

#include <ctime>

#include "cli/command_line/time_stamp.h"
#include "cli/outputs/compare_output.h"
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
    return "put the results of chosen calls of all ranks side by side"_t;
  }
  void AddFlags(Flags& flags) override {
    flags
        .Text("-i,--input_dir", &input_,
              "folder of the tables compare_result_rank0_TIME.csv "
              "or .xlsx, ..."_t)
        .TypeName("FOLDER")
        .Required();
    flags.Text("-o,--output_dir", &output_, "folder for multi_ranks_compare_merge_TIME.xlsx"_t)
        .TypeName("FOLDER")
        .Required();
    flags
        .Text("--config_path", &config_,
              "yaml: api, a list of names of calls; compare_index, a list of columns; without that "
              "all metrics"_t)
        .TypeName("FILE")
        .Required();
  }

  Result<int> Run(Console& out) override {
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

 private:
  std::string input_, output_, config_;
};

}  // namespace

std::unique_ptr<Verb> MakeMergeResultVerb() { return std::make_unique<MergeResult>(); }

}  // namespace msprobe::cli
