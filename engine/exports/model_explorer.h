// A comparison as a graph of Google's Model Explorer: a node for each call of an API, in the
// namespace of the modules around it, colored by its class; edges from the call that made an input,
// as far as equal numbers tell (report_page/data_links.h).
//
//   ModelExplorerExporter exporter;
//   ExportPart part = exporter.Part(comparison, {});
//   std::vector<std::string> parts = {std::move(part).In(compare::StepState::kOwn)};
//   const std::string json = exporter.File(parts);
#pragma once

#include <span>
#include <string>

#include "engine/exports/exporter.h"

namespace msprobe::exports {

class ModelExplorerExporter : public Exporter {
 public:
  ExportPart Part(const compare::Comparison& comparison, const PairPlace& place) const override;
  std::string File(std::span<std::string> parts) const override;
};

}  // namespace msprobe::exports
