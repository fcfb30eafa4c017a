#include "engine/compare/relations/left_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/compare/explain/classify.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/explanation.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/model/record_keys.h"
#include "engine/model/gradients_before.h"
#include "engine/model/names.h"

namespace msprobe::compare {
namespace {

// The parameter of a leaf "Optimizer.gradients_before.1.forward.output.0.fc.weight": "fc.weight".
std::string_view ParameterOf(const Record& record, const Leaf& leaf) {
  constexpr std::string_view kPlace = ".output.0.";
  const std::string_view suffix = LeafSuffix(leaf, record);
  return suffix.starts_with(kPlace) ? suffix.substr(kPlace.size()) : suffix;
}

// What a device measured is recorded although it is zeros: nothing is lost by adding to them.
bool IsNothing(const Leaf& leaf) {
  return leaf.kind != LeafKind::kTensor ||
         (leaf.has_stats && leaf.max_value == 0 && leaf.min_value == 0);
}

template <typename Items>
void MoveLeaves(const std::vector<uint32_t>& places, Items* items) {
  std::erase_if(*items, [&](const auto& item) { return places[item.leaf] == UINT32_MAX; });
  for (auto& item : *items) item.leaf = places[item.leaf];
}

// Takes out the records for which `taken(index, record)` is true, with their leaves.
template <typename Taken>
void TakeRecords(Dump* d, const Taken& taken) {
  std::vector<uint32_t> places(d->leaves.size(), UINT32_MAX);  // of the leaves that stay
  std::vector<uint32_t> kept(d->records.size(), UINT32_MAX);   // places of the records that stay
  size_t records = 0, leaves = 0;
  for (size_t i = 0; i < d->records.size(); ++i) {
    Record record = d->records[i];
    if (taken(static_cast<int32_t>(records), record)) continue;
    const uint32_t first = std::exchange(record.first_leaf, static_cast<uint32_t>(leaves));
    for (uint32_t leaf = first; leaf < first + record.leaf_count; ++leaf) {
      places[leaf] = static_cast<uint32_t>(leaves);
      d->leaves[leaves] = d->leaves[leaf];
      d->leaves[leaves++].record = static_cast<uint32_t>(records);
    }
    if (!d->micro_steps.empty()) d->micro_steps[records] = d->micro_steps[i];
    kept[i] = static_cast<uint32_t>(records);
    d->records[records++] = record;
  }
  d->records.resize(records);
  d->leaves.resize(leaves);
  if (!d->micro_steps.empty()) d->micro_steps.resize(records);
  MoveLeaves(places, &d->unwritten);
  MoveLeaves(places, &d->unreadable);
  MoveLeaves(places, &d->strides);
  MoveLeaves(places, &d->sketches);
  MoveLeaves(places, &d->rests);
  MoveLeaves(places, &d->shards);
  MoveLeaves(places, &d->joined);
  std::erase_if(d->ranks_of_records,
                [&](const auto& item) { return kept[item.first] == UINT32_MAX; });
  for (auto& item : d->ranks_of_records) item.first = kept[item.first];
  for (RecordTexts* texts : {&d->random_draws, &d->precisions}) {
    std::erase_if(*texts, [&](const RecordText& item) { return kept[item.record] == UINT32_MAX; });
    for (RecordText& item : *texts) item.record = kept[item.record];
  }
}

}  // namespace

std::string ParameterOfGradient(const Record& record, std::string_view path) {
  constexpr std::string_view kOfOptimizer = "input.gradients.";
  std::string room;
  if (IsOptimizerCall(record.api)) {
    if (!path.starts_with(kOfOptimizer)) return "";
    return std::string(WithoutWrappers(path.substr(kOfOptimizer.size()), &room));
  }
  if (record.direction != Direction::kParameterGrad) return "";
  // "Module.fc.Linear": the path of the module is between the first and the last word.
  std::string_view module = record.api;
  module.remove_prefix(std::min(module.size(), module.find('.') + 1));
  module = module.substr(0, std::min(module.size(), module.rfind('.')));
  return std::string(WithoutWrappers(fmt::format("{}.{}", module, path), &room));
}

void DropGradientsBefore(Dump* dump) {
  std::erase_if(dump->provenance,
                [](const auto& item) { return item.first == kTellsGradientsBefore; });
  if (std::any_of(dump->records.begin(), dump->records.end(),
                  [](const Record& record) { return IsGradientsBefore(record.name); }))
    TakeRecords(dump, [](int32_t, const Record& record) { return IsGradientsBefore(record.name); });
}

LeftGradients::LeftGradients(Dump* target, Dump* golden)
    : target_(Take(target)), golden_(Take(golden)) {}

const LeftGradients::Pass* LeftGradients::Side::Find(int64_t number) const {
  const auto found = std::find_if(passes.begin(), passes.end(),
                                  [&](const Pass& pass) { return pass.record.call == number; });
  return found == passes.end() ? nullptr : &*found;
}

LeftGradients::Side LeftGradients::Take(Dump* dump) {
  Side side;
  side.tells = std::any_of(dump->provenance.begin(), dump->provenance.end(), [](const auto& item) {
    return item.first == kTellsGradientsBefore && item.second == "true";
  });
  int32_t behind = 0;
  for (const Record& record : dump->records) {
    if (!IsGradientsBefore(record.name)) {
      ++behind;
      continue;
    }
    const auto leaves = dump->LeavesOf(record);
    side.passes.push_back({record, {leaves.begin(), leaves.end()}, behind});
  }
  DropGradientsBefore(dump);
  return side;
}

std::vector<LeftGradients::Difference> LeftGradients::DifferencesOf(const Comparison& c,
                                                                    int64_t number) const {
  const Pass *t = target_.Find(number), *g = golden_.Find(number);
  std::unordered_map<std::string_view, const Leaf*> of_golden;
  for (size_t i = 0; g != nullptr && i < g->leaves.size(); ++i) {
    if (!IsNothing(g->leaves[i]))
      of_golden.emplace(ParameterOf(g->record, g->leaves[i]), &g->leaves[i]);
  }
  std::vector<Difference> found;
  for (size_t i = 0; t != nullptr && i < t->leaves.size(); ++i) {
    const Leaf& leaf = t->leaves[i];
    if (IsNothing(leaf)) continue;
    const std::string_view name = ParameterOf(t->record, leaf);
    const auto other = of_golden.find(name);
    if (other == of_golden.end()) {
      found.push_back({name, &leaf, nullptr, {.reason = Reason::kNoPartner}});
      continue;
    }
    Measure m;
    JudgeLeaves(leaf, *other->second, c.mode == Mode::kChecksum ? c.mode : Mode::kStatistics,
                {.limits = Limits(c, "")}, &m);
    const bool differs =
        m.verdict == RowVerdict::kDiffers || (m.verdict == RowVerdict::kNoise && !c.exact.empty());
    if (differs) {
      m.verdict = RowVerdict::kDiffers;
      found.push_back({name, &leaf, other->second, m});
    }
    of_golden.erase(other);
  }
  // In the order of the file.
  for (size_t i = 0; g != nullptr && i < g->leaves.size(); ++i) {
    const std::string_view name = ParameterOf(g->record, g->leaves[i]);
    if (of_golden.count(name) > 0)
      found.push_back({name, nullptr, &g->leaves[i], {.reason = Reason::kNoPartner}});
  }
  return found;
}

// The sentence about the first parameter of the pass.
Message LeftGradients::Describe(const Comparison& c, int32_t pair,
                                const std::vector<Difference>& differences, int64_t number) {
  const Difference& d = differences.front();
  const size_t more = differences.size() - 1;
  Message text;
  if (d.target == nullptr || d.golden == nullptr) {
    text =
        "`{}` had a gradient before this backward pass in the {}, none in the {}: zero_grad was "
        "not called, or called elsewhere"_t(d.parameter, d.target ? "target"_t : "golden"_t,
                                            d.target ? "golden"_t : "target"_t);
  } else {
    text =
        "`{}` had another gradient before this backward pass in the target than in the golden: "
        "{}; {}"_t(
            d.parameter,
            number == 0
                ? "it was left by an earlier step"_t
                : "something changed it in one run only, between this pass and the one before it"_t,
            DescribeRow(c, static_cast<int32_t>(c.pairs[pair].first_row)));
  }
  if (more == 0) return text;
  return Message::Joined({std::move(text), more == 1 ? "so had 1 more parameter"_t
                                                     : "so had {} more parameters"_t(more)},
                         "; ");
}

// The first pair of the backward pass, at most `last`: what stands before it was made earlier.
int32_t LeftGradients::BeginOf(const Comparison& c, const Pass* target, const Pass* golden,
                               int32_t last) {
  const auto behind = [](const Pass* pass, int32_t record) {
    return pass != nullptr && record >= pass->behind;
  };
  int32_t begin = 0;
  while (begin < last && !behind(target, c.pairs[begin].target) &&
         !behind(golden, c.pairs[begin].golden))
    ++begin;
  return begin;
}

std::vector<LeftGradient> LeftGradients::Differences(const Comparison& c) const {
  std::set<int64_t> numbers;
  for (const Side* side : {&target_, &golden_}) {
    for (const Pass& pass : side->passes) numbers.insert(pass.record.call);
  }
  std::vector<LeftGradient> out;
  for (const int64_t number : numbers) {
    const Pass *t = target_.Find(number), *g = golden_.Find(number);
    if ((t == nullptr && !target_.tells) || (g == nullptr && !golden_.tells)) continue;
    for (const Difference& d : DifferencesOf(c, number)) {
      out.push_back({.pass = number,
                     .parameter = std::string(d.parameter),
                     .target = d.target,
                     .golden = d.golden,
                     .target_behind = t == nullptr ? -1 : t->behind,
                     .golden_behind = g == nullptr ? -1 : g->behind});
    }
  }
  return out;
}

void LeftGradients::Put(int64_t number, int32_t at, double confidence, Comparison* c) const {
  const std::string shown(EntryName(*c, at));
  const std::vector<Difference> differences = DifferencesOf(*c, number);
  Insert(differences, number, at, c);
  const EarlierCalls before =
      CountEarlierCalls(*c, BeginOf(*c, target_.Find(number), golden_.Find(number), at));
  const bool both = differences.front().target && differences.front().golden;
  const auto row = static_cast<int32_t>(c->pairs[at].first_row);
  FirstDivergence f = StartExplanation(*c, at, both ? row : -1);
  f.confidence = confidence * before.JudgedFactor();
  f.why = Message::Joined({DescribeEarlierCalls(*c, before), Describe(*c, at, differences, number),
                           "it shows first in {}"_t(shown)},
                          "; ");
  f.advice =
      both ? "compare what the two programs do with .grad between the backward passes: "
             "zero_grad, no_sync, clipping"_t
           : "compare where the two programs call zero_grad and backward, and which optimizer "
             "has this parameter"_t;
  c->first = std::move(f);
  // What shows it got it.
  c->classes[at + 1] = CallClass::kInherited;
  std::erase_if(c->runners_up, [&](const FirstDivergence& r) { return r.pair == at + 1; });
}

// The entry of the pass becomes pair `at`, with the rows that differ. A run in which nothing lay
// has an entry without values.
void LeftGradients::Insert(const std::vector<Difference>& differences, int64_t number, int32_t at,
                           Comparison* c) const {
  RecordPair pair{.first_row = c->pairs[at].first_row,
                  .row_count = static_cast<uint32_t>(differences.size())};
  std::vector<Row> rows(differences.size());
  for (const bool is_target : {true, false}) {
    Dump& dump = is_target ? c->target : c->golden;
    const Side &own = is_target ? target_ : golden_, &other = is_target ? golden_ : target_;
    const Pass* const pass = own.Find(number);
    Record record = pass != nullptr ? pass->record : other.Find(number)->record;
    if (pass == nullptr) record.stack = -1;
    record.first_leaf = static_cast<uint32_t>(dump.leaves.size());
    (is_target ? pair.target : pair.golden) = static_cast<int32_t>(dump.records.size());
    for (size_t i = 0; i < differences.size(); ++i) {
      const Leaf* const leaf = is_target ? differences[i].target : differences[i].golden;
      if (leaf == nullptr) continue;
      (is_target ? rows[i].target : rows[i].golden) = static_cast<int32_t>(dump.leaves.size());
      dump.leaves.push_back(*leaf);
      dump.leaves.back().record = static_cast<uint32_t>(dump.records.size());
    }
    record.leaf_count = static_cast<uint32_t>(dump.leaves.size()) - record.first_leaf;
    dump.records.push_back(record);
    if (!dump.micro_steps.empty()) dump.micro_steps.push_back(dump.micro_steps.back());
  }
  for (Row& row : rows) {
    if (row.target < 0 || row.golden < 0)
      row.match = row.golden < 0 ? Match::kTargetOnly : Match::kGoldenOnly;
  }
  const auto more = [&](auto* items, auto item) {
    if (!items->empty()) items->insert(items->begin() + pair.first_row, rows.size(), item);
  };
  c->rows.insert(c->rows.begin() + pair.first_row, rows.begin(), rows.end());
  more(&c->measures, Measure());
  for (size_t i = 0; i < rows.size(); ++i) c->measures[pair.first_row + i] = differences[i].measure;
  more(&c->notes, Message());
  more(&c->noise_dtypes, ElementType());
  if (c->coarse_row != UINT32_MAX && c->coarse_row >= pair.first_row)
    c->coarse_row += pair.row_count;
  for (auto later = c->pairs.begin() + at; later != c->pairs.end(); ++later)
    later->first_row += pair.row_count;
  c->pairs.insert(c->pairs.begin() + at, pair);
  c->classes.insert(c->classes.begin() + at, CallClass::kIntroduced);
  for (int32_t& forward : c->forward_of) forward += forward >= at;
  if (!c->forward_of.empty()) c->forward_of.insert(c->forward_of.begin() + at, -1);
  if (!c->rewritten.empty()) c->rewritten.insert(c->rewritten.begin() + at, 0);
  if (!c->stated_regions.empty()) c->stated_regions.insert(c->stated_regions.begin() + at, 0);
  for (FirstDivergence& f : c->runners_up) {
    f.pair += f.pair >= at;
    if (f.row >= static_cast<int32_t>(pair.first_row))
      f.row += static_cast<int32_t>(pair.row_count);
  }
  c->content = nullptr;
}

}  // namespace msprobe::compare
