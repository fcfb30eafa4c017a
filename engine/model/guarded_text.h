// Text of a dump.json or stack.json that msprobe 26's own `compare` accepts. It refuses a whole
// dump for one text that a spreadsheet could take for a formula: a text that begins with one of + -
// = % @ or their full-width forms, or that has one of these after a ';'. The writer puts a
// backslash before the sign, and the reader takes it away.
//
//   std::string room;
//   GuardText("-2j", &room);      // "\-2j"
//   UnguardText("\\-2j", &room);  // "-2j"
#pragma once

#include <string>
#include <string_view>

namespace msprobe {

// At the two places a run of backslashes before a sign gets one more: "\-" becomes "\\-", so that
// every text comes back as it was. Text that needs none is returned as it is; else the result
// lives in *room.
std::string_view GuardText(std::string_view text, std::string* room);

// The text before GuardText.
std::string_view UnguardText(std::string_view text, std::string* room);

}  // namespace msprobe
