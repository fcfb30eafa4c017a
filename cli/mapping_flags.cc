#include "cli/mapping_flags.h"

#include <fmt/format.h>

#include <ctime>

#include "cli/compare_output.h"
#include "engine/base/file.h"

namespace msprobe {

void MappingFlags::Add(CLI::App& app) {
  const auto optional_file = [&](const char* name, std::string* value, const char* help) {
    return app.add_option(name, *value, help)->expected(0, 1)->type_name("[FILE]");
  };
  cell_option_ =
      optional_file("--cell_mapping", &cell_,
                    "names of modules that differ on purpose; see docs/compare_names.md");
  api_option_ = optional_file("--api_mapping", &api_, "the same for API calls and their arguments");
  layer_option_ =
      optional_file("--layer_mapping", &layer_,
                    "the same by class; saves what it came to as data_mapping_TIME.yaml");
  app.add_option("--data_mapping", data_, "pairs of values, target name: golden name")
      ->type_name("FILE");
  app.add_option("--rename", renames_,
                 "s/from/to/ on the target's names; may be given several times")
      ->type_name("EXPRESSION")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

bool MappingFlags::given() const {
  return api_option_->count() + cell_option_->count() + layer_option_->count() > 0 ||
         !data_.empty() || !renames_.empty();
}

MappingRequest MappingFlags::Request() const {
  MappingRequest request{.data_file = data_, .renames = renames_};
  if (api_option_->count() > 0) request.api_file = api_;
  if (cell_option_->count() > 0) request.cell_file = cell_;
  if (layer_option_->count() > 0) request.layer_file = layer_;
  return request;
}

Result<NameMapping> MappingFlags::For(const Dump& target, const Dump& golden) const {
  return BuildMapping(Request(), target, golden);
}

Result<std::string> MappingFlags::Save(const std::string& folder, int rank,
                                       const Comparison& comparison) const {
  if (layer_option_->count() == 0) return std::string();
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::string path =
      JoinPath(folder, fmt::format("data_mapping{}_{}.yaml",
                                   rank < 0 ? std::string() : fmt::format("_rank{}", rank),
                                   TimeStamp(std::time(nullptr))));
  MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(path, DataMappingYaml(comparison)));
  return path;
}

}  // namespace msprobe
