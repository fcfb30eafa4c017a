// The flag --lang, which every verb has: the language of help, errors and reports for people.
//
//   AddLanguage(flags);                                            // for help and completion
//   std::vector<std::string> words{"--lang", "zh", "a", "b"};
//   MSPROBE_RETURN_IF_ERROR(TakeLanguage(words.size(), &words));   // words are {"a", "b"} now
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/command_line/flags.h"
#include "engine/base/status.h"

namespace msprobe::cli {

void AddLanguage(Flags& flags);

// Removes --lang and its value from the first `count` words, and sets the language of this process
// and, by MSPROBE_LANG, of the programs that it starts. Nothing changes without the flag.
Status TakeLanguage(size_t count, std::vector<std::string>* words);

// An error when MSPROBE_LANG names a language that there is not.
Status CheckLanguageVariable();

}  // namespace msprobe::cli
