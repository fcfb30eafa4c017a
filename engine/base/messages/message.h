// A text that people read, as a value: a sentence of the program and what stands in its places. It
// is made where the sentence is made, and put into a language where it is shown; nobody parses a
// finished sentence.
//
//   Message why = "{} of {} is off by {:.0f}%"_t("norm"_t, leaf.name, percent);
//   why.English();   // "norm of output.0 is off by 3%": JSON, tables, and what else programs parse
//   // "output.0 的范数偏差 3%": in the language of the person who reads it (language.h)
//   why.Shown();
//
// A literal with _t is a sentence or a word of the program, and the key of its translation: each
// has one in translations/*.zh.po, or a test fails (tests/language). What comes from a dump, a
// script or a file is a std::string: a name, which is the same in each language.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace msprobe {

enum class Language;  // language.h

namespace message_literals {

// What owns no text and is no literal: std::string_view, TextRef.
template <typename T>
concept View = std::convertible_to<const T&, std::string_view> &&
               !std::convertible_to<const T&, const char*> &&
               !std::same_as<T, std::string>;

}  // namespace message_literals

class Message {
 public:
  class Place;
  template <size_t kPlaces>
  class Format;

  Message() = default;                                   // no text
  Message(std::string name) : name_(std::move(name)) {}  // NOLINT: a name
  template <message_literals::View Name>
  Message(const Name& name) : name_(std::string_view(name)) {}  // NOLINT

  // A sentence that is no literal: one of the fronts in Python, which outlives the message.
  // nullopt: it has another number of places.
  static std::optional<Message> Of(std::string_view sentence, std::span<const Place> places);

  // Texts side by side, with "; ", ", ", " and ", ": ", ". ", " ", "\n" or "" between them. Empty
  // ones are left out.
  static Message Joined(std::vector<Message> parts, std::string_view separator);

  // A message as a line that a process of ours hands to another one, and the inverse. What is no
  // such line is a name; so is a sentence that this program does not have.
  std::string Packed() const;
  static Message Unpacked(std::string_view line);

  // A text that a file of ours has: one of the sentences without places, or a name.
  static Message OfText(std::string_view english);

  bool empty() const { return kind_ == Kind::kName && name_.empty(); }
  std::string English() const;
  std::string Shown() const;
  std::string In(Language language) const;

  // By the English texts.
  friend bool operator==(const Message& a, const Message& b) { return a.English() == b.English(); }
  friend bool operator==(const Message& a, std::string_view b) { return a.English() == b; }
  friend bool operator==(const Message& a, const std::string& b) { return a.English() == b; }
  friend bool operator==(const Message& a, const char* b) { return a.English() == b; }
  friend void PrintTo(const Message& message, std::ostream* out);  // of a test that fails

 private:
  template <size_t kPlaces>
  friend class Format;
  enum class Kind { kName, kSentence, kList };

  static Message Filled(std::string_view sentence, std::span<const Place> places);
  void Append(bool chinese, std::string* out) const;
  void Pack(std::string* line) const;
  static std::optional<Message> Unpack(std::string_view* line, int depth);

  Kind kind_ = Kind::kName;
  std::string_view sentence_;  // of a list: what stands between its parts
  std::string name_;
  std::vector<Message> places_;  // in the order in which English has them; of a list: its parts
};

// What stands in a place: a name, another text, or a number, which is formatted as the place says
// ("{:.2g}").
class Message::Place {
 public:
  Place(Message text) : kind_(Kind::kText), text_(std::move(text)) {}  // NOLINT
  Place(std::string name) : Place(Message(std::move(name))) {}         // NOLINT
  template <message_literals::View Name>
  Place(const Name& name) : Place(std::string(std::string_view(name))) {}  // NOLINT
  Place(char letter) : Place(std::string(1, letter)) {}                    // NOLINT
  Place(const char* literal) = delete;  // "a word"_t, or std::string("a name")
  template <std::floating_point T>
  Place(T number) : kind_(Kind::kReal), real_(number) {}  // NOLINT
  template <std::unsigned_integral T>
  Place(T number) : kind_(Kind::kUnsigned), unsigned_(number) {}  // NOLINT
  template <std::signed_integral T>
  Place(T number) : kind_(Kind::kSigned), signed_(number) {}  // NOLINT

  // `format`: "" or ":.2g". Widths count for names and numbers.
  Message With(std::string_view format) const;

 private:
  enum class Kind { kText, kReal, kUnsigned, kSigned };

  Kind kind_;
  Message text_;
  double real_ = 0;
  uint64_t unsigned_ = 0;
  int64_t signed_ = 0;
};

// A sentence with places: a function that makes a text of what stands in them.
template <size_t kPlaces>
class Message::Format {
 public:
  explicit constexpr Format(std::string_view sentence) : sentence_(sentence) {}
  template <typename... Args>
  requires(sizeof...(Args) == kPlaces) Message operator()(Args&&... args) const {
    return Message::Filled(sentence_,
                           std::initializer_list<Place>{Place(std::forward<Args>(args))...});
  }
  Message WithoutPlaces() const { return Message::Filled(sentence_, {}); }

 private:
  std::string_view sentence_;
};

namespace message_literals {

// A literal as a parameter of a template, so that the compiler counts its places.
template <size_t kSize>
struct Literal {
  constexpr Literal(const char (&literal)[kSize]) { std::copy_n(literal, kSize, text); }  // NOLINT
  constexpr size_t CountPlaces() const {
    size_t places = 0;
    for (size_t i = 0; i + 1 < kSize; ++i) {
      if (text[i] != '{') continue;
      if (text[i + 1] == '{') {
        ++i;
      } else {
        ++places;
      }
    }
    return places;
  }
  char text[kSize];
};

template <Literal kLiteral>
inline constexpr std::string_view kText{kLiteral.text, sizeof(kLiteral.text) - 1};

}  // namespace message_literals

template <message_literals::Literal kLiteral>
constexpr auto operator""_t() {
  constexpr Message::Format<kLiteral.CountPlaces()> format(message_literals::kText<kLiteral>);
  if constexpr (kLiteral.CountPlaces() == 0) {
    return format.WithoutPlaces();
  } else {
    return format;
  }
}

}  // namespace msprobe
