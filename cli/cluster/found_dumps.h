// The dumps that a node has found below a path, as a line of text: the node writes it, and the
// machine where the command was typed reads it.
//
//   MSPROBE_ASSIGN_OR_RETURN(const std::string line, FoundDumpsText("runs/a"));   // on the node
//   MSPROBE_ASSIGN_OR_RETURN(FoundDumps found, FoundDumpsOf(value, "node a"));    // of that line
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/inputs/compare_inputs.h"
#include "engine/base/status.h"
#include "engine/formats/text/json.h"

namespace msprobe::cli {

struct FoundDumps {
  DumpsBelow dumps;
  std::vector<uint64_t> bytes;  // of each dump: the size of its file
};

// JSON: {"path": "runs/a", "kind": 2, "dumps": [[step, rank, bytes, path], ...]}. Errors: those of
// FindDumpsBelow.
Result<std::string> FoundDumpsText(const std::string& path);
// Errors: kInvalidDump for anything else, which names `from`.
Result<FoundDumps> FoundDumpsOf(const formats::JsonValue& value, std::string_view from);

}  // namespace msprobe::cli
