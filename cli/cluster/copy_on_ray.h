// Ranks that are joined (compare/layouts), with `msprobe compare --ray ADDRESS`: the nodes send the
// dumps that they have, without the elements of tensors, and this machine joins and compares them.
//
//   MSPROBE_RETURN_IF_ERROR(CopyFromNodes(wanted, std::move(nodes), paired, folder, console));
//   MSPROBE_ASSIGN_OR_RETURN(compare::ComparedPart all, compare::ReadParts(wanted.folder));
//
// Each rank is a part of the comparison, with its dumps of all steps and of both sides; one dump is
// fetched from a node at a time. A node that is lost is replaced by another one that has the same
// dump. A dump that no node sends says why.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/compare_on_ray.h"
#include "cli/cluster/ray_nodes.h"
#include "cli/command_line/console.h"
#include "cli/inputs/compare_inputs.h"
#include "engine/base/status.h"

namespace msprobe::cli {

// `answers`: a folder for what the nodes send. Errors: kIo.
Status CopyFromNodes(const RayComparison& wanted, RayNodes nodes, const PairedDumps& paired,
                     const std::string& answers, Console& out);

}  // namespace msprobe::cli
