// JSON values as the text that tables show.
//
//   std::string text;
//   AppendPythonText(&json, &text);   // [0, None, {'a': 2}]
#pragma once

#include <string>

#include "engine/formats/text/json.h"

namespace msprobe::dump {

// The next value as Python prints it. After an error (json->failed()) the text is not complete.
void AppendPythonText(formats::JsonCursor* json, std::string* out);

// A list of numbers, "[2, 3]", without the line breaks of indented files; or a text as it is. After
// an error the text is empty.
void AppendListText(formats::JsonCursor* json, std::string* out);

}  // namespace msprobe::dump
