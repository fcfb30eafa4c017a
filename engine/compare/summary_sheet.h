// The sheet "summary" of a workbook: verdict, first divergence, counts, and what was not observed.
#pragma once

#include "engine/base/status.h"
#include "engine/compare/columns.h"
#include "engine/formats/xlsx.h"

namespace msprobe {

Status WriteSummarySheet(const TableFormat& table, XlsxWriter* book);

}  // namespace msprobe
