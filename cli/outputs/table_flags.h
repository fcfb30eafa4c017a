// The flags of `msprobe compare` for the table of a pair of dumps.
//
//   TableFlags table_;
//   table_.Add(flags);                                           // in AddFlags
//   MSPROBE_RETURN_IF_ERROR(table_.Check());
//   compare::TableOptions options = table_.Options(128);         // of so many ranks
#pragma once

#include <cstddef>
#include <string>

#include "cli/command_line/flags.h"
#include "engine/base/status.h"
#include "engine/compare/table/table_options.h"

namespace msprobe::cli {

struct TableFlags {
  std::string generation = "26", file, suffix;
  bool xlsx = false, no_stacks = false, highlight = false, half_cosine = false;
  bool all_rows = false, differing_rows = false;

  void Add(Flags& flags);  // those of `msprobe compare`, which outlive this
  Status Check() const;    // kInvalidArgument for flags that do not fit together
  compare::TableOptions Options(size_t ranks) const;
  // Whether the tables of so many ranks have only rows that differ. In the command lines of older
  // tools (-tp, -gp, --table-format, --suffix) they do not unless it is asked for: scripts read the
  // rows of each rank there.
  bool LeavesRowsOut(size_t ranks) const;
  bool is_workbook() const { return xlsx || file.ends_with(".xlsx"); }

 private:
  const Flags* flags_ = nullptr;
};

}  // namespace msprobe::cli
