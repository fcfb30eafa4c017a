// The flags of `msprobe compare` for the table of a pair of dumps.
//
//   TableFlags table_;
//   table_.Add(flags);                                           // in AddFlags
//   MSPROBE_RETURN_IF_ERROR(table_.Check());
//   compare::TableOptions options = table_.Options();
#pragma once

#include <string>

#include "cli/command_line/flags.h"
#include "engine/base/status.h"
#include "engine/compare/table/table_options.h"

namespace msprobe::cli {

struct TableFlags {
  std::string generation = "26", file, suffix;
  bool xlsx = false, no_stacks = false, highlight = false, half_cosine = false;

  void Add(Flags& flags);
  Status Check() const;  // kInvalidArgument for flags that do not fit together
  compare::TableOptions Options() const;
  bool is_workbook() const { return xlsx || file.ends_with(".xlsx"); }
};

}  // namespace msprobe::cli
