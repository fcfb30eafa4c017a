// Replaces parts of names.
//
//   std::string name = "Module.TEfc.Linear";
//   Replace({{".TE", "."}}, &name);              // "Module.fc.Linear"
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace msprobe::exports {

// All places of each first text, which are not empty, become its second text; one pair after the
// other.
inline void Replace(const std::vector<std::pair<std::string, std::string>>& pairs,
                    std::string* text) {
  for (const auto& [from, to] : pairs) {
    std::string out;
    size_t at = 0;
    for (size_t found; (found = text->find(from, at)) != std::string::npos;
         at = found + from.size())
      out.append(*text, at, found - at).append(to);
    *text = out.append(*text, at);
  }
}

}  // namespace msprobe::exports
