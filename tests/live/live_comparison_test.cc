#include "engine/live/live_comparison.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/live/first_rank.h"
#include "engine/live/other_program.h"
#include "tests/base/temporary_folder.h"
#include "tests/dump/dump_text.h"
#include "tests/model/entry_from_json.h"

namespace msprobe::live {
namespace {

using ::testing::HasSubstr;

// `print`: equal prints are equal bits.
std::string Tensor(int print, double max = 1, std::string_view dtype = "torch.float32") {
  return fmt::format(
      R"({{"type": "torch.Tensor", "dtype": "{}", "shape": [2, 3], "Max": {}, "Min": -1.0, )"
      R"("Mean": 0.5, "Norm": 2.0, "fingerprint": "{:016x}"}})",
      dtype, max, print);
}
std::string Call(std::string_view name, const std::string& in, const std::string& out,
                 int argument = 3) {
  return fmt::format(
      R"("{}": {{"input_args": [{}, {{"type": "int", "value": {}}}], "input_kwargs": {{}}, )"
      R"("output": [{}]}})",
      name, in, argument, out);
}

const std::string kFirst = Call("Torch.exp.0.forward", Tensor(1), Tensor(2));
const std::string kSecond = Call("Torch.log.0.forward", Tensor(2), Tensor(3));
const std::string kThird = Call("Torch.sin.0.forward", Tensor(3), Tensor(4));

// A run that has recorded some calls of step 0, and its baseline.
class Live : public ::testing::Test {
 protected:
  void Baseline(std::initializer_list<std::string> calls) {
    folder_.Write("golden/step0/rank/dump.json", dump::Ours(calls));
  }
  // Gives the calls to the comparison; the number of the call after which it answers, -1: none.
  int Record(const std::vector<std::string>& calls, std::optional<int> rank = {}) {
    live_.BeginStep({0, rank, 0}, folder_.path() + "/now/step0/rank/dump.json");
    std::string text(dump::kHeader);
    for (size_t i = 0; i < calls.size(); ++i) {
      live_.Look(test::ParseEntry(calls[i]));
      text += (i > 0 ? ",\n" : "") + calls[i];
      folder_.Write("now/step0/rank/dump.json", text + "\n");
      if (live_.Settle()) return static_cast<int>(i);
    }
    folder_.Write("now/step0/rank/dump.json", text + "\n}}\n");
    return -1;
  }

