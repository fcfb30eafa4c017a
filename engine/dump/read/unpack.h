// The tensors of packs as files of their own, which other tools read.
//
//   MSPROBE_ASSIGN_OR_RETURN(std::vector<UnpackedTensors> done, UnpackTensors("runs/a", ""));
//   for (const UnpackedTensors& one : done) Print(one.folder);    // .pt and .npy files
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::dump {

struct UnpackedTensors {
  std::string pack, folder;
  uint64_t files = 0, bytes = 0;  // of elements
  uint64_t ignored_bytes = 0;     // of an unfinished tensor at the end of the pack
};

// `path`: a pack, its folder, a dump, or a folder of many steps and ranks. The files are written to
// `output`, which is for one pack; "": beside each pack. The packs stay. Errors: kNotFound: there
// is no pack; kInvalidArgument: an output for several packs; those of TensorPack.
Result<std::vector<UnpackedTensors>> UnpackTensors(const std::string& path,
                                                   const std::string& output);

// The pack that belongs to a path: the file itself, in the folder, or in its dump_tensor_data; "".
std::string PackOf(const std::string& path);

}  // namespace msprobe::dump
