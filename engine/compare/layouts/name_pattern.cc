#include "engine/compare/layouts/name_pattern.h"

namespace msprobe::compare::layouts {

bool MatchesPattern(std::string_view pattern, std::string_view text,
                    std::vector<std::string>* stars) {
  // The last star takes more where what follows it does not fit.
  struct Star {
    size_t in_pattern = 0, begin = 0, end = 0;
  };
  std::vector<Star> found;
  size_t p = 0, t = 0;
  while (t < text.size() || p < pattern.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      found.push_back({p++, t, t});
    } else if (p < pattern.size() && t < text.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (!found.empty() && found.back().end < text.size()) {
      t = ++found.back().end;
      p = found.back().in_pattern + 1;
    } else {
      return false;
    }
  }
  for (size_t i = 0; stars != nullptr && i < found.size(); ++i)
    stars->emplace_back(text.substr(found[i].begin, found[i].end - found[i].begin));
  return true;
}

}  // namespace msprobe::compare::layouts
