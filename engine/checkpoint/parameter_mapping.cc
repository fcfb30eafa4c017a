#include "engine/checkpoint/parameter_mapping.h"

#include <string_view>

#include "engine/compare/align/mapping_files.h"
#include "engine/compare/align/rename.h"

namespace msprobe::checkpoint {
namespace {

// "net.fc" for "net.fc.Dense": cell mappings for dumps have a class after the path. A path without
// a class stays as it is.
std::string_view WithoutClass(std::string_view path) {
  const size_t dot = path.rfind('.');
  const bool has_class =
      dot != path.npos && dot + 1 < path.size() && path[dot + 1] >= 'A' && path[dot + 1] <= 'Z';
  return has_class ? path.substr(0, dot) : path;
}

// Rewrites `name` by the cell mapping; false: no key fits.
bool ApplyCells(const compare::NamePairs& cells, std::string* name) {
  const size_t dot = name->rfind('.');
  const std::string_view module =
      dot == name->npos ? std::string_view() : std::string_view(*name).substr(0, dot);
  for (const auto& [from, to] : cells) {
    if (module.empty() || (module != from && module != WithoutClass(from))) continue;
    name->replace(0, dot, module == from ? std::string_view(to) : WithoutClass(to));
    return true;
  }
  bool found = false;
  for (const auto& [from, to] : cells) {
    const size_t at = name->find(from);
    if (at == name->npos) continue;
    name->replace(at, from.size(), to);
    found = true;
  }
  return found;
}

}  // namespace

Result<ParameterMapping> BuildParameterMapping(const compare::MappingRequest& request,
                                               const Checkpoint& target) {
  if (request.api_file || request.layer_file) {
    return Unsupported(request.api_file ? "-am pairs calls, and a checkpoint has none"_t
                                        : "-lm needs classes, and a checkpoint has none"_t)
        .Hint("for parameters: --rename 's/from/to/', -cm FILE or -dm FILE"_t);
  }
  compare::NamePairs whole, cells;
  std::vector<compare::Rename> renames;
  for (const std::string& expression : request.renames) {
    MSPROBE_ASSIGN_OR_RETURN(compare::Rename rename, compare::Rename::Parse(expression));
    renames.push_back(std::move(rename));
  }
  if (!request.data_file.empty()) {
    MSPROBE_ASSIGN_OR_RETURN(whole, compare::ReadNamePairs(request.data_file));
  }
  if (request.cell_file && !request.cell_file->empty()) {
    MSPROBE_ASSIGN_OR_RETURN(cells, compare::ReadNamePairs(*request.cell_file));
  }
  const std::map<std::string, std::string> by_name(whole.begin(), whole.end());
  size_t whole_hits = 0, cell_hits = 0;
  std::vector<size_t> rename_hits(renames.size(), 0);
  ParameterMapping out;
  for (const CheckpointTensor& tensor : target.tensors()) {
    std::string name = tensor.name;
    if (const auto found = by_name.find(name); found != by_name.end()) {
      ++whole_hits;
      out.names.emplace(tensor.name, found->second);
      continue;
    }
    cell_hits += ApplyCells(cells, &name);
    for (size_t i = 0; i < renames.size(); ++i) {
      std::string renamed = renames[i].Apply(name);
      rename_hits[i] += renamed != name;
      name = std::move(renamed);
    }
    if (name != tensor.name) out.names.emplace(tensor.name, std::move(name));
  }
  if (!whole.empty() && whole_hits == 0)
    out.notes.push_back("the data mapping names nothing in the target"_t);
  if (!cells.empty() && cell_hits == 0)
    out.notes.push_back("the cell mapping names nothing in the target"_t);
  for (size_t i = 0; i < renames.size(); ++i) {
    if (rename_hits[i] == 0) {
      out.notes.push_back("--rename {} changes no name of the target"_t(renames[i].expression()));
    }
  }
  return out;
}

}  // namespace msprobe::checkpoint
