#include "engine/results/stated_calls.h"

#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace msprobe::results {
namespace {

using compare::Comparison;
using formats::JsonValue;

std::vector<std::string> NamesIn(const JsonValue& list) {
  std::vector<std::string> names;
  for (const JsonValue& name : list.items) {
    if (name.kind == JsonValue::Kind::kString) names.emplace_back(name.text);
  }
  return names;
}

// The pairs of a comparison by the names of their calls.
class NamedPairs {
 public:
  explicit NamedPairs(const Comparison& c) {
    for (size_t p = 0; p < c.pairs.size(); ++p) {
      const auto index = static_cast<int32_t>(p);
      if (c.pairs[p].target >= 0)
        by_name_[0].emplace(c.target.records[c.pairs[p].target].name, index);
      if (c.pairs[p].golden >= 0)
        by_name_[1].emplace(c.golden.records[c.pairs[p].golden].name, index);
    }
  }
  int32_t Find(bool target, std::string_view name) const {
    const auto& names = by_name_[target ? 0 : 1];
    const auto found = names.find(name);
    return found == names.end() ? -1 : found->second;
  }

 private:
  std::unordered_map<std::string_view, int32_t> by_name_[2];
};

}  // namespace

void StatedCalls::AddCalls(ComparisonBuilder* builder) const {
  const NamedPairs there(builder->so_far());
  std::unordered_set<std::string_view> added[2];
  const auto add = [&](std::string_view target, std::string_view golden) {
    const bool is_new =
        (target.empty() || (there.Find(true, target) < 0 && added[0].insert(target).second)) &&
        (golden.empty() || (there.Find(false, golden) < 0 && added[1].insert(golden).second));
    if (!is_new) return;
    ResultRow row{.target = {.name = target}, .golden = {.name = golden}};
    row.verdict = compare::RowVerdict::kUnknown;
    row.call_class = compare::CallClass::kUnknown;
    builder->Add(row);
  };
  for (const Region& region : regions) {
    for (const auto& [target, golden] : region.matched) add(target, golden);
    for (const std::string& name : region.target) add(name, "");
    for (const std::string& name : region.golden) add("", name);
  }
  for (const std::string& name : compiled_target) add(name, "");
  for (const std::string& name : compiled_golden) add("", name);
}

void StatedCalls::Mark(Comparison* c) const {
  if (regions.empty() && compiled_target.empty() && compiled_golden.empty()) return;
  const NamedPairs pairs(*c);
  c->rewritten.resize(c->pairs.size());
  if (!regions.empty()) c->stated_regions.resize(c->pairs.size());
  for (size_t i = 0; i < regions.size(); ++i) {
    for (const bool target : {true, false}) {
      for (const std::string& name : target ? regions[i].target : regions[i].golden) {
        const int32_t p = pairs.Find(target, name);
        if (p < 0 || c->stated_regions[p] != 0) continue;
        c->stated_regions[p] = static_cast<uint32_t>(i + 1);
        if (regions[i].rewrite) c->rewritten[p] = Comparison::kRewrite;
      }
    }
  }
  for (const bool target : {true, false}) {
    for (const std::string& name : target ? compiled_target : compiled_golden) {
      if (const int32_t p = pairs.Find(target, name); p >= 0)
        c->rewritten[p] = Comparison::kCompiled;
    }
  }
}

StatedCalls StatedCallsOf(const JsonValue& document) {
  StatedCalls stated;
  for (const JsonValue& region : document.Member("regions").items) {
    StatedCalls::Region& added = stated.regions.emplace_back();
    added.rewrite = region.Member("verdict").text == "rewrite";
    added.target = NamesIn(region.Member("target"));
    added.golden = NamesIn(region.Member("golden"));
    for (const JsonValue& pair : region.Member("matched").items) {
      if (pair.items.size() == 2)
        added.matched.emplace_back(pair.items[0].text, pair.items[1].text);
    }
  }
  const JsonValue& compiled = document.Member("compiled");
  stated.compiled_target = NamesIn(compiled.Member("target"));
  stated.compiled_golden = NamesIn(compiled.Member("golden"));
  return stated;
}

}  // namespace msprobe::results
