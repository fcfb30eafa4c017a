// What must not change a verdict: both runs scaled alike, modules renamed alike, the same calls
// added to both; and the two sides swapped name the same place.
//
// All values can be scaled where no call of the programs multiplies two of them, for the product
// would be scaled twice, and what rounding explains of it is measured by its factors. Gradients can
// be scaled in every program (the loss is): each backward call is linear in them.
//
//   MSPROBE_PAIRS='a/step0/rank:b/step0/rank;c/dump.json:d/dump.json'
//       build/tests/compare/compare_test --gtest_filter='Invariants*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/compare/regions/regions.h"
#include "engine/dump/read/reader.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

struct Paths {
  std::string target, golden;
};

std::vector<Paths> RecordedPairs() {
  std::vector<Paths> pairs;
  if (const char* text = std::getenv("MSPROBE_PAIRS")) {
    for (const std::string_view pair : Split(text, ';')) {
      const auto sides = Split(pair, ':');
      if (sides.size() == 2) pairs.push_back({std::string(sides[0]), std::string(sides[1])});
    }
    return pairs;
  }
  const std::string data = std::string(MSPROBE_RECORDED) + "/dumps/";
  for (const char* path :
       {"1.0.4/L0_statistics/*/step0/rank", "1.0.4/mix_statistics/*/step0/rank",
        "1.2.2/attention_L1_statistics/*/step0/rank", "1.2.2/mix_statistics/*/step0/rank",
        "8.3.3/mix_statistics/*/step0/rank", "26.2.0/L1_statistics/*/step0/proc1001",
        "26.2.0/mix_statistics/*/step0/proc1001"}) {
    const std::string text = path;
    const size_t star = text.find('*');
    const auto side = [&](const char* name) {
      return data + text.substr(0, star) + name + text.substr(star + 1);
    };
    pairs.push_back({side("pert"), side("base")});
  }
  pairs.push_back({data + "frameworks/pytorch_layers_scaled", data + "frameworks/pytorch_layers"});
  // Recorded by two versions.
  pairs.push_back({data + "26.2.0/mix_statistics/pert/step0/proc1001",
                   data + "8.3.3/mix_statistics/base/step0/rank"});
  return pairs;
}

Dump Read(const std::string& path) {
  Result<Dump> dump = dump::ReadDump(path);
  EXPECT_TRUE(dump.ok()) << dump.status().ToString();
  return dump.ok() ? std::move(dump).value() : Dump();
}

using Change = std::function<void(Dump*)>;

Comparison CompareChanged(const Paths& paths, const Change& target, const Change& golden) {
  Dump t = Read(paths.target), g = Read(paths.golden);
  target(&t);
  golden(&g);
  return test::MustCompare(std::move(t), std::move(g), {.mode = Mode::kStatistics});
}
Comparison CompareChanged(const Paths& paths, const Change& both) {
  return CompareChanged(paths, both, both);
}

std::string_view KeepText(Dump* dump, std::string text) {
  return dump->arena.emplace_back(std::move(text));
}

// All that is decided, by indices of records and leaves in the unchanged dumps; -1: none.
struct Verdicts {
  std::map<std::pair<int32_t, int32_t>, std::pair<CallClass, bool>> calls;
  std::map<std::pair<int32_t, int32_t>, std::pair<RowVerdict, Reason>> values;
  std::pair<int32_t, int32_t> first{-1, -1};
};

// Indices in a changed dump -> in the unchanged one; -1: what was added.
using Indices = std::vector<int32_t>;

Verdicts VerdictsOf(const Comparison& c, const Indices* records = nullptr,
                    const Indices* leaves = nullptr) {
  const auto of = [](const Indices* indices, int32_t index) {
    return indices == nullptr || index < 0 ? index : (*indices)[index];
  };
  Verdicts out;
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    const std::pair pair{of(records, c.pairs[p].target),
                         of(records == nullptr ? nullptr : records + 1, c.pairs[p].golden)};
    if (pair.first < 0 && pair.second < 0) continue;
    out.calls[pair] = {c.classes[p], c.IsRewritten(static_cast<int32_t>(p))};
    if (c.first.pair == static_cast<int32_t>(p)) out.first = pair;
  }
  for (size_t r = 0; r < c.rows.size(); ++r) {
    const std::pair row{of(leaves, c.rows[r].target),
                        of(leaves == nullptr ? nullptr : leaves + 1, c.rows[r].golden)};
    if (row.first < 0 && row.second < 0) continue;
    out.values[row] = {c.measures[r].verdict, c.measures[r].reason};
  }
  return out;
}

