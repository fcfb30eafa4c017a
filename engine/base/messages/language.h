// The language of texts that people read: the report on a terminal, help, errors, log lines.
//
// Texts are messages (message.h), and English in everything that programs parse (JSON, CSV, file
// names). Where a text is shown to a person, and only there, it is in the language of this process:
//
//   SetLanguage(Language::kChinese);
//   "{} calls differ"_t(3).Shown();   // "3 个调用不同"
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

}  // namespace msprobe