  TemporaryFolder folder_;
  LiveComparison live_{folder_.path() + "/golden"};
};

TEST_F(Live, AgreesWithEqualBits) {
  Baseline({kFirst, kSecond, kThird});
  EXPECT_EQ(Record({kFirst, kSecond, kThird}), -1);
  EXPECT_EQ(live_.EndStep(true), News::kNone);
}

// "fp" is base 64, "fingerprint" 16 hexadecimal digits.
TEST_F(Live, KnowsEqualBitsInEitherSpelling) {
  std::string first = kFirst;
  for (const auto& [hex, base64] : {std::pair("0000000000000001", "AAAAAAAAAAE"),
                                    std::pair("0000000000000002", "AAAAAAAAAAI")}) {
    const std::string member = fmt::format("\"fingerprint\": \"{}\"", hex);
    first.replace(first.find(member), member.size(), fmt::format("\"fp\": \"{}\"", base64));
  }
  Baseline({first, kSecond});
  live_.BeginStep({0, std::nullopt, 0}, folder_.path() + "/now/step0/rank/dump.json");
  EXPECT_FALSE(live_.Look(test::ParseEntry(kFirst)));
  EXPECT_FALSE(live_.Look(test::ParseEntry(kSecond)));
}

// The judge has the numbers of a baseline that was read without them.
TEST_F(Live, ParsesNumbersBeforeItJudges) {
  Baseline({kFirst});
  Result<Dump> golden = dump::ReadDump(folder_.path() + "/golden/step0/rank/dump.json", nullptr,
                                       {.parse_numbers = false});
  ASSERT_TRUE(golden.ok());
  CallCheck check(*std::move(golden));
  const auto look = [&](double max) {
    return check.Look(test::ParseEntry(Call("Torch.exp.0.forward", Tensor(1), Tensor(9, max))),
                      false);
  };
  EXPECT_EQ(look(1.0000002), CallCheck::Answer::kAgrees);
  EXPECT_EQ(look(1.5), CallCheck::Answer::kSuspect);
}

TEST_F(Live, AnswersAtTheCallThatIsWrong) {
  Baseline({kFirst, kSecond, kThird});
  EXPECT_EQ(Record({kFirst, Call("Torch.log.0.forward", Tensor(2), Tensor(9, 1.5)), kThird}), 1);
  EXPECT_EQ(live_.answer().name, "Torch.log.0.forward");
  EXPECT_EQ(live_.answer().call, 1);
  EXPECT_THAT(live_.answer().why.English(), HasSubstr("maximum of output.0 is off by 50%"));
}

TEST_F(Live, LeavesRoundingAlone) {
  Baseline({kFirst, kSecond, kThird});
  const double near = 1.0000002;
  EXPECT_EQ(Record({kFirst, Call("Torch.log.0.forward", Tensor(2), Tensor(9, near)),
                    Call("Torch.sin.0.forward", Tensor(9, near), Tensor(8, near))}),
            -1);
  EXPECT_EQ(live_.EndStep(true), News::kNone);
}

TEST_F(Live, NamesAnotherArgument) {
  Baseline({kFirst, kSecond});
  EXPECT_EQ(Record({kFirst, Call("Torch.log.0.forward", Tensor(2), Tensor(9, 1.5), 4)}), 1);
  EXPECT_THAT(live_.answer().why.English(), HasSubstr("the call itself was made differently"));
}

// The run writes signatures.json at its end.
TEST_F(Live, CallsAnArgumentByTheNameThatTheBaselineKnows) {
  Baseline({kFirst, kSecond});
  folder_.Write("golden/step0/rank/signatures.json", R"({"Torch.exp": ["x", "base"]})");
  EXPECT_EQ(Record({Call("Torch.exp.0.forward", Tensor(5, 1.5), Tensor(6, 1.5))}), 0);
  EXPECT_THAT(live_.answer().why.English(), HasSubstr("maximum of x is off by 50%"));
}

TEST_F(Live, NamesAMissingCallWhenTheStepIsOver) {
  Baseline({kFirst, Call("Torch.log.0.forward", Tensor(2), Tensor(3, 0.7)),
            Call("Torch.sin.0.forward", Tensor(3, 0.7), Tensor(4))});
  EXPECT_EQ(Record({kFirst, Call("Torch.sin.0.forward", Tensor(2), Tensor(9, 1.5))}), -1);
  EXPECT_EQ(live_.EndStep(false), News::kNone);
  EXPECT_EQ(live_.EndStep(true), News::kDiffers);
  EXPECT_EQ(live_.answer().name, "Torch.log.0.forward");
}

// Calls of other shapes may be parts of a rewrite.
TEST_F(Live, WaitsForTheWholeStepAfterAnotherShape) {
  Baseline({kFirst, kSecond});
  std::string other = Call("Torch.exp.0.forward", Tensor(5, 7), Tensor(6, 8));
  other.replace(other.find("[2, 3]"), 6, "[4, 3]");
  EXPECT_EQ(Record({other, Call("Torch.log.0.forward", Tensor(6, 8), Tensor(7, 9))}), -1);
  EXPECT_EQ(live_.EndStep(false), News::kNone);
  EXPECT_EQ(live_.EndStep(true), News::kDiffers);
  EXPECT_EQ(live_.answer().name, "Torch.exp.0.forward");
}

// Two calls in another order: the first one looks wrong until the second one has run.
TEST_F(Live, TakesBackWhatTheWholeStepDoesNotSay) {
  const std::string sin = Call("Torch.sin.0.forward", Tensor(2, 0.6), Tensor(7, 0.5));
  const std::string cos = Call("Torch.cos.0.forward", Tensor(4, 0.8), Tensor(8, 0.4));
  Baseline({Call("Torch.exp.0.forward", Tensor(1, 0.7), Tensor(2, 0.6)),
            Call("Torch.exp.1.forward", Tensor(3, 0.9), Tensor(4, 0.8)), sin, cos});
  live_.BeginStep({0, std::nullopt, 0}, folder_.path() + "/now/step0/rank/dump.json");
  const std::vector<std::string> calls = {
      Call("Torch.exp.0.forward", Tensor(3, 0.9), Tensor(4, 0.8)),
      Call("Torch.exp.1.forward", Tensor(1, 0.7), Tensor(2, 0.6)), sin, cos};
  std::string text(dump::kHeader);
  int answers = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    live_.Look(test::ParseEntry(calls[i]));
    text += (i > 0 ? ",\n" : "") + calls[i];
    folder_.Write("now/step0/rank/dump.json", text + "\n");
    answers += live_.Settle();
  }
  folder_.Write("now/step0/rank/dump.json", text + "\n}}\n");
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(live_.answer().name, "Torch.exp.0.forward");
  EXPECT_EQ(live_.EndStep(true), News::kTakenBack);
  EXPECT_TRUE(live_.on());
  EXPECT_EQ(live_.answer().name, "");
}

TEST_F(Live, BlamesNobodyForAnotherBaseline) {
  Baseline({Call("Torch.exp.0.forward", Tensor(1), Tensor(2))});
  folder_.Write("golden/step0/rank/weights.json", R"({"a": {"shape": [2]}})");
  folder_.Write("now/step0/rank/weights.json", R"({"b": {"shape": [2]}})");
  EXPECT_EQ(Record({Call("Torch.exp.0.forward", Tensor(5, 7), Tensor(6, 8))}), -1);
}

TEST_F(Live, ComparesAHalfWrittenBaselineAsFarAsItGoes) {
  folder_.Write("golden/step0/rank/dump.json",
                dump::Ours({kFirst, kSecond}, /*closed=*/false) + ",\n\"Torch.s");
  EXPECT_EQ(Record({kFirst, kSecond, kThird}), -1);
  EXPECT_EQ(live_.EndStep(true), News::kNone);
}

TEST_F(Live, GoesOnWithoutBaseline) {
  folder_.Write("golden/step7/rank/dump.json", dump::Ours({kFirst}));
  EXPECT_EQ(Record({kSecond}), -1);
  EXPECT_FALSE(live_.on());
  folder_.Write("golden/step0/rank/dump.json", "nonsense");
  LiveComparison damaged(folder_.path() + "/golden");
  damaged.BeginStep({0, std::nullopt, 0}, folder_.path() + "/now/step0/rank/dump.json");
  EXPECT_FALSE(damaged.on());
}

TEST_F(Live, ALongTrainingWithoutBaselineFillsNoLog) {
  folder_.Write("golden/step0/rank/dump.json", dump::Ours({kFirst}));
  ::testing::internal::CaptureStderr();
  for (int64_t step = 1; step < 100; ++step)
    live_.BeginStep({step, std::nullopt, 0}, fmt::format("now/step{}/rank/dump.json", step));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("step 3 is not compared with the baseline"));
  EXPECT_THAT(said, HasSubstr("more steps are not compared"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 4) << said;
}

TEST_F(Live, RefusesAnotherNumberOfProcesses) {
  folder_.Write("golden/step0/rank0/dump.json", dump::Ours({kFirst}));
  folder_.Write("golden/step0/rank1/dump.json", dump::Ours({kFirst}));
  live_.BeginStep({0, 0, 4}, "now/dump.json");
  EXPECT_FALSE(live_.on());
  LiveComparison same(folder_.path() + "/golden");
  same.BeginStep({0, 0, 2}, "now/dump.json");
  EXPECT_TRUE(same.on());
}

// Few calls have a partner: another level explains it, else it is another program.
TEST(OtherProgram, SaysThatTheLevelIsAnotherOne) {
  compare::Comparison c;
  c.target.level = Level::kMix;
  c.target.records.resize(20);
  for (int32_t i = 0; i < 20; ++i) c.pairs.push_back({.target = i});
  c.golden.level = Level::kL0;
  EXPECT_THAT(WhyAnotherProgram(c).English(),
              HasSubstr("was recorded at level L0, this run at level mix"));
  c.golden.level = Level::kMix;
  EXPECT_THAT(WhyAnotherProgram(c).English(), HasSubstr("of another program: 0 of 20 calls"));
}

TEST(OtherProgram, ABaselineThatEndsEarlyIsTheSameProgram) {
  compare::Comparison c;
  c.target.records.resize(40);
  c.golden.records.resize(18);
  for (int32_t i = 0; i < 40; ++i) c.pairs.push_back({.target = i, .golden = i < 18 ? i : -1});
  c.golden.complete = false;
  EXPECT_EQ(WhyAnotherProgram(c), "");
  c.golden.complete = true;
  EXPECT_THAT(WhyAnotherProgram(c).English(), HasSubstr("of another program: 18 of 40 calls"));
}

TEST(FirstRank, OrdersByStepAndCall) {
  const TemporaryFolder folder;
  const Answer late{.step = 3, .call = 9, .name = "b"}, early{.step = 3, .call = 2, .name = "a"};
  ASSERT_TRUE(TellOthers(folder.path(), 0, late).ok());
  EXPECT_EQ(WhoWasFirst(folder.path(), 0, late), "");
  EXPECT_EQ(WhoWasFirst(folder.path(), 1, early),
            "rank 1 is the first so far: rank 0 differs later, at step 3, b");
  ASSERT_TRUE(TellOthers(folder.path(), 1, early).ok());
  EXPECT_EQ(WhoWasFirst(folder.path(), 0, late), "rank 1 differs earlier: step 3, a");
  ForgetDivergence(folder.path(), 1);
  EXPECT_EQ(WhoWasFirst(folder.path(), 0, late), "");
}

}  // namespace
}  // namespace msprobe::live
