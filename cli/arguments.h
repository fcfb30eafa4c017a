// The command line before it is parsed: the earlier tools' one-dash flags of several letters (-tp,
// -gp, -da), which a parser would read as clusters, become their long forms.
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

// For a flag no verb of ours knows: why, when an earlier tool had it; else the nearest of `known`,
// if any is near. The error names the flag as the user typed it.
Status UnknownFlag(std::string_view flag, std::string_view verb,
                   std::span<const std::string> known);

// For a word in the verb's place that is none.
Status UnknownVerb(std::string_view word, std::span<const std::string_view> verbs);

}  // namespace msprobe::cli
