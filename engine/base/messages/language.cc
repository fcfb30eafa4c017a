#include "engine/base/messages/language.h"

#include <atomic>
#include <cstdlib>

namespace msprobe {
namespace {

constexpr int kNotSet = -1;
std::atomic<int> current{kNotSet};

std::string_view Variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string_view() : text;
}

std::string InLowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// GBK and its kin would need other bytes than ours.
bool IsUtf8OrNotStated(std::string_view locale) {
  const size_t dot = locale.find('.');
  if (dot == locale.npos) return true;
  const std::string codeset = InLowerCase(locale.substr(dot + 1));
  return codeset.starts_with("utf-8") || codeset.starts_with("utf8");
}

}  // namespace

std::optional<Language> LanguageNamed(std::string_view name) {
  const std::string lower = InLowerCase(name.substr(0, name.find_first_of("_-.@")));
  if (lower == "zh") return Language::kChinese;
  if (lower == "en") return Language::kEnglish;
  return std::nullopt;
}

Language LanguageOfEnvironment() {
  if (const std::string_view ours = Variable("MSPROBE_LANG"); !ours.empty())
    return LanguageNamed(ours).value_or(Language::kEnglish);
  for (const char* name : {"LC_ALL", "LC_MESSAGES", "LANG"}) {
    const std::string_view locale = Variable(name);
    if (locale.empty()) continue;
    return LanguageNamed(locale) == Language::kChinese && IsUtf8OrNotStated(locale)
               ? Language::kChinese
               : Language::kEnglish;
  }
  return Language::kEnglish;
}

void SetLanguage(Language language) { current = static_cast<int>(language); }

Language CurrentLanguage() {
  const int set = current.load(std::memory_order_relaxed);
  if (set != kNotSet) return static_cast<Language>(set);
  // Read once: a program may change its environment while other threads run.
  static const Language of_environment = LanguageOfEnvironment();
  return of_environment;
}

}  // namespace msprobe
