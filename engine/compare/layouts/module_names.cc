#include "engine/compare/layouts/module_names.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "engine/compare/layouts/name_pattern.h"
#include "engine/model/names.h"

namespace msprobe::compare::layouts {
namespace {

// "layers.0.fc.weight" and "layers.2.fc.weight" become "layers.0" and "layers.2": what is left
// without the parts that both end with.
std::pair<std::string, std::string> Differing(std::string_view own, std::string_view golden) {
  while (!own.empty() && !golden.empty()) {
    const size_t a = own.rfind('.'), b = golden.rfind('.');
    const std::string_view last = own.substr(a == own.npos ? 0 : a + 1);
    if (last != golden.substr(b == golden.npos ? 0 : b + 1)) break;
    own = own.substr(0, a == own.npos ? 0 : a);
    golden = golden.substr(0, b == golden.npos ? 0 : b);
  }
  return {std::string(own), std::string(golden)};
}

// Whether `path` is `front`, or stands inside of it.
bool IsInside(std::string_view path, std::string_view front) {
  return front.empty() || path == front ||
         (path.size() > front.size() && path.starts_with(front) && path[front.size()] == '.');
}

}  // namespace

ModuleNames::ModuleNames(const std::vector<StepWeight>& own,
                         const std::vector<StepWeight>& golden) {
  std::unordered_map<std::string_view, std::vector<std::string_view>> places;
  for (const StepWeight& weight : golden) {
    if (!weight.fingerprint.empty()) places[weight.fingerprint].push_back(weight.name);
  }
  std::map<std::string, std::map<std::string, int>> votes;
  std::vector<std::string_view> kept;  // names that both runs have for one content
  for (const StepWeight& weight : own) {
    const auto found = places.find(weight.fingerprint);
    if (found == places.end() || found->second.size() > 1) continue;
    if (found->second.front() == weight.name) {
      kept.push_back(weight.name);
      continue;
    }
    const auto [front, other] = Differing(weight.name, found->second.front());
    ++votes[front][other];
  }
  for (const auto& [front, others] : votes) {
    const auto best =
        std::max_element(others.begin(), others.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto same = std::count_if(kept.begin(), kept.end(),
                                    [&front = front](auto name) { return IsInside(name, front); });
    if (best->second > same) renamed_.emplace(front, best->first);
  }
}

void ModuleNames::Declare(std::vector<std::pair<std::string, std::string>> modules) {
  declared_ = std::move(modules);
}

std::string ModuleNames::Of(std::string_view path) const {
  std::string room;
  path = WithoutWrappers(path, &room);
  for (const auto& [own, golden] : declared_) {
    for (size_t end = path.size(); end != path.npos && end > 0; end = path.rfind('.', end - 1)) {
      std::vector<std::string> stars;
      if (!MatchesPattern(own, path.substr(0, end), &stars)) continue;
      std::string renamed;
      size_t star = 0;
      for (const char c : golden) {
        if (c == '*')
          renamed += star < stars.size() ? stars[star++] : "";
        else
          renamed += c;
      }
      return renamed + std::string(path.substr(end));
    }
  }
  const std::pair<const std::string, std::string>* longest = nullptr;
  for (const auto& item : renamed_) {
    if (IsInside(path, item.first) &&
        (longest == nullptr || item.first.size() > longest->first.size()))
      longest = &item;
  }
  if (longest == nullptr) return std::string(path);
  std::string_view rest = path.substr(longest->first.size());
  if (rest.starts_with('.')) rest.remove_prefix(1);
  if (longest->second.empty() || rest.empty())
    return longest->second.empty() ? std::string(rest) : longest->second;
  return longest->second + "." + std::string(rest);
}

}  // namespace msprobe::compare::layouts
