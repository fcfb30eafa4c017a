// The sheet "summary" of a workbook: verdict, first divergence, counts, and what was not observed.
#pragma once

#include "engine/base/status.h"
#include "engine/compare/table/table_format.h"
#include "engine/formats/tables/xlsx.h"

namespace msprobe::compare {

Status WriteSummarySheet(const TableFormat& table, formats::XlsxWriter* book);

}  // namespace msprobe::compare
