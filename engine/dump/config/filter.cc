#include "engine/dump/config/filter.h"

#include <algorithm>

namespace msprobe::dump {
namespace {

bool ContainsAny(std::string_view name, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
    return name.find(part) != std::string_view::npos;
  });
}

}  // namespace

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

bool Filter::WantsRank(int64_t rank) const {
  return rank < 0 || ranks_.empty() || std::binary_search(ranks_.begin(), ranks_.end(), rank);
}

bool Filter::InList(std::string_view name) const {
  return list_.empty() || ContainsAny(name, list_);
}

bool Filter::InScope(std::string_view name, bool closes_at_once) {
  if (scope_begin_.empty()) return true;
  if (name == scope_begin_) open_ = true;
  const bool inside = open_;
  if (closes_at_once && name == scope_end_) open_ = false;
  return inside;
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
  if (name == scope_end_) open_ = false;
  if (expand_modules_ && !list_.empty() && InList(name) && matching_modules_ > 0)
    --matching_modules_;
}

void Filter::NewStep() {
  open_ = false;
  matching_modules_ = 0;
  pkl_.NewStep();
}

bool Filter::WantsTensor(std::string_view name) const { return ContainsAny(name, tensor_list_); }

}  // namespace msprobe::dump
