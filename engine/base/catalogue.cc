#include "engine/base/catalogue.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace msprobe {
namespace {

constexpr size_t kLongestText = 1 << 14;  // a longer text is no sentence
constexpr int kDeepest = 12;              // sentences within sentences
constexpr int kMostSteps = 4000;          // of one pattern in one text
constexpr size_t kStrong = 30;            // bytes of text in a pattern that fits nothing by chance
constexpr size_t kWeak = 12;  // bytes of text in a pattern such as "{} of {}", which fits too much

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

// train.py:12 in f: x = y
bool IsCode(std::string_view text) {
  const size_t blank = text.find(' ');
  const std::string_view word = text.substr(0, blank);
  const size_t colon = word.find(':');
  return colon != word.npos && colon + 1 < word.size() &&
         std::isdigit(static_cast<unsigned char>(word[colon + 1])) != 0 && blank != text.npos &&
         text.substr(blank).starts_with(" in ");
}

bool IsNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("+-.,einfa ").find(c) != std::string_view::npos;
  });
}

// Whether each bracket that opens in the text also closes in it.
bool IsBalanced(std::string_view text) {
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' || c == '[' || c == '{';
    depth -= c == ')' || c == ']' || c == '}';
    if (depth < 0) return false;
  }
  return depth == 0;
}

// "cat", "cat, Linear (backward)": what stands in front of an "of" that is no sentence.
bool IsListOfWords(std::string_view text) {
  for (size_t i = text.find(' '); i != text.npos; i = text.find(' ', i + 1)) {
    const bool in_list = i > 0 && text[i - 1] == ',';
    if (!in_list && !text.substr(i).starts_with(" (")) return false;
  }
  return true;
}

// The bracket that the last character closes: of "a (b) for c (d (e))" that before "d". npos: none.
size_t OpeningOfLast(std::string_view text) {
  if (!text.ends_with(')')) return text.npos;
  int depth = 0;
  for (size_t i = text.size(); i-- > 0;) {
    depth += text[i] == ')';
    depth -= text[i] == '(';
    if (depth == 0) return i;
  }
  return text.npos;
}

constexpr std::string_view kNextSentence = "; ";

struct Separator {
  std::string_view english, chinese;
};
// In the order in which a text is divided.
constexpr std::array kSeparators = {Separator{"\n", "\n"},       Separator{"; ", "；"},
                                    Separator{". ", "。"},       Separator{": ", "："},
                                    Separator{", but ", "，但"}, Separator{", ", "，"},
                                    Separator{" and ", "和"}};

// The places of `separator` in `text` outside of brackets and quotes.
std::vector<size_t> PlacesOf(std::string_view separator, std::string_view text) {
  std::vector<size_t> places;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] == '(' || text[i] == '[' || text[i] == '{') ++depth;
    if (text[i] == ')' || text[i] == ']' || text[i] == '}') depth = std::max(depth - 1, 0);
    if (depth == 0 && !quoted && text.substr(i).starts_with(separator)) places.push_back(i);
  }
  return places;
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

namespace {

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

}  // namespace

// Finds what stands in the places of a pattern; the shortest texts that fit.
class Catalogue::Matcher {
 public:
  Matcher(std::string_view text, const Pattern& pattern)
      : text_(text),
        literals_(pattern.literals),
        places_(pattern.places),
        balanced_(IsBalanced(text)) {}

  bool Matches() {
    if (!text_.starts_with(literals_.front()) || !text_.ends_with(literals_.back())) return false;
    return From(0, literals_.front().size());
  }
  const std::vector<std::string_view>& found() const { return found_; }

 private:
  bool From(size_t place, size_t at) {
    if (place == places_.size()) return at == text_.size();
    const std::string& next = literals_[place + 1];
    const bool last = place + 1 == places_.size();
    if (last) {
      if (text_.size() < at + next.size()) return false;
      return Take(place, at, text_.size() - next.size());
    }
    for (size_t end = text_.find(next, at); end != text_.npos; end = text_.find(next, end + 1)) {
      if (++steps_ > kMostSteps) return false;
      if (Take(place, at, end)) return true;
    }
    return false;
  }
  bool Take(size_t place, size_t at, size_t end) {
    const std::string_view inside = text_.substr(at, end - at);
    if (places_[place] == Place::kNumber && !IsNumber(inside)) return false;
    // A place holds "50% (3 roundings)" or "50%", but not "50% (3".
    if (balanced_ && !IsBalanced(inside)) return false;
    // "the first is {}" does not take "a; 2 calls differ", "not the same: {}." does.
    if (!literals_[place].ends_with(": ") && !PlacesOf(kNextSentence, inside).empty()) return false;
    // "{} of {} is off by {}" does not begin at the name in "Torch.mm.0: norm of a is off by 1%".
    const bool begins = place == 0 && literals_.front().empty();
    if (begins && !PlacesOf(": ", inside).empty()) return false;
    found_.push_back(inside);
    if (From(place + 1, end + literals_[place + 1].size())) return true;
    found_.pop_back();
    return false;
  }

