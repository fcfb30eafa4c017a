// The HTML around what a page shows: its head with the style, its first line, its script, its end.
//
//   std::string html = HeadOfPage("msprobe: DIFFERS");
//   html += Header("DIFFERS"_t, "differs", SidesOf("a", "b"));
//   html += Element("p", "quiet", text);                   // is text, and never markup
//   const PageText page = PageOf(html + RoomForCalls(), {}, parts);
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/base/messages/message.h"
#include "engine/report_page/page_data.h"
#include "engine/report_page/page_part.h"

namespace msprobe::report_page {

// <tag attributes>text</tag>, in English, with the Chinese beside it for the script (language.js).
std::string Tagged(std::string_view tag, std::string_view attributes, const Message& text,
                   size_t most = 2000);
// <tag class="kind">text</tag>; nothing where there is no text.
std::string Element(std::string_view tag, std::string_view kind, const Message& text);
// The same of a name of the program that was recorded: no language translates it.
std::string NameElement(std::string_view tag, std::string_view kind, std::string_view name);
// A term of a list <dl>, and what is said of it; nothing where there is no text.
std::string Term(const Message& label, const Message& text);

std::string HeadOfPage(std::string_view title);
// `kind`: the class of style.css that colours the verdict. `sides`: HTML.
std::string Header(const Message& verdict, std::string_view kind, std::string_view sides);
std::string SidesOf(std::string_view target, std::string_view golden);

// What the script fills, in the order of the page. The line `state` is there until all calls are
// shown: it says what is wrong when the script does not run.
std::string RoomForCalls();

// The page of its beginning, of the elements of its trends, of the parts, which are used up, and of
// its end.
PageText PageOf(std::string begin, PageText trends, std::span<PagePart> parts);

}  // namespace msprobe::report_page
