// Lists and objects of an entry as the text that tables show.
#include "engine/dump/read/entries.h"

namespace msprobe::dump {

std::string_view EntryParser::ListText() {
  if (json_->Peek() != '[') {
    formats::JsonText text;
    return json_->String(&text) ? Text(text) : std::string_view();
  }
  // Indented files have their numbers on lines of their own.
  scratch_.assign(1, '[');
  std::string_view number;
  for (json_->BeginArray(); json_->NextItem();) {
    if (!json_->Number(&number)) return {};
    if (scratch_.size() > 1) scratch_ += ", ";
    scratch_ += number;
  }
  scratch_ += ']';
  return scratch_;
}

std::string_view EntryParser::PythonText() {
  scratch_.clear();
  AppendPython();
  return out_.arena.Copy(scratch_);
}

// As Python prints the value: [0, None, 2].
void EntryParser::AppendPython() {
  formats::JsonText text;
  std::string_view number;
  bool flag;
  switch (json_->Peek()) {
    case '[': {
      scratch_ += '[';
      const size_t start = scratch_.size();
      for (json_->BeginArray(); json_->NextItem();) {
        if (scratch_.size() > start) scratch_ += ", ";
        AppendPython();
      }
      scratch_ += ']';
      break;
    }
    case '{': {
      scratch_ += '{';
      const size_t start = scratch_.size();
      for (json_->BeginObject(); json_->NextKey(&text);) {
        if (scratch_.size() > start) scratch_ += ", ";
        scratch_ += '\'';
        formats::AppendJsonText(&scratch_, text);
        scratch_ += "': ";
        AppendPython();
      }
      scratch_ += '}';
      break;
    }
    case '"':
      if (!json_->String(&text)) return;
      scratch_ += '\'';
      formats::AppendJsonText(&scratch_, text);
      scratch_ += '\'';
      break;
    case 't':
    case 'f':
      if (json_->Bool(&flag)) scratch_ += flag ? "True" : "False";
      break;
    case 'n':
      if (json_->Null()) scratch_ += "None";
      break;
    default:
      if (json_->Number(&number)) scratch_ += number;
  }
}

}  // namespace msprobe::dump
