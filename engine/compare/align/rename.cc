#include "engine/compare/align/rename.h"

#include <fmt/format.h>

#include <regex>
#include <vector>

namespace msprobe::compare {
namespace {

constexpr size_t kLongest = 1000;

Status Wrong(std::string_view expression, size_t at, Message expected) {
  return InvalidArgument("--rename {}, character {}: expected {}"_t(Excerpt(expression, 80), at + 1,
                                                                    std::move(expected)))
      .Hint(std::string("--rename 's/encoder/backbone/'"));
}

// The position of the mistake in an expression that does not compile; std::regex does not tell it.
size_t WrongPlace(std::string_view text) {
  std::vector<size_t> open;
  bool in_class = false;
  size_t class_at = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      if (++i >= text.size()) return i - 1;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
      class_at = i;
    } else if (c == '(') {
      open.push_back(i);
    } else if (c == ')') {
      if (open.empty()) return i;
      open.pop_back();
    } else if ((c == '*' || c == '+' || c == '?') &&
               (i == 0 || text[i - 1] == '(' || text[i - 1] == '|')) {
      const bool group = c == '?' && i > 0 && text[i - 1] == '(';
      if (!group) return i;
    }
  }
  return in_class ? class_at : open.empty() ? 0 : open.back();
}

bool IsLetterOrDigit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Reads until the mark, which is text[1], or the end, and returns where that is.
size_t ReadPart(std::string_view text, size_t at, std::string* part) {
  const char mark = text[1];
  for (; at < text.size() && text[at] != mark; ++at) {
    if (text[at] == '\\' && at + 1 < text.size()) {
      // "\/" in "s/a\/b/c/" is the character '/'.
      if (text[at + 1] != mark) *part += '\\';
      ++at;
    }
    *part += text[at];
  }
  return at;
}

// Writes sed's text as std::regex_replace wants it. Returns the place of a group that the
// expression does not have, else npos.
size_t AppendReplacement(std::string_view text, unsigned groups, std::string* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 1 < text.size();
    const char c = escaped ? text[++i] : text[i];
    const bool group = escaped && c >= '1' && c <= '9';
    if (group && static_cast<unsigned>(c - '0') > groups) return i;
    // "$01", two digits: a digit that follows in the text must not become part of the number.
    if (group) {
      out->append("$0") += c;
    } else if (c == '$') {
      *out += "$$";
    } else if (c == '&' && !escaped) {
      *out += "$&";
    } else {
      *out += c;
    }
  }
  return text.npos;
}

}  // namespace

struct Rename::Pattern {
  std::regex regex;
};

Result<Rename> Rename::Parse(std::string_view text) {
  Rename out;
  out.expression_ = text;
  if (text.size() < 2 || text[0] != 's') return Wrong(text, 0, std::string("s/from/to/"));
  const char mark = text[1];
  if (mark == '\\' || mark == ' ' || IsLetterOrDigit(mark)) {
    return Wrong(text, 1, "a mark such as '/' after the s"_t);
  }
  std::string parts[2];
  size_t at = 2, start[2] = {2, 2};
  for (int i = 0; i < 2; ++i) {
    start[i] = at;
    at = ReadPart(text, at, &parts[i]);
    if (at >= text.size())
      return Wrong(text, at, "'{}' after the {}"_t(mark, i == 0 ? "expression"_t : "text"_t));
    ++at;
  }
  if (parts[0].empty()) return Wrong(text, 2, "an expression"_t);
  // libstdc++ has two matchers. The default one can take exponential time, and a stack frame for
  // each character; this one takes polynomial time.
  auto flags = std::regex::ECMAScript | std::regex_constants::__polynomial;
  for (; at < text.size(); ++at) {
    if (text[at] == 'g') {
      out.everywhere_ = true;
    } else if (text[at] == 'i') {
      flags |= std::regex::icase;
    } else {
      return Wrong(text, at, "g, i or the end"_t);
    }
  }
  try {
    out.from_ = std::make_shared<const Pattern>(Pattern{std::regex(parts[0], flags)});
  } catch (const std::regex_error&) {
    return Wrong(text, start[0] + WrongPlace(parts[0]),
                 "a regular expression; the error is here"_t);
  }
  const unsigned groups = out.from_->regex.mark_count();
  if (const size_t bad = AppendReplacement(parts[1], groups, &out.to_); bad != parts[1].npos)
    return Wrong(text, start[1] + bad, "a group of the expression, which has {}"_t(groups));
  return out;
}

std::string Rename::Apply(std::string_view name) const {
  if (name.size() > kLongest) return std::string(name);
  try {
    return std::regex_replace(std::string(name), from_->regex, to_,
                              everywhere_ ? std::regex_constants::format_default
                                          : std::regex_constants::format_first_only);
  } catch (const std::regex_error&) {
    return std::string(name);  // too complex for this name
  }
}

}  // namespace msprobe::compare
