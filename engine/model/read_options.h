// What a reader of dumps is asked for besides the path.
//
//   ReadOptions options;
//   options.tensor_folder = "runs/new/step0/rank0/dump_tensor_data";
#pragma once

#include <optional>
#include <string>

namespace msprobe {

struct ReadOptions {
  // Where the tensor files are; "": they are not read. Unset: where the dialect puts them.
  std::optional<std::string> tensor_folder;
  // false: only what calls take and make; no stacks, modules around calls, weights and signatures.
  bool side_files = true;
  // false: statistics of tensors in a dump.json stay texts until ParseNumbers (leaf_parser.h)
  // parses them: their numbers mean nothing until then. Fingerprints stay as the file spells them.
  bool parse_numbers = true;
};

}  // namespace msprobe
