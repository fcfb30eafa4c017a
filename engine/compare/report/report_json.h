// The comparison as one strict JSON document, for scripts and other tools.
// docs/reference/compare-json.md describes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/compare/explain/findings.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

inline constexpr std::string_view kJsonReportSchema = "msprobe.compare/2";

// The document ends with a newline. Numbers that are not finite are the strings "NaN", "Infinity"
// and "-Infinity"; a member that does not apply is null.
//
//   MSPROBE_RETURN_IF_ERROR(WriteFileAtomically("out/compare.json", JsonReport(comparison)));
std::string JsonReport(const Comparison& comparison);

// How many names and regions the lists of the document have: a hundred each, or all.
enum class JsonLists : uint8_t { kShort, kWhole };
// `found`: FindingsOf(comparison).
std::string JsonReport(const Comparison& comparison, const Findings& found, JsonLists lists);

}  // namespace msprobe::compare