std::string NameOfPair(const Comparison& c, std::pair<int32_t, int32_t> pair) {
  return fmt::format("{} / {}", pair.first < 0 ? "-" : c.target.records[pair.first].name.view(),
                     pair.second < 0 ? "-" : c.golden.records[pair.second].name.view());
}
std::string LeafName(const Comparison& c, std::pair<int32_t, int32_t> row) {
  return fmt::format("{} / {}", row.first < 0 ? "-" : c.target.leaves[row.first].name.view(),
                     row.second < 0 ? "-" : c.golden.leaves[row.second].name.view());
}

// What differs, the first three of each kind; "": nothing. `c`: the comparison of the unchanged
// dumps. `same_pairs`: the same calls are pairs.
std::string DifferencesBetween(const Comparison& c, const Verdicts& before, const Verdicts& after,
                               bool same_pairs = true) {
  std::string text;
  int told = 0;
  if (before.first != after.first)
    text += fmt::format("  first: {}, then {}\n", NameOfPair(c, before.first),
                        NameOfPair(c, after.first));
  for (const auto& [pair, decided] : before.calls) {
    const auto it = after.calls.find(pair);
    if (it == after.calls.end() ? !same_pairs : it->second == decided) continue;
    if (++told > 3) break;
    text += fmt::format("  call {}: class {}{}, then {}\n", NameOfPair(c, pair),
                        static_cast<int>(decided.first), decided.second ? " rewritten" : "",
                        it == after.calls.end()
                            ? "no such pair"
                            : fmt::format("{}{}", static_cast<int>(it->second.first),
                                          it->second.second ? " rewritten" : ""));
  }
  told = 0;
  for (const auto& [row, decided] : before.values) {
    const auto it = after.values.find(row);
    if (it == after.values.end() ? !same_pairs : it->second == decided) continue;
    if (++told > 3) break;
    text += fmt::format("  value {}: verdict {} reason {}, then {}\n", LeafName(c, row),
                        static_cast<int>(decided.first), static_cast<int>(decided.second),
                        it == after.values.end()
                            ? "no such row"
                            : fmt::format("{} reason {}", static_cast<int>(it->second.first),
                                          static_cast<int>(it->second.second)));
  }
  return text;
}

enum class What : uint8_t { kAll, kGradients };

bool IsScaled(const Dump& dump, const Leaf& leaf, What what) {
  const Direction direction = dump.records[leaf.record].direction;
  const bool gradient = direction == Direction::kBackward || direction == Direction::kParameterGrad;
  // ones_like, called by backward(), makes the first gradient.
  const bool first =
      dump.records[leaf.record].api == "Torch.ones_like" && leaf.slot == Slot::kOutput;
  return (what == What::kAll || gradient || first) && leaf.kind == LeafKind::kTensor &&
         leaf.has_stats && leaf.dtype.view().find("loat") != std::string_view::npos;
}

void Scale(What what, int exponent, Dump* dump) {
  const auto scale = [&](double* value, TextRef* text) {
    if (text->empty() || !std::isfinite(*value)) return;
    *value = std::ldexp(*value, exponent);
    std::string spelled;
    AppendPythonFloat(&spelled, *value);
    *text = KeepText(dump, std::move(spelled));
  };
  for (Leaf& leaf : dump->leaves) {
    if (!IsScaled(*dump, leaf, what)) continue;
    scale(&leaf.max_value, &leaf.max);
    scale(&leaf.min_value, &leaf.min);
    scale(&leaf.mean_value, &leaf.mean);
    scale(&leaf.norm_value, &leaf.norm);
  }
  for (LeafRest& rest : dump->rests) {
    if (!IsScaled(*dump, dump->leaves[rest.leaf], what)) continue;
    rest.max = std::ldexp(rest.max, exponent);
    rest.min = std::ldexp(rest.min, exponent);
    rest.norm = std::ldexp(rest.norm, exponent);
  }
}

// "Module.encoder.0.fc.Linear.forward.0" -> "Module.x_encoder.0.x_fc.Linear.forward.0"; the class
// and what torch.compile calls the module that it wraps stay.
std::string Renamed(std::string_view name, size_t behind_path) {
  std::vector<std::string_view> parts = Split(name, '.');
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool path = i > 0 && i + behind_path < parts.size() && parts[i] != "_orig_mod";
    const bool number =
        !parts[i].empty() && parts[i].find_first_not_of("0123456789") == parts[i].npos;
    out += fmt::format("{}{}{}", i > 0 ? "." : "", path && !number ? "x_" : "", parts[i]);
  }
  return out;
}

