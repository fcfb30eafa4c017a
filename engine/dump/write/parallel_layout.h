// How the processes of a run were arranged, as the header of its dump says (ours only): process
// groups, device meshes, wrappers of modules, sizes that Megatron knows.
//
//   MSPROBE_ASSIGN_OR_RETURN(ParallelLayout layout, ParallelLayoutOf(dump));  // empty: not said
//   for (const std::string& line : ParallelLines(layout)) std::puts(line.c_str());
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/model/table.h"

namespace msprobe::dump {

// The header's member, and the key in Dump::provenance under which it is kept as JSON.
inline constexpr std::string_view kParallel = "parallel";

struct ParallelLayout {
  struct Group {
    std::vector<int64_t> ranks;
    std::string backend, name;  // "gloo"; the name that the program gave, or a number
    std::string description;    // what it is for: "mesh_tp", of dimension "tp" of a mesh; may be ""
  };
  struct Mesh {
    std::string ranks;               // JSON: "[[0, 1], [2, 3]]"
    std::vector<std::string> names;  // of its dimensions: "dp", "tp"; may be empty
  };
  struct Wrapper {
    std::string module, kind;  // "blocks.0", "FSDPModule"
  };
  std::vector<Group> groups;
  std::vector<Mesh> meshes;
  std::vector<Wrapper> wrappers;
  std::vector<std::pair<std::string, int64_t>> megatron;  // "tensor_model_parallel" -> 2

  bool empty() const {
    return groups.empty() && meshes.empty() && wrappers.empty() && megatron.empty();
  }
};

Result<ParallelLayout> ParallelLayoutOf(const Dump& dump);
// `json`: the value of the member; errors name `path`. A rank is from 0 to 2^31 - 1.
Result<ParallelLayout> ParseParallelLayout(std::string_view json, const std::string& path);

// "groups: [0, 1] gloo; [0] gloo expert", "wrappers: 3 FSDPModule", ...; one line for each part.
std::vector<std::string> ParallelLines(const ParallelLayout& layout);

}  // namespace msprobe::dump
