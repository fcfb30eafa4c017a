#include "engine/base/messages/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <iterator>
#include <mutex>
#include <ostream>
#include <set>

#include "engine/base/messages/catalogue.h"
#include "engine/base/messages/language.h"

namespace msprobe {
namespace {

// Of what stands between the parts of a list.
constexpr std::string_view kListMarks[][2] = {{"; ", "；"}, {". ", "。"},    {": ", "："},
                                              {", ", "，"}, {" and ", "和"}, {" ", " "},
                                              {"\n", "\n"}, {"", ""}};

std::string_view ChineseSeparator(std::string_view english) {
  for (const auto& separator : kListMarks) {
    if (separator[0] == english) return separator[1];
  }
  return english;
}

}  // namespace

Message Message::Filled(std::string_view sentence, std::span<const Place> places) {
  Message message;
  message.kind_ = Kind::kSentence;
  message.sentence_ = sentence;
  std::string literal;
  size_t at = 0;
  for (const Place& place : places) {
    const size_t begin = NextPlace(sentence, at, &literal);
    const size_t end = sentence.find('}', begin);
    message.places_.push_back(place.With(sentence.substr(begin + 1, end - begin - 1)));
    at = end + 1;
  }
  return message;
}

std::optional<Message> Message::Of(std::string_view sentence, std::span<const Place> places) {
  size_t count = 0;
  std::string literal;
  for (size_t at = 0; (at = NextPlace(sentence, at, &literal)) != sentence.npos; ++count) {
    at = sentence.find('}', at);
    if (at == sentence.npos) return std::nullopt;
  }
  if (count != places.size()) return std::nullopt;
  return Filled(sentence, places);
}

Message Message::Place::With(std::string_view format) const {
  if (format.empty() && kind_ == Kind::kText) return text_;
  const std::string whole = fmt::format("{{{}}}", format);
  switch (kind_) {
    case Kind::kReal:
      return fmt::format(fmt::runtime(whole), real_);
    case Kind::kUnsigned:
      return fmt::format(fmt::runtime(whole), unsigned_);
    case Kind::kSigned:
      return fmt::format(fmt::runtime(whole), signed_);
    case Kind::kText:
      break;
  }
  if (text_.kind_ != Message::Kind::kName) return text_;
  return fmt::format(fmt::runtime(whole), text_.name_);
}

Message Message::Joined(std::vector<Message> parts, std::string_view separator) {
  std::erase_if(parts, [](const Message& part) { return part.empty(); });
  if (parts.empty()) return {};
  if (parts.size() == 1) return std::move(parts[0]);
  Message message;
  message.kind_ = Kind::kList;
  message.sentence_ = separator;
  message.places_ = std::move(parts);
  return message;
}

Message Message::OfText(std::string_view english) {
  const std::string_view key = Catalogue::Chinese().KeyOf(english);
  if (key != english || key.empty() || key.find('{') != key.npos) return english;
  return Filled(key, {});
}

namespace {

constexpr int kDeepest = 64;         // messages within messages
constexpr size_t kMostParts = 1000;  // of one message

void PackText(char kind, std::string_view text, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "{}{}:{}", kind, text.size(), text);
}

// A sentence of places and marks, such as "{} ({})", which needs no translation; it lasts as long
// as the program. "": the sentence has words, or is too long.
std::string_view WithoutWords(std::string_view sentence) {
  constexpr size_t kLongest = 32;
  const bool has_words = std::ranges::any_of(
      sentence, [](unsigned char c) { return std::isalpha(c) != 0 || c >= 0x80; });
  if (has_words || sentence.size() > kLongest) return {};
  static std::mutex mutex;
  static std::set<std::string, std::less<>> known;
  const std::lock_guard lock(mutex);
  return *known.emplace(sentence).first;
}

// The number before a colon.
std::optional<size_t> TakeNumber(std::string_view* line) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), number);
  if (error != std::errc() || end == line->data() + line->size() || *end != ':')
    return std::nullopt;
  line->remove_prefix(static_cast<size_t>(end - line->data()) + 1);
  return number;
}

}  // namespace

