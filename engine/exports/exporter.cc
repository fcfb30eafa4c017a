#include "engine/exports/exporter.h"

#include <fmt/format.h>

#include "engine/exports/model_explorer.h"
#include "engine/exports/perfetto.h"

namespace msprobe::exports {

std::unique_ptr<Exporter> MakeExporter(ExportFormat format) {
  if (format == ExportFormat::kPerfetto) return std::make_unique<PerfettoExporter>();
  return std::make_unique<ModelExplorerExporter>();
}

std::string PlaceText(const PairPlace& place) {
  std::string text = place.step >= 0 ? fmt::format("step {}", place.step) : "";
  if (place.rank >= 0) text += fmt::format("{}rank {}", text.empty() ? "" : ", ", place.rank);
  return text;
}

}  // namespace msprobe::exports
