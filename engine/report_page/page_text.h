// The script and the style of a page, from the files in page/, and their SHA-256 in hex digits.
//
//   html.push_back(kPageScript);
#pragma once

namespace msprobe::report_page {

extern const char* const kPageScript;
extern const char* const kPageStyle;
extern const char* const kPageScriptSha256;
extern const char* const kPageStyleSha256;

}  // namespace msprobe::report_page
