// Tensors without a dump: a folder of .npy, .pt and .safetensors files, or one such file. Each
// tensor becomes a record with one value, so that two folders are compared like two dumps.
#pragma once

#include <string>

#include "engine/model/table.h"

namespace msprobe::dump {

// Whether some file below `folder` is a tensor file; its content decides. Links are not followed.
bool HoldsTensorFiles(const std::string& folder);

// `path`: the folder, which is read with its sub-folders, or one file. A record is named by the
// path of its file without extension ("layer1/weight"), followed by the tensor's name in a file of
// several tensors. Records are sorted by name, with numbers in order (2 before 10). If `path` is
// one file, so that two files of any names can be compared: the record of a single tensor is named
// "tensor", those of several tensors by their names. A file that cannot be read is a record as
// well; reading its data gives the error. Files that are not tensor files are counted in dump.note.
Result<Dump> ReadTensorFolder(const std::string& path);

}  // namespace msprobe::dump
