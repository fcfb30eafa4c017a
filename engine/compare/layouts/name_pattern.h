// Patterns of names in --layout FILE.
//
//   std::vector<std::string> stars;
//   MatchesPattern("layers.*.fc", "layers.0.fc", &stars);    // true: "0"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace msprobe::compare::layouts {

// Whether a text is what the pattern says; `*` stands for any text, as short as fits. `stars`: what
// stood for each, if not null.
bool MatchesPattern(std::string_view pattern, std::string_view text,
                    std::vector<std::string>* stars = nullptr);

}  // namespace msprobe::compare::layouts
