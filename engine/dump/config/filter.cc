#include "engine/dump/config/filter.h"

#include <algorithm>

namespace msprobe::dump {

bool NameParts::OccurIn(std::string_view name) {
  bool found = false;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (found && occurred_[i]) continue;
    if (name.find(parts_[i]) == std::string_view::npos) continue;
    found = true;
    occurred_[i] = 1;
  }
  return found;
}

std::vector<std::string> NameParts::Missing() const {
  std::vector<std::string> missing;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (!occurred_[i]) missing.push_back(parts_[i]);
  }
  return missing;
}

Filter::Filter(const Config& config)
    : data_mode(config.data_mode),
      steps_(config.step),
      ranks_(config.rank),
      list_(config.list),
      tensor_list_(config.tensor_list),
      expand_modules_(config.level == Level::kMix) {
  if (config.pkl) pkl_ = PklScope(*config.pkl);
  if (config.scope.size() == 2) {
    scope_begin_ = config.scope[0];
    scope_end_ = config.scope[1];
  }
}

bool Filter::WantsStep(int64_t step) const {
  return steps_.empty() || std::binary_search(steps_.begin(), steps_.end(), step);
}

std::vector<int64_t> Filter::StepsAfter(int64_t step) const {
  return {std::upper_bound(steps_.begin(), steps_.end(), step), steps_.end()};
}

std::vector<int64_t> Filter::StepsUpTo(int64_t step) const {
  return {steps_.begin(), std::upper_bound(steps_.begin(), steps_.end(), step)};
}

bool Filter::WantsRank(int64_t rank) const {
  return rank < 0 || ranks_.empty() || std::binary_search(ranks_.begin(), ranks_.end(), rank);
}

bool Filter::InScope(std::string_view name, bool closes_at_once) {
  ++met_.calls;
  if (scope_begin_.empty()) return ++met_.in_scope, true;
  if (name == scope_begin_) open_ = met_.began = true;
  const bool inside = open_;
  met_.in_scope += inside;
  if (closes_at_once && name == scope_end_) CloseScope();
  return inside;
}

void Filter::CloseScope() {
  met_.ended |= open_;
  open_ = false;
}

bool Filter::WantsEntry(std::string_view name) {
  if (!pkl_.wants_all()) return pkl_.Wants(name);
  const bool in_scope = InScope(name, /*closes_at_once=*/true);
  return in_scope && (matching_modules_ > 0 || InList(name));
}

bool Filter::EnterModule(std::string_view name) {
  if (!pkl_.wants_all()) return pkl_.Wants(name);
  const bool in_scope = InScope(name, /*closes_at_once=*/false);
  const bool wanted = in_scope && (matching_modules_ > 0 || InList(name));
  if (expand_modules_ && !list_.empty() && InList(name)) ++matching_modules_;
  return wanted;
}

void Filter::LeaveModule(std::string_view name) {
  if (name == scope_end_) CloseScope();
  if (expand_modules_ && !list_.empty() && InList(name) && matching_modules_ > 0)
    --matching_modules_;
}

void Filter::NewStep() {
  open_ = false;
  matching_modules_ = 0;
  pkl_.NewStep();
}

}  // namespace msprobe::dump
