#include "cli/inputs/mapping_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/command_line/time_stamp.h"
#include "engine/base/file.h"

namespace msprobe::cli {
namespace {

Flag OptionalFile(Flags& flags, const char* name, std::string* value, Message help) {
  return flags.Text(name, value, std::move(help)).Values(0, 1).TypeName("[FILE]");
}

}  // namespace

void MappingFlags::Add(Flags& flags) {
  AddForParameters(flags);
  api_flag_ =
      OptionalFile(flags, "--api_mapping", &api_, "names of API calls and their arguments"_t);
  layer_flag_ = OptionalFile(
      flags, "--layer_mapping", &layer_,
      "names of layers, by class; saves the resulting pairs as data_mapping_TIME.yaml"_t);
}

void MappingFlags::AddForParameters(Flags& flags) {
  cell_flag_ =
      OptionalFile(flags, "--cell_mapping", &cell_,
                   "names of modules that differ on purpose; see docs/howto/pair-names.md"_t);
  flags.Text("--data_mapping", &data_, "pairs of values, target name: golden name"_t)
      .TypeName("FILE");
  flags
      .Texts("--rename", &renames_,
             "s/from/to/ on the target's names; may be given several times"_t)
      .TypeName("EXPRESSION")
      .Values(1, 1)
      .Repeatable()
      .Common();
}

compare::MappingRequest MappingFlags::Request() const {
  compare::MappingRequest request{.data_file = data_, .renames = renames_};
  if (api_flag_.given()) request.api_file = api_;
  if (cell_flag_.given()) request.cell_file = cell_;
  if (layer_flag_.given()) request.layer_file = layer_;
  return request;
}

Result<compare::NameMapping> MappingFlags::For(const Dump& target, const Dump& golden) const {
  return compare::BuildMapping(Request(), target, golden);
}

uint64_t MappingFlags::Memory(const Dump& target, const Dump& golden) const {
  uint64_t bytes = 0;
  std::error_code error;
  if (!data_.empty()) {  // its names, and a table of the golden's names
    const uint64_t size = std::filesystem::file_size(data_, error);
    if (!error) bytes += 8 * size + 72 * golden.leaves.size();
  }
  if (layer_flag_.given())  // the text that is saved
    bytes += 256 * std::max(target.leaves.size(), golden.leaves.size());
  return bytes;
}

Result<checkpoint::ParameterMapping> MappingFlags::For(const checkpoint::Checkpoint& target) const {
  return checkpoint::BuildParameterMapping(Request(), target);
}

Result<std::string> MappingFlags::Save(const std::string& folder, int rank,
                                       const compare::Comparison& comparison) const {
  if (!layer_flag_.given()) return std::string();
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::string path =
      JoinPath(folder, fmt::format("data_mapping{}_{}.yaml",
                                   rank < 0 ? std::string() : fmt::format("_rank{}", rank),
                                   TimeStamp(std::time(nullptr))));
  MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(path, compare::DataMappingYaml(comparison)));
  return path;
}

}  // namespace msprobe::cli
