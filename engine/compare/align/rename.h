// --rename 's/from/to/': names rewritten by a regular expression.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace msprobe::compare {

// "s/from/to/"; any other character may stand in the place of '/'. Flags may follow: g replaces
// every occurrence and not only the first, i ignores case. `from` is an ECMAScript expression
// without back-references (so that matching takes polynomial time). In `to`, \1 to \9 are the
// groups of `from`, and & is the whole match.
class Rename {
 public:
  // kInvalidArgument: what is wrong, and at which character (from 1).
  static Result<Rename> Parse(std::string_view expression);
  // The name itself when `from` does not match, and when the name is longer than 1000 characters.
  std::string Apply(std::string_view name) const;
  const std::string& expression() const { return expression_; }

 private:
  struct Pattern;  // a std::regex, whose header is large

  std::string expression_;
  std::shared_ptr<const Pattern> from_;
  std::string to_;  // as std::regex_replace spells it: $1 for \1
  bool everywhere_ = false;
};

}  // namespace msprobe::compare
