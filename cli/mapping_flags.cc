#include "cli/mapping_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "cli/compare_output.h"
#include "engine/base/file.h"

namespace msprobe::cli {
namespace {

CLI::Option* OptionalFile(CLI::App& app, const char* name, std::string* value, const char* help) {
  return app.add_option(name, *value, help)->expected(0, 1)->type_name("[FILE]");
}

}  // namespace

void MappingFlags::Add(CLI::App& app) {
  AddForParameters(app);
  api_option_ = OptionalFile(app, "--api_mapping", &api_, "names of API calls and their arguments");
  layer_option_ =
      OptionalFile(app, "--layer_mapping", &layer_,
                   "names of layers, by class; saves what it came to as data_mapping_TIME.yaml");
}

void MappingFlags::AddForParameters(CLI::App& app) {
  cell_option_ = OptionalFile(app, "--cell_mapping", &cell_,
                              "names of modules that differ on purpose; see docs/compare_names.md");
  app.add_option("--data_mapping", data_, "pairs of values, target name: golden name")
      ->type_name("FILE");
  app.add_option("--rename", renames_,
                 "s/from/to/ on the target's names; may be given several times")
      ->type_name("EXPRESSION")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

compare::MappingRequest MappingFlags::Request() const {
  compare::MappingRequest request{.data_file = data_, .renames = renames_};
  if (api_option_ != nullptr && api_option_->count() > 0) request.api_file = api_;
  if (cell_option_->count() > 0) request.cell_file = cell_;
  if (layer_option_ != nullptr && layer_option_->count() > 0) request.layer_file = layer_;
  return request;
}

Result<compare::NameMapping> MappingFlags::For(const Dump& target, const Dump& golden) const {
  return compare::BuildMapping(Request(), target, golden);
}

uint64_t MappingFlags::Memory(const Dump& target, const Dump& golden) const {
  uint64_t bytes = 0;
  std::error_code error;
  if (!data_.empty()) {  // its names as they are held, and a table of the golden's
    const uint64_t size = std::filesystem::file_size(data_, error);
    if (!error) bytes += 8 * size + 72 * golden.leaves.size();
  }
  if (layer_option_->count() > 0)  // the text that is saved
    bytes += 256 * std::max(target.leaves.size(), golden.leaves.size());
  return bytes;
}

Result<checkpoint::ParameterMapping> MappingFlags::For(const checkpoint::Checkpoint& target) const {
  return checkpoint::BuildParameterMapping(Request(), target);
}

Result<std::string> MappingFlags::Save(const std::string& folder, int rank,
                                       const compare::Comparison& comparison) const {
  if (layer_option_->count() == 0) return std::string();
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::string path =
      JoinPath(folder, fmt::format("data_mapping{}_{}.yaml",
                                   rank < 0 ? std::string() : fmt::format("_rank{}", rank),
                                   TimeStamp(std::time(nullptr))));
  MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(path, compare::DataMappingYaml(comparison)));
  return path;
}

}  // namespace msprobe::cli
