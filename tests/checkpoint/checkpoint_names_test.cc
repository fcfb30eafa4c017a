#include "engine/checkpoint/checkpoint_names.h"

#include <gmock/gmock.h>

#include "engine/base/messages/message.h"
#include "tests/base/english.h"

namespace msprobe::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// A checkpoint with tensors of these names and without data.
Checkpoint Named(const std::vector<std::string>& names) {
  Checkpoint checkpoint;
  CheckpointBuilder builder(&checkpoint);
  for (const std::string& name : names) builder.Add({.name = name});
  EXPECT_TRUE(builder.Finish("a test"_t).ok());
  return checkpoint;
}

TEST(CheckpointNames, PairsStandInTheGoldensOrder) {
  const PairedNames names =
      PairNames(Named({"new", "bias", "weight"}), Named({"weight", "old", "bias"}));
  EXPECT_THAT(names.pairs, ElementsAre(Pair(2, 0), Pair(-1, 1), Pair(1, 2), Pair(0, -1)));
  EXPECT_THAT(names.notes, IsEmpty());
}

TEST(CheckpointNames, AWrapperOfOneSideIsTakenAway) {
  const std::vector<std::string> plain = {"a.weight", "a.bias", "head"};
  const std::vector<std::string> wrapped = {"state_dict.model.a.weight", "state_dict.model.a.bias",
                                            "state_dict.model.head", "state_dict.step"};
  PairedNames names = PairNames(Named(wrapped), Named(plain));
  EXPECT_THAT(names.pairs, ElementsAre(Pair(0, 0), Pair(1, 1), Pair(2, 2), Pair(3, -1)));
  EXPECT_EQ(names.target[0], "a.weight") << "tables show what both are called";
  EXPECT_EQ(names.target[3], "state_dict.step");
  EXPECT_THAT(EnglishOf(names.notes),
              ElementsAre("names of the target are compared without state_dict.model. in front"));

  names = PairNames(Named(plain), Named(wrapped));
  EXPECT_THAT(names.pairs, ElementsAre(Pair(0, 0), Pair(1, 1), Pair(2, 2), Pair(-1, 3)));
  EXPECT_EQ(names.golden[2], "head");
  EXPECT_THAT(EnglishOf(names.notes),
              ElementsAre("names of the golden are compared without state_dict.model. in front"));
}

TEST(CheckpointNames, NamesThatAgreeKeepTheirWrapper) {
  const std::vector<std::string> both = {"module.a", "module.b", "a"};
  const PairedNames names = PairNames(Named(both), Named(both));
  EXPECT_THAT(names.pairs, ElementsAre(Pair(0, 0), Pair(1, 1), Pair(2, 2)));
  EXPECT_THAT(names.notes, IsEmpty());
}

TEST(CheckpointNames, TwoTensorsNeverGetOneName) {
  const PairedNames names =
      PairNames(Named({"module.a", "module.b", "module.c", "a"}), Named({"a", "b", "c"}));
  EXPECT_THAT(names.target, ElementsAre("module.a", "b", "c", "a"));
  EXPECT_THAT(names.pairs, ElementsAre(Pair(3, 0), Pair(1, 1), Pair(2, 2), Pair(0, -1)));
}

TEST(CheckpointNames, AWrapperThatGivesNoMorePairsIsKept) {
  const PairedNames names = PairNames(Named({"module.a", "b"}), Named({"a", "b"}));
  EXPECT_THAT(names.pairs, ElementsAre(Pair(-1, 0), Pair(1, 1), Pair(0, -1)));
  EXPECT_THAT(names.notes, IsEmpty());
}

TEST(CheckpointNames, AMappingComesBeforeEqualNames) {
  const ParameterMapping mapping{.names = {{"x", "b"}}, .notes = {"a note of the mapping"_t}};
  const PairedNames names = PairNames(Named({"a", "b", "x"}), Named({"a", "b", "x"}), mapping);
  EXPECT_THAT(names.pairs, ElementsAre(Pair(0, 0), Pair(2, 1), Pair(-1, 2), Pair(1, -1)))
      << "the mapped one is not paired with its namesake too";
  EXPECT_THAT(names.mapped, ElementsAre(0, 0, 1));
  EXPECT_EQ(names.target[2], "x") << "a table shows its own name";
  EXPECT_THAT(EnglishOf(names.notes), ElementsAre("a note of the mapping"));
}

TEST(CheckpointNames, AMappingMaySayANameWithTheWrapperOrWithout) {
  for (const char* wanted : {"model.layers.0.w", "layers.0.w"}) {
    const ParameterMapping mapping{.names = {{"ema.0.w", wanted}}};
    const PairedNames names = PairNames(Named({"ema.0.w", "b", "c"}),
                                        Named({"model.layers.0.w", "model.b", "model.c"}), mapping);
    EXPECT_THAT(names.pairs, ElementsAre(Pair(0, 0), Pair(1, 1), Pair(2, 2))) << wanted;
  }
}

}  // namespace
}  // namespace msprobe::checkpoint
