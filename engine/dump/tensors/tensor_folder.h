// Tensors without a dump around them: a folder of .npy, .pt and .safetensors files, or one such
// file, as records with one value each, so that two of them compare like two dumps.
#pragma once

#include <string>

#include "engine/model/table.h"

namespace msprobe::dump {

// Whether a file below `folder` is a tensor file, by content. Links are not followed.
bool HoldsTensorFiles(const std::string& folder);

// `path`: the folder, walked with its sub-folders, or one file. Rows are named by path without
// extension ("layer1/weight"), a file of several tensors by that and their names in it, and stand
// in numeric-aware order (2 before 10). One file against another needs no common name: a file of
// one tensor is the record "tensor", one of several has its tensors' names. A file that cannot be
// read is a record, too; reading its data says why. Other files are counted in dump.note.
Result<Dump> ReadTensorFolder(const std::string& path);

}  // namespace msprobe::dump
