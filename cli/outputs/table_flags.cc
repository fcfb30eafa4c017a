#include "cli/outputs/table_flags.h"

namespace msprobe::cli {

void TableFlags::Add(Flags& flags) {
  flags_ = &flags;
  flags.Switch("--xlsx", &xlsx, "write the table as an Excel workbook instead of csv"_t).Common();
  flags
      .Text("--table-format", &generation,
            "columns and cells as msprobe 1.0, 1.2, 8 or 26, torch_npu.hooks (hooks), "
            "ptdbg_ascend 0.1 (ptdbg-0.1) or 4 to 6 (ptdbg) wrote them; our columns follow. "
            "auto: 1.2 if msprobe 1.2 wrote both dumps, else 8"_t)
      .TypeName("FORMAT")
      .OneOf({"hooks", "ptdbg-0.1", "ptdbg", "1.0", "1.2", "8", "26", "auto"})
      .ShowDefault()
      .Common();
  flags
      .Text("--table-file", &file,
            "write the table to this file instead; a workbook if the name ends in .xlsx"_t)
      .TypeName("FILE");
  flags.Text("--suffix", &suffix, "text after compare_result in the names of the files"_t);
  flags.Switch("--all-rows", &all_rows,
               "write all rows, also in the tables of more than 64 ranks, which have only rows "
               "that differ"_t);
  flags.Switch("--differing-rows", &differing_rows,
               "leave rows that agree out of each table, however many ranks there are"_t);
  flags.Switch("--no-stacks", &no_stacks, "leave out the column NPU_Stack_Info"_t);
  flags.Switch("--highlight", &highlight,
               "table format 8: color suspicious rows of the workbook, and say why"_t);
  flags.Switch(
      "--half-cosine", &half_cosine,
      "table formats hooks, ptdbg-0.1: cosines as 0.5 + 0.5 cos, as these tools wrote them"_t);
}

Status TableFlags::Check() const {
  if (half_cosine && generation != "hooks" && generation != "ptdbg-0.1") {
    return InvalidArgument("--half-cosine cannot be combined with --table-format {}"_t(generation))
        .Hint("only the tables hooks and ptdbg-0.1 had such cosines"_t);
  }
  if (all_rows && differing_rows) {
    return InvalidArgument("--all-rows and --differing-rows exclude each other"_t)
        .Hint("pass one of them"_t);
  }
  if (suffix.find('/') != std::string::npos) {
    return InvalidArgument("--suffix {} contains a /"_t(suffix)).Hint("-o names the folder"_t);
  }
  return Status::Ok();
}

bool TableFlags::LeavesRowsOut(size_t ranks) const {
  if (all_rows || differing_rows) return differing_rows;
  const bool older =
      generation != "26" || !suffix.empty() || flags_->IsGivenByName("--target_path");
  return ranks > compare::kManyRanks && !older;
}

compare::TableOptions TableFlags::Options(size_t ranks) const {
  return {.generation = generation == "hooks"       ? compare::Generation::kHooks
                        : generation == "ptdbg-0.1" ? compare::Generation::kPtdbgFirst
                        : generation == "ptdbg"     ? compare::Generation::kPtdbg
                        : generation == "1.0"       ? compare::Generation::k1
                        : generation == "1.2"       ? compare::Generation::k1_2
                        : generation == "26"        ? compare::Generation::k26
                                                    : compare::Generation::k8,  // and auto
          .stacks = !no_stacks,
          .highlight = highlight,
          .half_cosine = half_cosine,
          .recognize_1_2 = generation == "auto",
          .only_differing = LeavesRowsOut(ranks)};
}

}  // namespace msprobe::cli
