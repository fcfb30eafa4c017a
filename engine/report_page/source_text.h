// The frames of stacks as JSON, with the lines of the source file around each place.
//
//   SourceTexts sources;
//   sources.AppendFrame("File train.py, line 41, in forward, \n y = gelu(x)", &json);
//   // ["train.py","41","forward","y = gelu(x)",39,["h = ...", ...]]
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "engine/base/file.h"

namespace msprobe::report_page {

// A dump names the files, and a dump may be hostile: a page must not carry the text of any file
// that a dump chooses. Lines are taken from Python files only, and only where the named line holds
// what the dump says is there.
class SourceTexts {
 public:
  void AppendFrame(std::string_view frame, std::string* json);

 private:
  const MappedFile* Open(std::string_view path);  // null: not there, too large, or no Python
  void AppendLinesAround(std::string_view path, std::string_view line, std::string_view source,
                         std::string* json);
  std::unordered_map<std::string, MappedFile> files_;
  int left_ = 2000;  // frames that may still get their lines
};

}  // namespace msprobe::report_page
