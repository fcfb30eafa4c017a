// What texts say in English, for matchers of strings.
//
//   EXPECT_THAT(EnglishOf(config.warnings), ElementsAre(HasSubstr("no effect")));
#pragma once

#include <string>
#include <vector>

#include "engine/base/messages/message.h"

namespace msprobe {

inline std::vector<std::string> EnglishOf(const std::vector<Message>& messages) {
  std::vector<std::string> texts;
  for (const Message& message : messages) texts.push_back(message.English());
  return texts;
}

}  // namespace msprobe
