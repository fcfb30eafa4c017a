// Changes the command line before it is parsed. The older tools have flags of one dash and
// several letters (-tp, -gp, -da), which a parser would read as several flags: they become their
// long forms.
//
//   // compare --target_path a --golden_path=b
//   NormalizeArguments({"compare", "-tp", "a", "-gp=b"});
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::cli {

struct FlagAlias {
  std::string_view alias, long_name;
};
std::span<const FlagAlias> FlagAliases();

// The spelling to show in help for a long flag: "-tp" for "--target_path"; "" when it has none.
std::string_view ShortSpelling(std::string_view long_name);

// Tokens after a lone "--" stay as they are.
std::vector<std::string> NormalizeArguments(const std::vector<std::string>& arguments);

// The error for an unknown flag, named as the user typed it. When an older tool had the flag, the
// error says what became of it; otherwise it names the most similar one of `known`, if there is
// one. `program`: how messages call the verb, "msprobe compare".
Status UnknownFlag(std::string_view flag, std::string_view program,
                   std::span<const std::string> known);

// The error for an unknown verb.
Status UnknownVerb(std::string_view word, std::span<const std::string_view> verbs);

}  // namespace msprobe::cli
