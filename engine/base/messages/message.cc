#include "engine/base/messages/message.h"

#include <fmt/format.h>

#include <charconv>
#include <ostream>

#include "engine/base/messages/catalogue.h"
#include "engine/base/messages/language.h"

namespace msprobe {
namespace {

// Of what stands between the parts of a list.
constexpr std::string_view kListMarks[][2] = {
    {"; ", "；"}, {". ", "。"}, {": ", "："}, {", ", "，"}, {" and ", "和"}};

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
