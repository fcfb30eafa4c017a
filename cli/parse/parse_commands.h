// The commands of `msprobe parse`: what a line of its shell can do.
//
//   for (const auto& command : ParseCommands()) out.Print("{}\n", command->name());
#pragma once

#include <memory>
#include <vector>

#include "cli/command_line/verb.h"

namespace msprobe::cli {

// pt, cn, pk, vc, dc, cad, in the order of help. Run answers kExitDiffers where two tensors or
// folders differ.
std::vector<std::unique_ptr<Verb>> ParseCommands();

// `msprobe parse -d PATH` of msprobe 26: every tensor of a file, or of the files below a folder,
// becomes a file of `type` ("npy", "pt") in `output`.
Result<int> ConvertOperatorDumps(const std::string& path, const std::string& type,
                                 const std::string& output, Console& out);

}  // namespace msprobe::cli
