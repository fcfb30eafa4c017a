#include "engine/dump/pkl/pkl_names.h"

#include <algorithm>
#include <iterator>

#include "engine/model/names.h"

namespace msprobe::dump {
namespace {

constexpr std::string_view kTypes[] = {"Tensor", "Torch",       "Functional", "VF",
                                       "NPU",    "Distributed", "Aten",       "Module"};

struct Ending {
  size_t at;  // of the separator in front of the direction
  Direction direction;
  PklPart part;
  size_t end;  // of the part's word
};

// The ending of a name: "_forward_input" and the like, with or without a following ".0".
std::optional<Ending> FindEnding(std::string_view name, char separator) {
  static constexpr std::pair<std::string_view, Direction> kDirections[] = {
      {"forward", Direction::kForward}, {"backward", Direction::kBackward}};
  static constexpr std::pair<std::string_view, PklPart> kParts[] = {
      {"input", PklPart::kInput}, {"output", PklPart::kOutput}, {"stack_info", PklPart::kStack}};
  for (size_t at = name.find(separator); at != name.npos; at = name.find(separator, at + 1)) {
    for (const auto& [word, direction] : kDirections) {
      size_t next = at + 1 + word.size();
      if (!name.substr(at + 1).starts_with(word) || next >= name.size() || name[next] != separator)
        continue;
      for (const auto& [part_word, part] : kParts) {
        const size_t end = next + 1 + part_word.size();
        if (!name.substr(next + 1).starts_with(part_word)) continue;
        if (end == name.size() || name[end] == '.') return Ending{at, direction, part, end};
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::string_view WithoutLineNumber(std::string_view name) {
  const size_t end = name.find_first_not_of("0123456789");
  return end == 0 || end == name.npos || name[end] != '_' ? name : name.substr(end + 1);
}

std::string PklName::Api() const {
  return type.empty() ? std::string(op) : std::string(type) + "." + std::string(op);
}

std::optional<PklName> ParsePklName(std::string_view name) {
  PklName parsed{.separator = '_'};
  std::optional<Ending> ending = FindEnding(name, '_');
  if (!ending) {
    parsed.separator = '.';
    ending = FindEnding(name, '.');
    if (!ending) return std::nullopt;
  }
  parsed.direction = ending->direction;
  parsed.part = ending->part;
  parsed.rest = name.substr(ending->end);
  std::string_view head = name.substr(0, ending->at);
  parsed.stem = name.substr(0, ending->at + 1 + (ending->direction == Direction::kForward ? 7 : 8));
  if (const std::string_view bare = WithoutLineNumber(head); bare.size() < head.size()) {
    parsed.number = NumberAfter(head.substr(0, head.size() - bare.size() - 1), "");
    head = bare;
  } else if (const size_t last = head.rfind(parsed.separator); last != head.npos) {
    parsed.call = NumberAfter(head.substr(last + 1), "");
    if (parsed.call >= 0) head = head.substr(0, last);
  }
  parsed.op = head;
  const size_t first = head.find(parsed.separator);
  const std::string_view type = head.substr(0, first);
  if (first != head.npos && first + 1 < head.size() &&
      std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes)) {
    parsed.type = type;
    parsed.op = head.substr(first + 1);
  }
  return parsed;
}

}  // namespace msprobe::dump
