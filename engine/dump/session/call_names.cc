#include "engine/dump/session/call_names.h"

#include <fmt/format.h>

#include "engine/dump/pkl/pkl_composer.h"
#include "engine/model/names.h"

namespace msprobe::dump {

void CallNames::Configure(const Config& config) {
  pkl_ = config.pkl ? std::optional(config.pkl->dialect) : std::nullopt;
}

void CallNames::NewStep() { numbers_.assign(numbers_.size(), 0); }

void CallNames::BeginPklFile() { hook_calls_ = 0; }

int64_t CallNames::Next(uint32_t counter) {
  if (counter >= numbers_.size()) numbers_.resize(counter + 64, 0);
  return numbers_[counter]++;
}

void CallNames::ReturnCallNumber(uint32_t counter) { --numbers_[counter]; }

void CallNames::Name(const std::string& stem, int64_t call, bool is_module, std::string* forward,
                     std::string* backward) {
  if (!pkl_) {
    *forward = ComposeEntryName(stem, call, "forward", is_module);
    *backward = ComposeEntryName(stem, call, "backward", is_module);
    return;
  }
  std::string base = stem.substr(0, stem.find_last_not_of('.') + 1);
  for (char& c : base) c = c == '.' || c == '/' ? '_' : c;  // file names are those of the lines
  *backward = fmt::format("{}_{}_backward", base, call);
  *forward = RenamesGradients() ? fmt::format("{}_{}_forward", hook_calls_++, base)
                                : fmt::format("{}_{}_forward", base, call);
}

std::string CallNames::NameGradients(const std::string& backward) {
  return fmt::format("{}_{}", hook_calls_++, WithoutCallNumber(backward));
}

}  // namespace msprobe::dump
