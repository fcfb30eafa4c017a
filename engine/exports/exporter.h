// A comparison as the file of another tool's viewer.
//
//   const std::unique_ptr<Exporter> exporter = MakeExporter(ExportFormat::kPerfetto);
//   parts.push_back(exporter->Part(comparison, {.index = 0, .step = 3, .rank = 0}));
//   MSPROBE_RETURN_IF_ERROR(WriteFileAtomically("run.perfetto-trace", exporter->File(parts)));
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/compare/model/comparison.h"

namespace msprobe::exports {

enum class ExportFormat : uint8_t { kPerfetto, kModelExplorer };

struct PairPlace {
  size_t index = 0;              // of the pair in its file
  int32_t step = -1, rank = -1;  // -1: without a number
};

class Exporter {
 public:
  virtual ~Exporter() = default;
  // What the file holds of one pair of dumps. It stays when the comparison is freed. Thread-safe.
  virtual std::string Part(const compare::Comparison& comparison, const PairPlace& place) const = 0;
  // The whole file. A pair that could not be compared has an empty part. The parts are used up.
  virtual std::string File(std::span<std::string> parts) const = 0;
};

std::unique_ptr<Exporter> MakeExporter(ExportFormat format);

// "step 3, rank 0"; "" without numbers.
std::string PlaceText(const PairPlace& place);

}  // namespace msprobe::exports