void RenameModules(Dump* dump) {
  std::map<std::string, std::string_view, std::less<>> names;  // of records
  for (Record& r : dump->records) {
    if (!r.is_module) continue;
    const std::string api(r.api.view()), name(r.name.view());
    r.api = KeepText(dump, Renamed(api, 1));
    if (name.starts_with(api))
      r.name = KeepText(dump, std::string(r.api.view()) + name.substr(api.size()));
    names[name] = r.name.view();
    for (uint32_t i = r.first_leaf; i < r.first_leaf + r.leaf_count; ++i) {
      Leaf& leaf = dump->leaves[i];
      const std::string text(leaf.name.view());
      if (text.starts_with(api))
        leaf.name = KeepText(dump, std::string(r.api.view()) + text.substr(api.size()));
    }
  }
  for (Record& r : dump->records) {
    const auto it = names.find(r.parent.view());
    if (it != names.end()) {
      r.parent = it->second;
    } else if (!r.parent.empty()) {
      r.parent = KeepText(dump, Renamed(r.parent, 3));
    }
    if (!r.module.empty()) r.module = KeepText(dump, Renamed(r.module, 1));
  }
  for (Weight& weight : dump->weights) {
    const std::string text = Renamed("Module." + std::string(weight.name), 1);
    weight.name = KeepText(dump, text.substr(7));
  }
}

// Adds a call before each of the records `before` (in rising order); `original`: see Indices.
void AddCalls(const std::vector<int32_t>& before, Dump* dump, Indices* records, Indices* leaves) {
  test::DumpBuilder builder;
  for (size_t i = 0; i < before.size(); ++i) {
    const double by = static_cast<double>(i);
    const auto numbers = test::Numbers(3 + by, -2 - by, 0.25 * by, 11 + by);
    builder.Call(fmt::format("Torch.added.{}.forward", i)).In(numbers).Out(numbers);
  }
  const Dump added = builder.Take();
  const bool fingerprints = std::any_of(dump->leaves.begin(), dump->leaves.end(),
                                        [](const Leaf& l) { return !l.fingerprint.empty(); });
  const auto kept = [&](TextRef text) { return KeepText(dump, std::string(text.view())); };
  std::vector<Record> new_records;
  std::vector<Leaf> new_leaves;
  std::vector<int32_t> new_steps;
  std::vector<uint32_t> place(dump->leaves.size());
  const auto append = [&](const Dump& from, size_t index, bool original) {
    Record record = from.records[index];
    const auto own = from.LeavesOf(from.records[index]);
    record.first_leaf = static_cast<uint32_t>(new_leaves.size());
    if (!original) record.name = kept(record.name), record.api = kept(record.api);
    for (size_t i = 0; i < own.size(); ++i) {
      Leaf leaf = own[i];
      leaf.record = static_cast<uint32_t>(new_records.size());
      const auto old = static_cast<uint32_t>(from.records[index].first_leaf + i);
      if (original) place[old] = static_cast<uint32_t>(new_leaves.size());
      if (!original) {
        for (TextRef* text : {&leaf.name, &leaf.requires_grad, &leaf.max, &leaf.min, &leaf.mean,
                              &leaf.norm, &leaf.fingerprint, &leaf.checksum, &leaf.data_name})
          *text = kept(*text);
        leaf.dtype = "torch.float32";
        leaf.shape = dump->shapes.Of("[2, 3]");
        if (dump->has_checksums) leaf.checksum = kept(leaf.max);
        if (fingerprints) leaf.fingerprint = kept(leaf.max);
      }
      leaves->push_back(original ? static_cast<int32_t>(old) : -1);
      new_leaves.push_back(leaf);
    }
    records->push_back(original ? static_cast<int32_t>(index) : -1);
    new_records.push_back(record);
  };
  for (size_t i = 0, next = 0; i < dump->records.size(); ++i) {
    for (; next < before.size() && before[next] == static_cast<int32_t>(i); ++next) {
      append(added, next, false);
      if (!dump->micro_steps.empty()) new_steps.push_back(dump->micro_steps[i]);
    }
    append(*dump, i, true);
    if (!dump->micro_steps.empty()) new_steps.push_back(dump->micro_steps[i]);
  }
  for (LeafTexts* texts : {&dump->unwritten, &dump->unreadable, &dump->strides, &dump->sketches}) {
    for (LeafText& text : *texts) text.leaf = place[text.leaf];
  }
  for (LeafRest& rest : dump->rests) rest.leaf = place[rest.leaf];
  dump->records = std::move(new_records);
  dump->leaves = std::move(new_leaves);
  dump->micro_steps = std::move(new_steps);
}

