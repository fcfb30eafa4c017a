// Writes the tensors of dumps as .npy or .pt, each in a file of its own.
//
//   FileConversion wanted{.to = AscendLayout::kNCHW};
//   MSPROBE_ASSIGN_OR_RETURN(const ConvertedFile done,
//       ConvertFile("Conv2D.c.1.2.1697617551412398", "out", wanted));
//   done.written;  // {"out/Conv2D.c.1.2.1697617551412398.input.0.npy", ...}
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/tensor/ascend_layout.h"

namespace msprobe::operator_dumps {

struct FileConversion {
  std::optional<AscendLayout> to;    // nullopt: as stored
  std::optional<AscendLayout> from;  // of tensor files, which do not say it
  std::vector<int64_t> shape;        // of the result; empty: what the dump states
  bool pt = false;                   // NumPy has no bfloat16: .npy files have it as float32
};

struct ConvertedFile {
  std::vector<std::string> written;
  std::vector<Message> problems;  // a line for each tensor that could not be written, and why
};

// Errors: those of ReadOperatorFile, and of writing. `folder` is made.
Result<ConvertedFile> ConvertFile(const std::string& path, const std::string& folder,
                                  const FileConversion& wanted);

}  // namespace msprobe::operator_dumps
