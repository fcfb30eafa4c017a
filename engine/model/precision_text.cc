#include "engine/model/precision_text.h"

namespace msprobe {

std::string_view DefaultDTypeIn(std::string_view precision) {
  return precision.substr(0, precision.find(','));
}

std::vector<Autocast> AutocastsIn(std::string_view precision) {
  constexpr std::string_view kBegin = ", autocast ";
  std::vector<Autocast> found;
  for (size_t at = precision.find(kBegin); at != std::string_view::npos;) {
    precision.remove_prefix(at + kBegin.size());
    const std::string_view part = precision.substr(0, precision.find(','));
    const size_t blank = part.find(' ');
    if (blank != std::string_view::npos)
      found.push_back({part.substr(0, blank), part.substr(blank + 1)});
    at = precision.find(kBegin);
  }
  return found;
}

}  // namespace msprobe
