#include "engine/model/named_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/text.h"

namespace msprobe {
namespace {

constexpr size_t kCandidates = 8;
constexpr std::string_view kForward = ".forward", kBackward = ".backward";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Whether text[at, end) does not cut a number at its borders.
bool HasWholeNumbers(std::string_view text, size_t at, size_t end) {
  const bool cut_before = at > 0 && IsDigit(text[at - 1]) && IsDigit(text[at]);
  const bool cut_behind = end < text.size() && IsDigit(text[end - 1]) && IsDigit(text[end]);
  return !cut_before && !cut_behind;
}

enum class Part { kNone, kInside, kBetweenDots };

Part PartOf(std::string_view name, std::string_view text) {
  Part best = Part::kNone;
  if (text.empty()) return Part::kInside;
  for (size_t at = name.find(text); at != name.npos; at = name.find(text, at + 1)) {
    const size_t end = at + text.size();
    if (!HasWholeNumbers(name, at, end)) continue;
    const bool begins = at == 0 || name[at - 1] == '.';
    const bool ends = end == name.size() || name[end] == '.';
    if (begins && ends) return Part::kBetweenDots;
    best = Part::kInside;
  }
  return best;
}

// "Tensor.truediv.0" of "Tensor.__truediv__.0", as reports list the calls of a region.
std::string WithoutUnderscores(std::string_view name) {
  std::string plain(name);
  for (size_t at = plain.find("__"); at != plain.npos; at = plain.find("__", at)) {
    const bool at_border =
        at == 0 || plain[at - 1] == '.' || at + 2 == plain.size() || plain[at + 2] == '.';
    if (at_border)
      plain.erase(at, 2);
    else
      at += 2;
  }
  return plain;
}

bool IsPlainlyNamed(std::string_view name, std::string_view text) {
  return name.find("__") != name.npos &&
         PartOf(WithoutUnderscores(name), text) == Part::kBetweenDots;
}

// "train.py:41" in "pkg/train.py:41 in forward: ...".
bool IsAtLine(std::string_view line, std::string_view text) {
  if (text.find(':') == text.npos) return false;
  const size_t at = line.find(text);
  if (at == line.npos || (at > 0 && line[at - 1] != '/')) return false;
  const size_t end = at + text.size();
  return end == line.size() || line[end] == ' ';
}

std::string_view WithoutDirection(std::string_view name) {
  for (const std::string_view direction : {kForward, kBackward}) {
    if (name.ends_with(direction)) name.remove_suffix(direction.size());
  }
  return name;
}

// "Module.fc.Linear.backward.0" -> "Module.fc.Linear.forward.0".
std::string ForwardName(std::string_view name) {
  std::string forward(name);
  if (const size_t at = forward.rfind(kBackward); at != forward.npos)
    forward.replace(at, kBackward.size(), kForward);
  return forward;
}

// Of the forward and the backward entry of one call, the forward one.
void DropBackward(std::span<const NamedCall> calls, std::vector<size_t>* found) {
  std::vector<std::string> names;
  for (const size_t i : *found) names.emplace_back(calls[i].name);
  std::sort(names.begin(), names.end());
  std::erase_if(*found, [&](size_t i) {
    const std::string forward = ForwardName(calls[i].name);
    return forward != calls[i].name && std::binary_search(names.begin(), names.end(), forward);
  });
}

}  // namespace

bool NamesCall(std::string_view text, const NamedCall& call) {
  return PartOf(call.name, text) != Part::kNone || IsPlainlyNamed(call.name, text) ||
         IsAtLine(call.line, text);
}

std::vector<size_t> CallsNamed(std::span<const NamedCall> calls, std::string_view text) {
  std::vector<size_t> same, between_dots, plainly, inside, at_line, loss;
  for (size_t i = 0; i < calls.size(); ++i) {
    const NamedCall& call = calls[i];
    if (call.name == text) return {i};
    const bool has_direction = WithoutDirection(call.name) != call.name;
    if (has_direction ? WithoutDirection(call.name) == text : call.name == WithoutDirection(text))
      same.push_back(i);
    if (call.may_be_loss) loss = {i};
    const Part part = PartOf(call.name, text);
    if (part == Part::kBetweenDots) between_dots.push_back(i);
    if (part == Part::kInside) inside.push_back(i);
    if (IsPlainlyNamed(call.name, text)) plainly.push_back(i);
    if (IsAtLine(call.line, text)) at_line.push_back(i);
  }
  if (text != "loss") loss.clear();
  for (std::vector<size_t>* found : {&same, &loss, &between_dots, &plainly, &inside, &at_line}) {
    if (found->empty()) continue;
    DropBackward(calls, found);
    return std::move(*found);
  }
  return {};
}

Result<size_t> OneCallNamed(std::span<const NamedCall> calls, std::string_view text,
                            std::string_view path) {
  const std::vector<size_t> found = CallsNamed(calls, text);
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    Status status = InvalidArgument()
                        .At(path)
                        .Expected("a call, such as Functional.linear.3, model.py:41 or loss"_t)
                        .Found("no {} among {} calls"_t(Excerpt(text), calls.size()));
    std::vector<std::string_view> names;
    for (const NamedCall& call : calls) names.push_back(call.name);
    const std::string_view near = NearestSpelling(text, names);
    return near.empty() ? std::move(status).Hint("msprobe show {} lists the calls"_t(path))
                        : std::move(status).Hint("did you mean {}?"_t(near));
  }
  std::string candidates;
  for (size_t i = 0; i < std::min(found.size(), kCandidates); ++i) {
    candidates += (i == 0 ? "" : ", ") + std::string(calls[found[i]].name);
    const std::string& line = calls[found[i]].line;
    const std::string_view place = std::string_view(line).substr(0, line.find(' '));
    if (!place.empty()) candidates += fmt::format(" ({})", place.substr(place.rfind('/') + 1));
  }
  if (found.size() > kCandidates) candidates += ", ...";
  return InvalidArgument()
      .At(path)
      .Expected("one call"_t)
      .Found("{} calls that {} can mean"_t(found.size(), Excerpt(text)))
      .Hint("one of {}"_t(candidates));
}

}  // namespace msprobe
