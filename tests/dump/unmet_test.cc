#include "engine/dump/session/unmet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/english.h"

namespace msprobe::dump {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A process that collected steps 0 to 3 of which all have entries, unless a test says otherwise.
class UnmetTest : public ::testing::Test {
 protected:
  std::vector<std::string> Lines(const std::vector<std::string>& calls = {}) {
    Filter filter(config_);
    if (!filter.wants_all_entries()) {
      for (const std::string& call : calls) (void)filter.WantsEntry(call);
    }
    for (const std::string& call : calls) (void)filter.WantsTensor(call);
    return EnglishOf(UnmetRequests(config_, filter, extent_));
  }

  Config config_;
  RunExtent extent_{.last_step = 3, .steps = {0, 1, 2, 3}, .collected = true, .recorded = true};
};

TEST_F(UnmetTest, NothingIsSaidOfARunThatHadEverything) {
  EXPECT_THAT(Lines({"Torch.a.0.forward"}), IsEmpty());
  config_.list = {"a", "forward"};
  config_.scope = {"Torch.a.0.forward", "Torch.b.0.forward"};
  config_.tensor_list = {"Torch"};
  config_.step = {1, 3};
  config_.rank = {0};
  extent_.rank = 0;
  extent_.ranks = 2;
  EXPECT_THAT(Lines({"Torch.a.0.forward", "Torch.b.0.forward"}), IsEmpty());
}

TEST_F(UnmetTest, NothingIsSaidWithoutAStart) {
  config_.step = {5};
  extent_ = {};
  EXPECT_THAT(Lines(), IsEmpty());
}

TEST_F(UnmetTest, RanksThatTheRunDoesNotHave) {
  config_.rank = {4, 5};
  extent_ = {.last_step = 3, .rank = 0, .ranks = 2};
  EXPECT_THAT(Lines(), ElementsAre("ranks 4, 5 were asked for, the run has ranks 0 to 1: nothing "
                                   "was recorded"));
  extent_.rank = 1;  // one process speaks for all
  EXPECT_THAT(Lines(), IsEmpty());
  extent_.rank = 0;
  config_.rank = {1, 2};
  EXPECT_THAT(Lines(), ElementsAre("rank 2 was asked for, the run has ranks 0 to 1"));
  extent_.ranks = 0;  // not known
  EXPECT_THAT(Lines(), IsEmpty());
}

TEST_F(UnmetTest, StepsBehindTheEndAndStepsWithoutEntries) {
  config_.step = {1, 2, 5};
  extent_.steps = {1};
  EXPECT_THAT(Lines(), ElementsAre("step 5 was asked for, the run ended at step 3",
                                   "step 2 was asked for, and nothing was recorded in it"));
  config_.dump_enable = true;  // it may have been false then
  EXPECT_THAT(Lines(), ElementsAre("step 5 was asked for, the run ended at step 3"));
  extent_ = {.last_step = 0};
  config_.step = {2, 3, 4, 5, 6, 7, 8};
  EXPECT_THAT(Lines(), ElementsAre("steps 2, 3, 4, 5, 6 and 2 more were asked for, the run ended "
                                   "at step 0: nothing was recorded"));
}

TEST_F(UnmetTest, AListOfWhichSomeTextsOccurInNoName) {
  config_.list = {"relu", "Relu", "conv"};
  const std::vector<std::string> calls = {"Torch.relu.0.forward", "Torch.relu.1.forward"};
  EXPECT_THAT(Lines(calls),
              ElementsAre(R"("list": no name of the 2 calls contains "Relu", "conv")"));
  config_.list = {"Relu"};
  extent_ = {.last_step = 0, .collected = true};
  EXPECT_THAT(
      Lines(calls),
      ElementsAre(R"("list": no name of the 2 calls contains "Relu": nothing was recorded)"));
}

// Of two texts that occur in the same names, none is hidden by the other.
TEST_F(UnmetTest, EachTextOfAListIsFollowed) {
  config_.list = {"relu", "leaky_relu", "forward"};
  EXPECT_THAT(Lines({"Torch.relu.0.forward", "Functional.leaky_relu.0.forward"}), IsEmpty());
}

TEST_F(UnmetTest, AScopeThatNeverBeginsOrNeverEnds) {
  config_.scope = {"Torch.b.0.forward", "Torch.c.0.forward"};
  config_.list = {"x"};
  extent_ = {.last_step = 0, .collected = true};
  EXPECT_THAT(Lines({"Torch.a.0.forward"}),
              ElementsAre(R"("scope" begins at "Torch.b.0.forward", and none of the 1 calls has )"
                          "this name: nothing was recorded"));
  config_.list = {};
  extent_.recorded = true;
  EXPECT_THAT(Lines({"Torch.c.0.forward", "Torch.b.0.forward"}),
              ElementsAre(R"("scope" ends at "Torch.c.0.forward", and no call after its beginning )"
                          "has this name: it went on to the end of the step"));
}

TEST_F(UnmetTest, TensorsThatWereAskedFor) {
  config_.tensor_list = {"conv"};
  EXPECT_THAT(Lines({"Torch.a.0.forward"}),
              ElementsAre(R"("tensor_list": no name of the recorded calls contains "conv")"));
  config_.task = Task::kTensor;  // has no such key
  config_.tensor_list = {};
  EXPECT_THAT(Lines({"Torch.a.0.forward"}), IsEmpty());
}

TEST_F(UnmetTest, NothingRanBetweenStartAndStop) {
  extent_.recorded = false;
  EXPECT_THAT(Lines(), ElementsAre("nothing was recorded: between start() and stop() no call ran "
                                   "that the configuration selects"));
  config_.task = Task::kOverflowCheck;  // records what it finds
  EXPECT_THAT(Lines(), IsEmpty());
}

}  // namespace
}  // namespace msprobe::dump
