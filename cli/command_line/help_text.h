// The help of a verb, from the description of its flags.
//
//   HelpPage page{.summary = "does it"_t, .program = "msprobe it"};
//   std::fputs(HelpText(page, /*all=*/false, 80).c_str(), stdout);   // what --help prints
#pragma once

#include <string>
#include <vector>

#include "engine/base/messages/message.h"

namespace msprobe::cli {

// One flag, as help and the completion of shells need it.
struct FlagInfo {
  std::string place;               // "TARGET" of an argument that is known by its place; else ""
  std::vector<std::string> names;  // "-tp", "--target_path"; empty: known by its place only
  std::string value;               // what help calls the value: "PATH"; "" of a switch
  Message help, group;
  std::string shown_default;
  std::vector<std::string> choices;  // the only values that are accepted; empty: any
  bool required = false, common = false;
  bool takes_path = false;      // the value is a file or a folder
  bool optional_value = false;  // the value may be left out
  bool repeated = false;        // several values, or several times
};

struct HelpPage {
  Message summary, footer;
  std::string program, usage;   // usage "": made from the flags
  std::vector<FlagInfo> flags;  // those of one group follow each other
};

// Lines of at most `width` columns where the texts have a blank. Without `all` and when some flags
// are `common`, only these are listed, and the last line says how to see all.
std::string HelpText(const HelpPage& page, bool all, int width);

}  // namespace msprobe::cli
