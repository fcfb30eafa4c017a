// The Chinese texts of translations/*.po, and how a text that was composed in English finds its own.
//
//   const Catalogue catalogue("msgid \"{} calls differ\"\nmsgstr \"{} 个调用不同\"\n");
//   catalogue.Translate("3 calls differ");   // "3 个调用不同"
//   catalogue.Translate("Torch.mm.0");       // nullopt: nothing in it has a translation
//
// An entry is a pattern: {} stands for any text. The text in its place is translated, too, if it has
// a translation. In the place {name}, words that stand alone are names (of calls, files, arguments)
// and stay: "{name} is equal" leaves "target". A place takes no sentence that follows it ("; "),
// unless a colon announces several. A text that no pattern matches is divided, outside of brackets
// and quotes, at line ends, "; ", ". ", ": ", ", " and before " (", and its parts are translated.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace msprobe {

// The .po files, as CMake builds them in, and that of the HTML page, whose script has texts of its own
// (engine/report_page/page/language.js).
extern const std::array<std::string_view, 8> kTranslations;
extern const std::string_view kPageTranslations;

// Where a place of a format begins at or after `from`, npos if there is none; the text before it is appended
// to `literal`, in which {{ and }} are braces.
size_t NextPlace(std::string_view format, size_t from, std::string* literal);

// Appends a part of a sentence: no blank stays between two Chinese characters, and no English comma
// after one.
void AppendClosed(std::string_view text, std::string* out);

class Catalogue {
 public:
  // The entries of a file of gettext's format, of which msgid and msgstr are used.
  static std::vector<std::pair<std::string, std::string>> Read(std::string_view po);
  // Of kTranslations; read at the first call.
  static const Catalogue& Chinese();

  explicit Catalogue(std::string_view po);

  // The translation of a sentence of the program (message.h); "": it has none. What a place says beside
  // its number does not count: "{:.2g} of {}" is "{} of {}".
  std::string_view Find(std::string_view sentence) const;

  // nullopt: no part of the text has a translation.
  std::optional<std::string> Translate(std::string_view text) const;

 private:
  enum class Place { kText, kNumber, kName };  // {}, {:d}, {name}
  // Where a text stands: how many texts are around it, and whether a single word is a name.
  struct Around {
    int depth = 0;
    bool names = false;
  };
  class Matcher;
  // "{} of {}": the texts around the places, one more than places.
  struct Pattern {
    std::vector<std::string> literals;
    std::vector<Place> places;
    std::string chinese;
    size_t size = 0;  // bytes of all literals
  };

  std::optional<std::string> Whole(std::string_view text, Around around) const;
  std::optional<std::string> Parts(std::string_view text, Around around) const;
  std::optional<std::string> At(std::string_view text, Around around) const;
  std::optional<std::string> Filled(const Pattern& pattern,
                                    const std::vector<std::string_view>& found, int depth) const;

  std::unordered_map<std::string, std::string> all_;        // by their sentence with plain places
  std::unordered_map<std::string, std::string> sentences_;  // entries without places
  std::vector<Pattern> patterns_;                           // those with most literal text first
};

}  // namespace msprobe
