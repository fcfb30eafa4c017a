// Reads values of a configuration: words out of a list, numbers, strings. The error for a wrong
// value has its place, what is allowed, and the nearest spelling.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/formats/text/json.h"

namespace msprobe::dump {

using Names = std::span<const std::string_view>;

bool Contains(Names names, std::string_view word);
std::string Quoted(std::string_view text);  // "text"
Message OneOf(Names names);                 // "a", "b" or "c"

// Where a value stands, for error messages: a line of the file, or a keyword argument.
struct ConfigPlace {
  std::string_view path;  // empty: a keyword argument
  uint64_t line = 0;
  std::string_view key;

  Status Error() const;
  std::string Prefix() const;  // of a warning: "config.json:3: "; "" for a keyword argument
};

Status WrongType(const ConfigPlace& place, Message expected, const formats::JsonValue& found);

// A word of older generations that this version does not have, and what to do instead (empty: no
// advice).
struct OtherWord {
  std::string_view word;
  Message instead;
};
bool Contains(std::span<const OtherWord> words, std::string_view word);

// Checks that `word` is in `allowed`. For the words in `other`, the error says what to do instead.
Status Choose(const ConfigPlace& place, std::string_view word, Names allowed,
              std::span<const OtherWord> other = {});
// The same for a value, which must be a string. "" is accepted: the default.
Status ReadWord(const ConfigPlace& place, const formats::JsonValue& value, Names allowed,
                std::string* out, std::span<const OtherWord> other = {});

Status ReadBool(const ConfigPlace& place, const formats::JsonValue& value, bool* out);
Status ReadInteger(const ConfigPlace& place, const formats::JsonValue& value, int64_t smallest,
                   int64_t largest, int64_t* out);

// Numbers from 0 to 1000000, sorted and without repetition; an element is 7, "7" or "3-6".
Status ReadNumbers(const ConfigPlace& place, const formats::JsonValue& list,
                   std::vector<int64_t>* out);
Status ReadNumbers(const ConfigPlace& place, std::span<const std::string> list,
                   std::vector<int64_t>* out);

// Appends the numbers of "7" or "3-6", from 0 to 1000000. False: the text has neither form.
bool AppendNumberRange(std::string_view text, std::vector<int64_t>* out);

// Strings, none of them empty.
Status ReadStrings(const ConfigPlace& place, const formats::JsonValue& list,
                   std::vector<std::string>* out);

}  // namespace msprobe::dump
