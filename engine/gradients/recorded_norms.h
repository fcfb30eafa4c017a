// The gradients of one run of task grad_probe, without another run beside it: their norms over the
// steps, and where they stop being numbers.
//
//   MSPROBE_ASSIGN_OR_RETURN(const Recording recording, FindRecording("runs/a"));
//   const NormFindings found = ReadNorms(recording, [&](const RecordedNorm& norm) { Use(norm); });
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::gradients {

struct Recording {
  std::string path;
  std::vector<int64_t> ranks;  // ascending; {-1}: the path is the folder of one rank
  std::vector<int64_t> steps;  // that any rank has, ascending
};

// Whether the folder, or a folder rank<R> in it, has tables of gradients.
bool IsRecording(const std::string& path);
Result<Recording> FindRecording(const std::string& path);

struct RecordedNorm {
  size_t rank = 0, step = 0;  // indexes in the recording
  std::string_view parameter;
  double norm = 0;
  bool is_finite = true;  // neither the norm nor an element is NaN or infinite, as far as is known
};

// A gradient of the recording.
struct NamedNorm {
  int64_t rank = -1, step = 0;
  std::string parameter;
  double norm = 0;
};

struct NormFindings {
  size_t parameters = 0;
  // The last parameter of the model in the first step that has one: a backward pass runs from the
  // last to the first. Of two ranks the lower one.
  std::optional<NamedNorm> first_not_finite;
  size_t not_finite_beside = 0;  // other gradients of that rank in that step
  std::optional<NamedNorm> largest;
  std::vector<Message> errors;  // tables that could not be read; the others were
};

// Reads one table after another; `sink` gets each row.
NormFindings ReadNorms(const Recording& recording,
                       const std::function<void(const RecordedNorm&)>& sink);

}  // namespace msprobe::gradients
