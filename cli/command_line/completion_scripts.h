// Scripts with which bash, zsh and fish complete the command line of msprobe. They are made from
// the flags that the verbs declare, so they know what the program knows.
//
//   const std::string script = CompletionScript("bash", Completions(AllVerbs()));
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line/help_text.h"
#include "cli/command_line/verb.h"
#include "engine/base/messages/message.h"

namespace msprobe::cli {

// What can follow one verb.
struct VerbCompletion {
  std::string name;
  Message summary;
  std::vector<FlagInfo> flags;  // with --help and --help-all
  bool takes_command = false;   // a script and its arguments follow
};
std::vector<VerbCompletion> Completions(const std::vector<std::unique_ptr<Verb>>& verbs);

// `shell`: bash, zsh or fish.
std::string CompletionScript(std::string_view shell, const std::vector<VerbCompletion>& verbs);

}  // namespace msprobe::cli
