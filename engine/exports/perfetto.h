// A comparison as a trace of the Perfetto UI. Dumps have no times: each call takes one microsecond,
// in order of execution. Tracks of each pair of dumps: modules (nested), calls, verdict (runs of
// calls of one class), and the error of each call in roundings, as a counter.
//
//   PerfettoExporter exporter;
//   ExportPart part = exporter.Part(comparison, {});
//   std::vector<std::string> parts = {std::move(part).In(compare::StepState::kOwn)};
//   const std::string trace = exporter.File(parts);
#pragma once

#include <span>
#include <string>

#include "engine/exports/exporter.h"

namespace msprobe::exports {

class PerfettoExporter : public Exporter {
 public:
  ExportPart Part(const compare::Comparison& comparison, const PairPlace& place) const override;
  std::string File(std::span<std::string> parts) const override;
};

}  // namespace msprobe::exports
