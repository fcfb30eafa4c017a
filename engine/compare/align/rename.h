// --rename 's/from/to/': names rewritten by a regular expression.
#pragma once

#include <regex>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace msprobe::compare {

// "s/from/to/", with any character in the place of '/', and g (every place, not the first) or i
// (case does not matter) behind it. `from` is an ECMAScript expression without back-references
// (matching takes polynomial time); in `to`, \1 to \9 are its groups and & is all that was found.
class Rename {
 public:
  // kInvalidArgument: what is wrong, and at which character (from 1).
  static Result<Rename> Parse(std::string_view expression);
  // The name itself where nothing is found, and where it is longer than 1000 characters.
  std::string Apply(std::string_view name) const;
  const std::string& expression() const { return expression_; }

 private:
  std::string expression_;
  std::regex from_;
  std::string to_;  // as std::regex_replace has it
  bool everywhere_ = false;
};

}  // namespace msprobe::compare
