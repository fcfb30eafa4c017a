#include "engine/formats/tables/xml.h"

#include <algorithm>
#include <charconv>

namespace msprobe::formats {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

std::string_view WithoutPrefix(std::string_view name) {
  const size_t colon = name.find(':');
  return colon == name.npos ? name : name.substr(colon + 1);
}

// false: not a character that XML allows.
bool AppendCharacter(std::string_view digits, int base, std::string* out) {
  uint32_t c = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, c, base);
  if (error != std::errc() || stop != end || c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
    return false;
  if (c < 0x80) {
    *out += static_cast<char>(c);
  } else if (c < 0x800) {
    *out += static_cast<char>(0xc0 | c >> 6);
    *out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    *out += static_cast<char>(0xe0 | c >> 12);
    *out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    *out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    *out += static_cast<char>(0xf0 | c >> 18);
    *out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    *out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    *out += static_cast<char>(0x80 | (c & 0x3f));
  }
  return true;
}

}  // namespace

bool XmlCursor::SkipTo(std::string_view end) {
  const size_t found = text_.find(end, at_);
  if (found == text_.npos) return Fail("the end of a comment or instruction"_t);
  at_ = found + end.size();
  return true;
}

bool XmlCursor::Next() {
  if (failed()) return false;
  if (kind_ == kOpen && closes_) {
    closes_ = false;
    kind_ = kClose;
    --depth_;
    return true;
  }
  raw_text_ = false;
  while (at_ < text_.size()) {
    const std::string_view rest = text_.substr(at_);
    if (rest[0] != '<') {
      body_ = rest.substr(0, rest.find('<'));
      at_ += body_.size();
      if (depth_ == 0) {  // blanks and the byte order mark around the document
        if (body_.find_first_not_of(" \t\r\n\xef\xbb\xbf") == body_.npos) continue;
        return Fail("a tag"_t);
      }
      kind_ = kText;
      return true;
    }
    if (rest.starts_with("<?")) {
      if (!SkipTo("?>")) return false;
    } else if (rest.starts_with("<!--")) {
      if (!SkipTo("-->")) return false;
    } else if (rest.starts_with("<![CDATA[")) {
      constexpr size_t kStart = 9;
      const size_t start = at_ + kStart;
      if (!SkipTo("]]>")) return false;
      body_ = text_.substr(start, at_ - 3 - start);
      if (depth_ == 0) return Fail("a tag"_t);
      kind_ = kText;
      return raw_text_ = true;
    } else if (rest.starts_with("<!")) {
      return Fail("no document type: office files have none"_t);
    } else {
      return Tag();
    }
  }
  return depth_ == 0 ? false : Fail("closing tags before the end of the text"_t);
}

// At '<'.
bool XmlCursor::Tag() {
  const bool is_close = at_ + 1 < text_.size() && text_[at_ + 1] == '/';
  const size_t start = at_ + (is_close ? 2 : 1);
  // The end of the tag; a '>' may stand inside a value.
  size_t end = start;
  for (char quote = 0; end < text_.size() && (quote != 0 || text_[end] != '>'); ++end) {
    const char c = text_[end];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '<') {
      return Fail("the end of the tag before this"_t);
    }
  }
  if (end >= text_.size()) return Fail("the end of a tag"_t);
  std::string_view inside = text_.substr(start, end - start);
  closes_ = !is_close && inside.ends_with('/');
  if (closes_) inside.remove_suffix(1);
  const std::string_view name = inside.substr(0, inside.find_first_of(kBlank));
  if (name.empty() || name.find_first_of("<>&\"'=/") != name.npos)
    return Fail("the name of a tag"_t);
  name_ = WithoutPrefix(name);
  body_ = inside.substr(name.size());
  at_ = end + 1;
  kind_ = is_close ? kClose : kOpen;
  depth_ += is_close ? -1 : 1;
  if (depth_ < 0) return Fail("no closing tag without its opening one"_t);
  if (depth_ > kMaxDepth) return Fail("at most 256 tags inside one another"_t);
  return true;
}

std::string_view XmlCursor::Attribute(std::string_view name) {
  if (kind_ != kOpen) return "";
  std::string_view rest = body_;
  while (true) {
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(kBlank)));
    const size_t equals = rest.find('=');
    if (rest.empty() || equals == rest.npos) return "";
    std::string_view key = rest.substr(0, equals);
    key = key.substr(0, key.find_last_not_of(kBlank) + 1);
    rest.remove_prefix(equals + 1);
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(kBlank)));
    if (rest.empty() || (rest[0] != '"' && rest[0] != '\'')) return "";
    const size_t end = rest.find(rest[0], 1);
    if (end == rest.npos) return "";
    if (WithoutPrefix(key) == name) {
      attribute_.clear();
      return Decode(rest.substr(1, end - 1), &attribute_) ? std::string_view(attribute_) : "";
    }
    rest.remove_prefix(end + 1);
  }
}

void XmlCursor::AppendText(std::string* out) {
  if (kind_ != kText) return;
  if (raw_text_) {
    *out += body_;
  } else {
    (void)Decode(body_, out);
  }
}

bool XmlCursor::Decode(std::string_view raw, std::string* out) {
  for (size_t plain = 0;;) {
    const size_t found = raw.find('&', plain);
    *out += raw.substr(plain, found == raw.npos ? raw.npos : found - plain);
    if (found == raw.npos) return true;
    const size_t end = raw.find(';', found);
    if (end == raw.npos) return Fail("the end of an entity"_t);
    const std::string_view entity = raw.substr(found + 1, end - found - 1);
    if (entity == "amp") {
      *out += '&';
    } else if (entity == "lt") {
      *out += '<';
    } else if (entity == "gt") {
      *out += '>';
    } else if (entity == "quot") {
      *out += '"';
    } else if (entity == "apos") {
      *out += '\'';
    } else if (entity.starts_with("#x")
                   ? !AppendCharacter(entity.substr(2), 16, out)
                   : !entity.starts_with('#') || !AppendCharacter(entity.substr(1), 10, out)) {
      return Fail(
          "an entity of XML itself (&amp; &lt; &gt; &quot; &apos; or a character's number)"_t);
    }
    plain = end + 1;
  }
}

Status XmlCursor::Error(std::string_view path) const {
  return InvalidDump(path, at_)
      .Expected(failed() ? expected_ : "more"_t)
      .Found(at_ < text_.size() ? Excerpt(text_.substr(at_, 40)) : "the end of the text"_t);
}

}  // namespace msprobe::formats
