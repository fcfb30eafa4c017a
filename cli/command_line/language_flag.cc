#include "cli/command_line/language_flag.h"

#include <cstdlib>

#include "engine/base/messages/language.h"

namespace msprobe::cli {
namespace {

constexpr std::string_view kFlag = "--lang";

Status NoSuchLanguage(std::string_view from, std::string_view name) {
  return InvalidArgument(from)
      .Expected("en or zh"_t)
      .Found(name.empty() ? "nothing"_t : Message(Excerpt(name)))
      .Hint(std::string("--lang zh"));
}

}  // namespace

void AddLanguage(Flags& flags) {
  static std::string not_read;  // TakeLanguage reads the value
  flags.Group({});
  flags
      .Text(
          kFlag, &not_read,
          "language of help, errors and reports; default: MSPROBE_LANG, else that of the locale"_t)
      .OneOf({"en", "zh"});
}

Status TakeLanguage(size_t count, std::vector<std::string>* words) {
  for (size_t i = 0; i < std::min(count, words->size());) {
    const std::string& word = (*words)[i];
    const bool joined = word.starts_with("--lang=");
    if (word != kFlag && !joined) {
      ++i;
      continue;
    }
    const bool has_value = joined || i + 1 < count;
    const std::string value = joined      ? word.substr(kFlag.size() + 1)
                              : has_value ? (*words)[i + 1]
                                          : std::string();
    const std::optional<Language> language = LanguageNamed(value);
    if (!language) return NoSuchLanguage(kFlag, value);
    SetLanguage(*language);
    (void)::setenv("MSPROBE_LANG", *language == Language::kChinese ? "zh" : "en", 1);
    const auto begin = words->begin() + static_cast<std::ptrdiff_t>(i);
    const size_t taken = joined ? 1 : 2;
    words->erase(begin, begin + static_cast<std::ptrdiff_t>(taken));
    count -= taken;
  }
  return Status::Ok();
}

Status CheckLanguageVariable() {
  const char* name = std::getenv("MSPROBE_LANG");
  if (name == nullptr || *name == '\0' || LanguageNamed(name)) return Status::Ok();
  return NoSuchLanguage("MSPROBE_LANG", name);
}

}  // namespace msprobe::cli
