// The Chinese of the sentences of the program (message.h): translations/*.po.
//
//   const Catalogue catalogue("msgid \"{} calls differ\"\nmsgstr \"{} 个调用不同\"\n");
//   catalogue.Find("{:d} calls differ");   // "{} 个调用不同"
//   catalogue.Find("Torch.mm.0");          // "": no sentence of the program
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace msprobe {

// The .po files, as CMake builds them in, and that of the HTML page, whose script has sentences of
// its own (engine/report_page/page/language.js).
extern const std::array<std::string_view, 8> kTranslations;
extern const std::string_view kPageTranslations;

// Where a place of a format begins at or after `from`, npos if there is none; the text before it is
// appended to `literal`, in which {{ and }} are braces.
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

  // "": it has no translation. What a place says beside its number does not count: "{:.2g} of {}"
  // is "{} of {}".
  std::string_view Find(std::string_view sentence) const;
  // The sentence itself, with {} for each place, as long as the catalogue lives; "": it has no
  // translation.
  std::string_view KeyOf(std::string_view sentence) const;

 private:
  std::unordered_map<std::string, std::string> chinese_;  // by their sentence with plain places
};

}  // namespace msprobe
