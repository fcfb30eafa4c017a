#include "engine/base/messages/catalogue.h"

#include <algorithm>

namespace msprobe {
namespace {

// A string of a .po file, without its quotes.
std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      out += text[i] == 'n' ? '\n' : text[i] == 't' ? '\t' : text[i];
    } else {
      out += text[i];
    }
  }
  return out;
}

// The sentence with {} for each of its places.
std::string WithPlainPlaces(std::string_view sentence) {
  std::string plain;
  for (size_t at = 0;;) {
    const size_t place = NextPlace(sentence, at, &plain);
    if (place == sentence.npos) return plain;
    plain += "{}";
    at = std::min(sentence.find('}', place), sentence.size() - 1) + 1;
  }
}

// The size of the Chinese character or mark at `at`; 0: another character stands there.
size_t ChineseAt(std::string_view text, size_t at) {
  if (at + 3 > text.size()) return 0;
  const auto lead = static_cast<unsigned char>(text[at]),
             next = static_cast<unsigned char>(text[at + 1]);
  return (lead >= 0xe3 && lead <= 0xe9) || (lead == 0xef && next >= 0xbc) ? 3 : 0;
}

bool EndsInChinese(std::string_view text) {
  return text.size() >= 3 && ChineseAt(text, text.size() - 3) == 3;
}

}  // namespace

size_t NextPlace(std::string_view format, size_t from, std::string* literal) {
  for (size_t i = from; i < format.size(); ++i) {
    const bool twice = i + 1 < format.size() && format[i + 1] == format[i];
    if ((format[i] == '{' || format[i] == '}') && twice) {
      *literal += format[i++];
    } else if (format[i] == '{') {
      return i;
    } else {
      *literal += format[i];
    }
  }
  return std::string_view::npos;
}

void AppendClosed(std::string_view text, std::string* out) {
  if (out->ends_with(' ') && ChineseAt(text, 0) > 0 &&
      EndsInChinese(std::string_view(*out).substr(0, out->size() - 1)))
    out->pop_back();
  if (text.starts_with(' ') && ChineseAt(text, 1) > 0 && EndsInChinese(*out)) text.remove_prefix(1);
  if (text.starts_with(", ") && EndsInChinese(*out)) {
    *out += "，";
    text.remove_prefix(2);
  }
  *out += text;
}

std::vector<std::pair<std::string, std::string>> Catalogue::Read(std::string_view po) {
  std::vector<std::pair<std::string, std::string>> entries;
  std::string* into = nullptr;
  while (!po.empty()) {
    const size_t end = po.find('\n');
    std::string_view line = po.substr(0, end);
    po.remove_prefix(end == po.npos ? po.size() : end + 1);
    if (line.starts_with("msgid ")) {
      into = &entries.emplace_back().first;
    } else if (line.starts_with("msgstr ") && !entries.empty()) {
      into = &entries.back().second;
    } else if (!line.starts_with('"')) {
      continue;
    }
    const size_t open = line.find('"'), close = line.rfind('"');
    if (into != nullptr && open < close)
      *into += Unescaped(line.substr(open + 1, close - open - 1));
  }
  // The header of the format has an empty msgid.
  std::erase_if(entries, [](const auto& entry) { return entry.first.empty(); });
  return entries;
}

const Catalogue& Catalogue::Chinese() {
  static const Catalogue catalogue = [] {
    std::string all;
    for (const std::string_view po : kTranslations) (all += po) += '\n';
    return Catalogue(all);
  }();
  return catalogue;
}

Catalogue::Catalogue(std::string_view po) {
  for (auto& [english, chinese] : Read(po)) chinese_.emplace(WithPlainPlaces(english), chinese);
}

std::string_view Catalogue::KeyOf(std::string_view sentence) const {
  const auto found = chinese_.find(WithPlainPlaces(sentence));
  return found == chinese_.end() ? std::string_view() : found->first;
}

std::string_view Catalogue::Find(std::string_view sentence) const {
  const auto found = chinese_.find(WithPlainPlaces(sentence));
  return found == chinese_.end() ? std::string_view() : found->second;
}

}  // namespace msprobe
