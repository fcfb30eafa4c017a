// Alignment of recorded dumps with edited ones, where the truth is known. Prints the share of wrong
// pairs and F1 of each kind of edit.
//
//   MSPROBE_EDIT_ROUNDS=500 MSPROBE_EDIT_SEED=7 MSPROBE_EDIT_DUMPS=a/step0/rank:b/step0/rank
//       build/tests/compare/compare_test --gtest_filter='AlignEdits*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/compare/align/align.h"
#include "engine/dump/read/reader.h"
#include "tests/compare/dump_edits.h"

namespace msprobe::compare {
namespace {

using test::DumpEdits;
using test::Edit;
using test::EditedDump;

struct EditScore {
  int64_t right = 0, wrong = 0, missed = 0;

  double wrong_share() const {
    const int64_t pairs = right + wrong;
    return pairs == 0 ? 0 : static_cast<double>(wrong) / static_cast<double>(pairs);
  }
  double f1() const {
    const auto found = static_cast<double>(2 * right);
    return found / (found + static_cast<double>(wrong + missed));
  }
  void Add(const EditScore& more) {
    right += more.right, wrong += more.wrong, missed += more.missed;
  }
};

std::string TextOfEnvironment(const char* name, std::string fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::move(fallback) : text;
}

std::list<Dump> RecordedDumps() {
  const std::string data = std::string(MSPROBE_RECORDED) + "/dumps/";
  std::string paths = TextOfEnvironment("MSPROBE_EDIT_DUMPS", "");
  if (paths.empty()) {
    for (const char* path :
         {"1.0.4/mix_statistics/base/step0/rank", "1.2.2/mix_statistics/base/step0/rank",
          "1.2.2/attention_mix_md5/base/step0/rank",
          "1.2.2/attention_L1_statistics/base/step0/rank", "8.3.3/mix_statistics/base/step0/rank",
          "26.2.0/mix_statistics/base/step0/proc1001", "26.2.0/L1_statistics/base/step0/proc1001",
          "frameworks/pytorch_transformer", "frameworks/pytorch_cnn",
          "frameworks/pytorch_layers"}) {
      paths += (paths.empty() ? "" : ":") + data + path;
    }
  }
  std::list<Dump> dumps;
  for (const std::string_view path : Split(paths, ':')) {
    Result<Dump> dump = dump::ReadDump(std::string(path));
    EXPECT_TRUE(dump.ok()) << dump.status().ToString();
    if (dump.ok()) dumps.push_back(std::move(dump).value());
  }
  return dumps;
}

EditScore ScoreOf(const EditedDump& target, const EditedDump& golden, bool print) {
  std::vector<int32_t> golden_of(target.dump.records.size() + golden.dump.records.size(), -1);
  for (size_t g = 0; g < golden.truth.size(); ++g) {
    const auto source = static_cast<size_t>(golden.truth[g]);
    if (source >= golden_of.size()) golden_of.resize(source + 1, -1);
    golden_of[source] = static_cast<int32_t>(g);
  }
  EditScore score;
  const std::vector<Partner> partners = AlignRecords(target.dump, golden.dump, {});
  for (size_t t = 0; t < partners.size(); ++t) {
    const int32_t expected = target.truth[t] < 0 ? -1 : golden_of[target.truth[t]];
    const int32_t found = partners[t].golden;
    if (found >= 0 && found == expected) {
      ++score.right;
      continue;
    }
    score.missed += expected >= 0;
    const auto& parts = target.parts[t];
    const bool part =
        found >= 0 && std::find(parts.begin(), parts.end(), golden.truth[found]) != parts.end();
    score.wrong += found >= 0 && !part;
    if (print && found != expected && !part) {
      const auto name = [](const Dump& dump, int32_t r) {
        return r < 0 ? std::string_view("nothing") : dump.records[r].name.view();
      };
      fmt::print("    {} with {} (confidence {:.2f}), should be {}\n",
                 name(target.dump, static_cast<int32_t>(t)), name(golden.dump, found),
                 partners[t].confidence, name(golden.dump, expected));
    }
  }
  return score;
}

class AlignEdits : public testing::TestWithParam<bool> {};

// GetParam(): whether the edits change what is computed behind them. Then no module is called again
// beside other edits: if the first of two calls of a module is edited and none of its values is as
// before, nothing tells that it is the recorded one, and not the second.
TEST_P(AlignEdits, WrongPairsAreRare) {
  const auto seed =
      static_cast<uint64_t>(std::stoull(TextOfEnvironment("MSPROBE_EDIT_SEED", "20240")));
  const int rounds = std::stoi(TextOfEnvironment("MSPROBE_EDIT_ROUNDS", "12"));
  const bool print = std::getenv("MSPROBE_EDIT_PRINT") != nullptr;
  const std::list<Dump> dumps = RecordedDumps();
  std::map<std::string, EditScore, std::less<>> scores;
  uint64_t number = 0;
  for (const Dump& dump : dumps) {
    ++number;
    for (int round = 0; round < rounds; ++round) {
      // Each kind alone, then several edits of several kinds.
      for (size_t kind = 0; kind <= std::size(test::kEdits); ++kind) {
        const uint64_t own =
            ((seed * 1000 + number) * 100000 + static_cast<uint64_t>(round)) * 10 + kind;
        DumpEdits::Random random(own);
        const EditedDump golden = DumpEdits(dump, random).Build();
        DumpEdits edits(dump, random);
        const bool several = kind == std::size(test::kEdits);
        bool made = false;
        std::string list;
        for (int edit = several ? 2 + static_cast<int>(random() % 6) : 1; edit > 0; --edit) {
          const Edit chosen = test::kEdits[several ? random() % kind : kind];
          if (several && GetParam() && chosen == Edit::kRepeat) continue;
          const bool done = edits.Make(chosen);
          made = made || done;
          if (done) list += fmt::format(" {}", NameOf(chosen));
        }
        if (!made) continue;
        const EditedDump target = edits.Build(GetParam());
        const EditScore score = ScoreOf(target, golden, false);
        scores[several ? "several" : std::string(NameOf(test::kEdits[kind]))].Add(score);
        if (print && score.wrong > 0) {
          fmt::print("  {}, round {}:{}\n", dump.path, round, list);
          ScoreOf(target, golden, true);
        }
      }
    }
  }
  EditScore all;
  for (const auto& [name, score] : scores) {
    fmt::print("  {:8} {:7} pairs right, {:4} wrong ({:.3f} %), {:5} missed, F1 {:.5f}\n", name,
               score.right, score.wrong, 100 * score.wrong_share(), score.missed, score.f1());
    EXPECT_LE(score.wrong_share(), 0.001) << name;
    all.Add(score);
  }
  fmt::print("  all      {:.4f} % wrong, F1 {:.5f}; seed {}, {} dumps, {} rounds\n",
             100 * all.wrong_share(), all.f1(), seed, dumps.size(), rounds);
  EXPECT_GT(all.right, 0);
  EXPECT_LE(all.wrong_share(), 0.001);
  EXPECT_GE(all.f1(), 0.99);
}

INSTANTIATE_TEST_SUITE_P(Values, AlignEdits, testing::Values(false, true),
                         [](const auto& values) { return values.param ? "changed" : "kept"; });

}  // namespace
}  // namespace msprobe::compare
