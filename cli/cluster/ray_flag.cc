#include "cli/cluster/ray_flag.h"

#include <string_view>

namespace msprobe::cli {
namespace {

// Flags that need the comparison of a rank itself, or that are about one rank.
constexpr std::string_view kNotOnRay[] = {"--part",          "--rank-order",
                                          "--target-data",   "--golden-data",
                                          "--html",          "--perfetto",
                                          "--vis-db",        "--model-explorer",
                                          "--explain",       "--why",
                                          "--table-file",    "--allow-nothing-compared",
                                          "--layer_mapping", "--is_print_compare_log"};
// Flags of the report on all ranks, and what each node is told in another way.
constexpr std::string_view kNotForNodes[] = {"--ray",      "--output_path", "--rank",
                                             "--format",   "--exit-code",   "--junit",
                                             "--markdown", "--lang"};

}  // namespace

void RayFlag::Add(Flags& flags) {
  flags_ = &flags;
  flags
      .Text("--ray", &address_,
            "compare the ranks on the nodes of a cluster of Ray: HOST:PORT, or auto. Each node "
            "compares the ranks whose dumps it has, of both sides, at the same path"_t)
      .TypeName("ADDRESS");
}

Result<RayComparison> RayFlag::Wanted(const std::string& target, const std::string& golden,
                                      const std::string& folder, const RankFlags& ranks) const {
  for (const std::string_view flag : kNotOnRay) {
    if (!flags_->IsGiven(flag)) continue;
    return InvalidArgument("--ray cannot be combined with {}"_t(flag))
        .Hint("leave one of them out"_t);
  }
  RayComparison wanted{.address = address_, .target = target, .golden = golden, .folder = folder};
  wanted.words = flags_->Words(kNotForNodes);
  MSPROBE_ASSIGN_OR_RETURN(wanted.flags, FlagsOfAllParts(*flags_));
  wanted.words.insert(wanted.words.begin(), "compare");
  if (!ranks.ranks.empty()) wanted.selection_flags += " --rank " + ranks.ranks;
  if (!ranks.steps.empty()) wanted.selection_flags += " --step " + ranks.steps;
  if (ranks.common) wanted.selection_flags += " --common";
  return wanted;
}

}  // namespace msprobe::cli
