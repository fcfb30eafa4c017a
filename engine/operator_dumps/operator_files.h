// The tensors in dumps of operators: files of CANN, which hold several, and tensor files.
//
//   MSPROBE_ASSIGN_OR_RETURN(const OperatorFolder found, ListOperatorFiles("dump/20231018/0"));
//   for (const std::string& file : found.files)
//     MSPROBE_RETURN_IF_ERROR(ReadOperatorFile(JoinPath("dump/20231018/0", file)).status());
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/formats/tensors/ascend_dump.h"

namespace msprobe::operator_dumps {

struct OperatorFolder {
  std::vector<std::string> files;   // relative to the folder, sorted
  std::vector<std::string> others;  // files whose content is neither a dump nor a tensor
};

// Goes into folders, not through links to folders. A path of one file gives that file. Errors:
// kNotFound; kIo.
Result<OperatorFolder> ListOperatorFiles(const std::string& path);

struct OperatorValue {
  std::string suffix;  // "input.0"; "" for the one tensor of a tensor file
  formats::AscendTensor tensor;
};

// Errors: those of ReadAscendDump and ReadTensorFile.
Result<std::vector<OperatorValue>> ReadOperatorFile(const std::string& path);

}  // namespace msprobe::operator_dumps
