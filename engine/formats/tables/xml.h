// Walks an XML text from left to right. It knows the part of XML that office files use: no document
// type, so there are no entities but the five of XML itself, and nothing outside the text is read.
//
//   XmlCursor xml(text);
//   while (xml.Next()) {
//     if (xml.kind() == XmlCursor::kOpen && xml.name() == "row") Use(xml.Attribute("r"));
//   }
//   if (xml.failed()) return xml.Error(path);
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace msprobe::formats {

class XmlCursor {
 public:
  enum Kind { kOpen, kClose, kText };
  static constexpr int kMaxDepth = 256;

  explicit XmlCursor(std::string_view text) : text_(text) {}

  // The next tag or text; false at the end, or on an error. <a/> is opened, then closed.
  bool Next();
  Kind kind() const { return kind_; }
  std::string_view name() const { return name_; }  // of a tag, without a prefix: "row" of "x:row"
  // Of an opened tag, entities decoded; "" when it is not there. Valid until the next call.
  std::string_view Attribute(std::string_view name);
  // Appends a text, entities decoded.
  void AppendText(std::string* out);
  int depth() const { return depth_; }  // number of open tags, with the one just opened

  bool failed() const { return !expected_.empty(); }
  Status Error(std::string_view path) const;

 private:
  bool Fail(Message expected) {
    expected_ = std::move(expected);
    return false;
  }
  bool Tag();
  bool Decode(std::string_view raw, std::string* out);
  bool SkipTo(std::string_view end);

  std::string_view text_, name_, body_;  // body_: the attributes of an opened tag, or the text
  size_t at_ = 0;
  Kind kind_ = kText;
  int depth_ = 0;
  bool closes_ = false;    // the tag just opened closes itself
  bool raw_text_ = false;  // of a CDATA section
  std::string attribute_;
  Message expected_;  // empty: no error
};

}  // namespace msprobe::formats
