// The data of a page as elements of HTML: numbers and texts, gzip, in base 64. Nothing of a dump
// can be markup in there: base 64 has no '<'.
//
//   PageText html;
//   AppendColumn<uint32_t>("p0-name", "u32", numbers, &html);  // <script type="text/plain" id=...
//   AppendText("p0-stacks", json, &html);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"

namespace msprobe::report_page {

// The text of a page in pieces, one for each element: a page may have a hundred megabytes, which
// would be copied whenever a single string of that size grows.
using PageText = std::vector<std::string>;

// Base 64 of RFC 4648 with its padding.
std::string Base64(std::string_view bytes);
// gzip, made the same way on every machine.
std::string Gzip(std::string_view bytes);
// The bytes of the numbers by their place in a number: all first bytes, all second bytes, ... These
// compress better. `width`: bytes of a number.
std::string ByteColumns(std::string_view numbers, size_t width);

// An element of a page that shows nothing: its id, how its content is packed, and the content.
// `packed`: what Gzip returned. `size`: bytes before Gzip; `type`: "u8", "u32", "f32", "text".
void AppendElement(std::string_view id, std::string_view type, size_t size, std::string_view packed,
                   PageText* html);

template <typename Number>
void AppendColumn(std::string_view id, std::string_view type, std::span<const Number> numbers,
                  PageText* html) {
  const std::string_view bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
  AppendElement(id, type, bytes.size(), Gzip(ByteColumns(bytes, sizeof(Number))), html);
}
void AppendText(std::string_view id, std::string_view text, PageText* html);

// A text in JSON: "a name", or ["a sentence", "its Chinese"].
void AppendMessage(const Message& text, std::string* json);

// Text for HTML, in an element or in an attribute in double quotes: no markup, valid UTF-8, no
// control characters, and no marks that change the direction of the text after them. Longer than
// `most` bytes: its beginning and its end.
std::string HtmlText(std::string_view text, size_t most = 2000);

}  // namespace msprobe::report_page
