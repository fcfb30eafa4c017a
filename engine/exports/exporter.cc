#include "engine/exports/exporter.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/exports/model_explorer.h"
#include "engine/exports/perfetto.h"

namespace msprobe::exports {

std::unique_ptr<Exporter> MakeExporter(ExportFormat format) {
  if (format == ExportFormat::kPerfetto) return std::make_unique<PerfettoExporter>();
  return std::make_unique<ModelExplorerExporter>();
}

void ExportPart::Append(const std::array<std::string, kStates>& by_state) {
  if (std::count(by_state.begin(), by_state.end(), by_state[0]) == kStates)
    return Append(by_state[0]);
  Choice& choice = choices_.emplace_back(Choice{.at = text_.size()});
  for (size_t s = 0; s < kStates; ++s) {
    choice.sizes[s] = by_state[s].size();
    text_ += by_state[s];
  }
}

std::string ExportPart::In(compare::StepState state) && {
  std::string text;
  size_t at = 0;
  for (const Choice& choice : choices_) {
    text.append(text_, at, choice.at - at);
    at = choice.at;
    for (size_t s = 0; s < kStates; at += choice.sizes[s++]) {
      if (s == static_cast<size_t>(state)) text.append(text_, at, choice.sizes[s]);
    }
  }
  if (text.empty() && at == 0) return std::move(text_);
  return text.append(text_, at);
}

std::string PlaceText(const PairPlace& place) {
  std::string text = place.step >= 0 ? fmt::format("step {}", place.step) : "";
  if (place.rank >= 0) text += fmt::format("{}rank {}", text.empty() ? "" : ", ", place.rank);
  return text;
}

}  // namespace msprobe::exports