class Invariants : public testing::Test {
 protected:
  // Checks each pair, and prints how many kept their verdicts. `exceptions`: the share of the pairs
  // that need not, of the pairs that MSPROBE_PAIRS names.
  void ForEachPair(const std::function<std::string(const Paths&, const Comparison&)>& check,
                   double exceptions = 0) {
    int kept = 0, pairs = 0;
    for (const Paths& paths : RecordedPairs()) {
      const Comparison c = CompareChanged(paths, [](Dump*) {});
      const std::string text = check(paths, c);
      ++pairs;
      kept += text.empty();
      if (!text.empty()) fmt::print("  {} with {}\n{}", paths.target, paths.golden, text);
    }
    fmt::print("  {} of {} pairs keep their verdicts\n", kept, pairs);
    EXPECT_GT(pairs, 0);
    const double share = std::getenv("MSPROBE_PAIRS") != nullptr ? exceptions : 0;
    EXPECT_GE(kept, (1 - share) * pairs);
  }
};

std::string DifferencesScaled(What what, const Paths& paths, const Comparison& c) {
  std::string text;
  for (const int exponent : {-9, 5}) {
    const Comparison scaled =
        CompareChanged(paths, [&](Dump* dump) { Scale(what, exponent, dump); });
    const std::string found = DifferencesBetween(c, VerdictsOf(c), VerdictsOf(scaled));
    if (!found.empty()) text += fmt::format("times 2^{}:\n{}", exponent, found);
  }
  return text;
}

TEST_F(Invariants, AllValuesScaled) {
  if (std::getenv("MSPROBE_PAIRS") != nullptr) GTEST_SKIP() << "the pairs may multiply two values";
  ForEachPair([](const Paths& paths, const Comparison& c) {
    return DifferencesScaled(What::kAll, paths, c);
  });
}

TEST_F(Invariants, GradientsScaled) {
  ForEachPair([](const Paths& paths, const Comparison& c) {
    return DifferencesScaled(What::kGradients, paths, c);
  });
}

TEST_F(Invariants, ModulesRenamed) {
  ForEachPair([](const Paths& paths, const Comparison& c) {
    const Comparison renamed = CompareChanged(paths, RenameModules);
    return DifferencesBetween(c, VerdictsOf(c), VerdictsOf(renamed));
  });
}

TEST_F(Invariants, EqualCallsAdded) {
  ForEachPair([](const Paths& paths, const Comparison& c) {
    std::vector<int32_t> before[2];
    int32_t last = -1;
    for (size_t p = 0; p < c.pairs.size(); p += 5) {
      const RecordPair& pair = c.pairs[p];
      if (!pair.matched() || pair.golden <= last) continue;
      before[0].push_back(pair.target);
      before[1].push_back(last = pair.golden);
    }
    Indices records[2], leaves[2];
    const auto add = [&](int side) {
      return [&, side](Dump* dump) { AddCalls(before[side], dump, &records[side], &leaves[side]); };
    };
    const Comparison more = CompareChanged(paths, add(0), add(1));
    // Equal calls may tell which of several calls that look alike is the partner of another one.
    const bool same_pairs = std::getenv("MSPROBE_PAIRS") == nullptr;
    return DifferencesBetween(c, VerdictsOf(c), VerdictsOf(more, records, leaves), same_pairs);
  });
}

// The first place is the first one in the order of the target. So where the runs make their calls
// in another order, or an argument comes from a call that one of them does not make, the sides may
// be told by two calls of one place: one recorded pair in a hundred.
TEST_F(Invariants, SidesSwappedNameTheSamePlace) {
  ForEachPair(
      [](const Paths& paths, const Comparison& c) {
        const Comparison swapped = CompareChanged({paths.golden, paths.target}, [](Dump*) {});
        const auto first = VerdictsOf(c).first, other = VerdictsOf(swapped).first;
        if (other == std::pair(first.second, first.first)) return std::string();
        // The first call of a region that is wrong need not be that of the other side.
        for (const Region& region : RegionsOf(c)) {
          for (const int32_t p : region.pairs) {
            if (region.wrong && c.pairs[p].golden == other.first &&
                c.pairs[p].target == other.second)
              return std::string();
          }
        }
        return fmt::format("  {}, then {}\n", NameOfPair(c, first),
                           NameOfPair(c, {other.second, other.first}));
      },
      0.02);
}

}  // namespace
}  // namespace msprobe::compare
