// The language of texts that people read: the report on a terminal, help, errors, log lines.
//
// All texts are composed in English, and stay English in everything that programs parse (JSON, CSV,
// file names). Where a text is shown to a person, and only there, it goes through Translated:
//
//   SetLanguage(Language::kChinese);
//   Translated("3 calls could not be judged");   // "3 个调用无法判定"
//   Translated("Torch.mm.0.forward");            // names, code and unknown text as they are
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace msprobe {

enum class Language { kEnglish, kChinese };

// "en" and "zh", also with a country or a codeset, as "zh_CN.UTF-8". nullopt: another language.
std::optional<Language> LanguageNamed(std::string_view name);

// MSPROBE_LANG, else the first of LC_ALL, LC_MESSAGES and LANG that is set. A Chinese locale counts
// when its codeset is UTF-8 or not stated; all others are English.
Language LanguageOfEnvironment();

// Of this process; LanguageOfEnvironment() until it is set. Thread-safe.
void SetLanguage(Language language);
Language CurrentLanguage();

// The English text in the current language; in English it costs one comparison. A sentence that was
// composed of others is translated part by part; a part that the catalogue does not have stays
// English.
std::string Translated(std::string text);

// The English text with the name in its place {}: the name stays as it is, also where it is a word
// that has a translation.
//
//   TranslatedAround("in {}", "norm");   // "位于 norm"
std::string TranslatedAround(std::string_view english, std::string_view name);

}  // namespace msprobe