  std::string_view text_;
  const std::vector<std::string>& literals_;
  const std::vector<Place>& places_;
  const bool balanced_;
  std::vector<std::string_view> found_;
  int steps_ = 0;
};

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
  for (auto& [english, chinese] : Read(po)) {
    all_.emplace(WithPlainPlaces(english), chinese);
    Pattern pattern{.chinese = chinese};
    size_t at = 0;
    while (true) {
      std::string& literal = pattern.literals.emplace_back();
      const size_t place = NextPlace(english, at, &literal);
      pattern.size += literal.size();
      if (place == english.npos) break;
      at = std::min(english.find('}', place), english.size() - 1) + 1;
      const std::string_view spec = std::string_view(english).substr(place, at - place);
      const bool number = spec.find('.') != spec.npos || spec.ends_with("d}");
      pattern.places.push_back(spec == "{name}"                        ? Place::kName
                               : number && spec.find(':') != spec.npos ? Place::kNumber
                                                                       : Place::kText);
    }
    if (pattern.places.empty()) {
      sentences_.emplace(pattern.literals[0], std::move(chinese));
    } else {
      patterns_.push_back(std::move(pattern));
    }
  }
  std::stable_sort(patterns_.begin(), patterns_.end(),
                   [](const Pattern& a, const Pattern& b) { return a.size > b.size; });
}

std::string_view Catalogue::Find(std::string_view sentence) const {
  const auto found = all_.find(WithPlainPlaces(sentence));
  return found == all_.end() ? std::string_view() : found->second;
}

namespace {

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

std::optional<std::string> Catalogue::Filled(const Pattern& pattern,
                                             const std::vector<std::string_view>& found,
                                             int depth) const {
  std::string out;
  size_t at = 0, next = 0;
  while (true) {
    std::string literal;
    const size_t place = NextPlace(pattern.chinese, at, &literal);
    AppendClosed(literal, &out);
    if (place == std::string::npos) return out;
    const size_t end = pattern.chinese.find('}', place);
    if (end == std::string::npos) return std::nullopt;
    size_t index = next++;
    (void)std::from_chars(pattern.chinese.data() + place + 1, pattern.chinese.data() + end, index);
    if (index >= found.size()) return std::nullopt;
    const std::string_view text = found[index];
    const bool names = pattern.places[index] == Place::kName;
    AppendClosed(At(text, {depth + 1, names}).value_or(std::string(text)), &out);
    at = end + 1;
  }
}

std::optional<std::string> Catalogue::Whole(std::string_view text, Around around) const {
  if (around.names && text.find(' ') == text.npos) return std::nullopt;
  if (const auto found = sentences_.find(std::string(text)); found != sentences_.end())
    return found->second;
  const bool divided = text.find("; ") != text.npos || text.find('\n') != text.npos;
  for (const Pattern& pattern : patterns_) {
    if (pattern.size > text.size()) continue;
    const auto has = [&](std::string_view mark) {
      return std::any_of(pattern.literals.begin(), pattern.literals.end(),
                         [&](const std::string& l) { return l.find(mark) != l.npos; });
    };
    // Sentences that stand side by side are not the text of one place.
    if (divided && pattern.size < kStrong && !has("; ") && !has("\n") &&
        (!PlacesOf("; ", text).empty() || text.find('\n') != text.npos))
      continue;
    Matcher matcher(text, pattern);
    if (!matcher.Matches()) continue;
    // "{} of {}" is meant for names and numbers, not for whatever a sentence has before its "of".
    if (pattern.size > kWeak || !pattern.literals.front().empty() ||
        IsListOfWords(matcher.found().front()))
      return Filled(pattern, matcher.found(), around.depth);
  }
  return std::nullopt;
}

std::optional<std::string> Catalogue::Parts(std::string_view text, Around around) const {
  const Around inner{around.depth + 1, around.names};
  for (const Separator& separator : kSeparators) {
    std::vector<size_t> places = PlacesOf(separator.english, text);
    if (places.empty()) continue;
    places.push_back(text.size());
    std::string out;
    bool any = false, before = false;
    size_t at = 0;
    for (const size_t place : places) {
      const std::string_view part = text.substr(at, place - at);
      const std::optional<std::string> chinese = At(part, inner);
      const bool now = chinese.has_value();
      if (at > 0) out += now || before ? separator.chinese : separator.english;
      out += chinese.value_or(std::string(part));
      any = any || now;
      before = now;
      at = std::min(place + separator.english.size(), text.size());
    }
    if (any) return out;
  }
  // "text (aside)"
  const size_t open = OpeningOfLast(text);
  if (open == 0 || open == text.npos || text[open - 1] != ' ') return std::nullopt;
  const std::string_view front = text.substr(0, open - 1),
                         aside = text.substr(open + 1, text.size() - open - 2);
  const std::optional<std::string> first = At(front, inner), second = At(aside, inner);
  if (!first && !second) return std::nullopt;
  return first.value_or(std::string(front)) + "（" + second.value_or(std::string(aside)) + "）";
}

std::optional<std::string> Catalogue::At(std::string_view text, Around around) const {
  if (around.depth > kDeepest || text.empty() || text.size() > kLongestText || IsCode(text))
    return std::nullopt;
  // Entries are looked up without the blanks and separators around them.
  const size_t begin = text.find_first_not_of(" \n;,:");
  if (begin == text.npos) return std::nullopt;
  size_t end = text.find_last_not_of(" \n;,:") + 1;
  std::string_view inside = text.substr(begin, end - begin);
  std::optional<std::string> chinese = Whole(inside, around);
  std::string stop;
  if (!chinese && inside.ends_with('.') && !inside.ends_with("..")) {
    inside.remove_suffix(1);
    stop = "。";
    chinese = Whole(inside, around);
  }
  if (!chinese) chinese = Parts(inside, around);
  if (!chinese) return std::nullopt;
  std::string front(text.substr(0, begin)), back(text.substr(end));
  for (const Separator& s : kSeparators) {
    if (front == s.english) front = s.chinese;
    if (back == s.english) back = s.chinese;
  }
  return front + *chinese + stop + back;
}

std::optional<std::string> Catalogue::Translate(std::string_view text) const {
  return At(text, {});
}

}  // namespace msprobe
