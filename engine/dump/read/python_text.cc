#include "engine/dump/read/python_text.h"

#include <string_view>

namespace msprobe::dump {
namespace {

// JSON's spelling of a number as Python prints it: NaN is nan, Infinity is inf.
std::string_view PythonNumber(std::string_view number) {
  if (number == "NaN") return "nan";
  if (number == "Infinity") return "inf";
  return number == "-Infinity" ? "-inf" : number;
}

}  // namespace

void AppendListText(formats::JsonCursor* json, std::string* out) {
  const size_t begin = out->size();
  if (json->Peek() != '[') {
    formats::JsonText text;
    if (json->String(&text)) formats::AppendJsonText(out, text);
    return;
  }
  *out += '[';
  const size_t first = out->size();
  std::string_view number;
  for (json->BeginArray(); json->NextItem();) {
    if (!json->Number(&number)) return out->resize(begin);
    if (out->size() > first) *out += ", ";
    *out += number;
  }
  *out += ']';
}

void AppendPythonText(formats::JsonCursor* json, std::string* out) {
  formats::JsonText text;
  std::string_view number;
  bool flag;
  switch (json->Peek()) {
    case '[': {
      *out += '[';
      const size_t first = out->size();
      for (json->BeginArray(); json->NextItem();) {
        if (out->size() > first) *out += ", ";
        AppendPythonText(json, out);
      }
      *out += ']';
      break;
    }
    case '{': {
      *out += '{';
      const size_t first = out->size();
      for (json->BeginObject(); json->NextKey(&text);) {
        if (out->size() > first) *out += ", ";
        *out += '\'';
        formats::AppendJsonText(out, text);
        *out += "': ";
        AppendPythonText(json, out);
      }
      *out += '}';
      break;
    }
    case '"':
      if (!json->String(&text)) return;
      *out += '\'';
      formats::AppendJsonText(out, text);
      *out += '\'';
      break;
    case 't':
    case 'f':
      if (json->Bool(&flag)) *out += flag ? "True" : "False";
      break;
    case 'n':
      if (json->Null()) *out += "None";
      break;
    default:
      if (json->Number(&number)) *out += PythonNumber(number);
  }
}

}  // namespace msprobe::dump