// "N4:norm" is a name. "S20:{} of {} is off by {}3:" and three messages are a sentence with its
// places, "L2:; 2:" and two messages a list.
void Message::Pack(std::string* line) const {
  // A sentence with braces of its own would be another one when it is looked up.
  const bool braces =
      sentence_.find("{{") != sentence_.npos || sentence_.find("}}") != sentence_.npos;
  if (kind_ == Kind::kName || braces || places_.size() > kMostParts)
    return PackText('N', English(), line);
  PackText(kind_ == Kind::kList ? 'L' : 'S', sentence_, line);
  fmt::format_to(std::back_inserter(*line), "{}:", places_.size());
  for (const Message& place : places_) place.Pack(line);
}

std::string Message::Packed() const {
  std::string line;
  Pack(&line);
  return line;
}

std::optional<Message> Message::Unpack(std::string_view* line, int depth) {
  if (line->empty() || depth > kDeepest) return std::nullopt;
  const char kind = line->front();
  line->remove_prefix(1);
  const std::optional<size_t> size = TakeNumber(line);
  if (!size || *size > line->size()) return std::nullopt;
  const std::string_view text = line->substr(0, *size);
  line->remove_prefix(*size);
  if (kind == 'N') return Message(text);
  const std::optional<size_t> count = TakeNumber(line);
  if ((kind != 'S' && kind != 'L') || !count || *count > kMostParts) return std::nullopt;
  std::vector<Message> parts;
  for (size_t i = 0; i < *count; ++i) {
    std::optional<Message> part = Unpack(line, depth + 1);
    if (!part) return std::nullopt;
    parts.push_back(*std::move(part));
  }
  if (kind == 'L') {
    for (const auto& mark : kListMarks) {
      if (mark[0] == text) return Joined(std::move(parts), mark[0]);
    }
    return std::nullopt;
  }
  std::string_view key = Catalogue::Chinese().KeyOf(text);
  if (key.empty()) key = WithoutWords(text);
  std::vector<Place> places(parts.begin(), parts.end());
  return key.empty() ? std::nullopt : Of(key, places);
}

Message Message::Unpacked(std::string_view line) {
  std::string_view rest = line;
  std::optional<Message> message = Unpack(&rest, 0);
  return message && rest.empty() ? *std::move(message) : Message(line);
}

void Message::Append(bool chinese, std::string* out) const {
  const auto append = [&](std::string_view more) {
    if (chinese) {
      AppendClosed(more, out);
    } else {
      *out += more;
    }
  };
  if (kind_ == Kind::kName) return append(name_);
  if (kind_ == Kind::kList) {
    for (size_t i = 0; i < places_.size(); ++i) {
      if (i > 0) *out += chinese ? ChineseSeparator(sentence_) : sentence_;
      places_[i].Append(chinese, out);
    }
    return;
  }
  const std::string_view found =
      chinese ? Catalogue::Chinese().Find(sentence_) : std::string_view();
  const std::string_view format = found.empty() ? sentence_ : found;
  size_t at = 0, next = 0;
  while (true) {
    std::string literal;
    const size_t place = NextPlace(format, at, &literal);
    append(literal);
    if (place == format.npos) return;
    const size_t end = format.find('}', place);
    size_t index = next++;
    (void)std::from_chars(format.data() + place + 1, format.data() + end, index);
    if (index < places_.size()) {
      std::string inside;
      places_[index].Append(chinese, &inside);
      append(inside);
    }
    at = end + 1;
  }
}

std::string Message::In(Language language) const {
  std::string text;
  Append(language == Language::kChinese, &text);
  return text;
}
std::string Message::English() const { return In(Language::kEnglish); }
std::string Message::Shown() const { return In(CurrentLanguage()); }

void PrintTo(const Message& message, std::ostream* out) { *out << message.English(); }

}  // namespace msprobe
