#include "engine/checkpoint/replicas.h"

#include <gmock/gmock.h>

#include "engine/base/messages/message.h"
#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/values.h"
#include "tests/checkpoint/written_tensors.h"

namespace msprobe::checkpoint {
namespace {

using test::kCheckpoints;
using test::MustOpen;
using test::Safetensors;
using ::testing::HasSubstr;

class ReplicasTest : public testing::Test {
 protected:
  std::string Differing(const Checkpoint& checkpoint, const compare::CompareOptions& options = {}) {
    return DifferingReplicas(checkpoint, "target"_t, options, pool_).English();
  }
  // Two tensor-parallel ranks with these norms.
  Checkpoint Ranks(const std::vector<float>& first, const std::vector<float>& second) {
    const std::vector<float>* values[] = {&first, &second};
    for (const size_t rank : {0, 1}) {
      const std::vector<float>& of_rank = *values[rank];
      const std::vector<int64_t> shape = {static_cast<int64_t>(of_rank.size())};
      folder_.Write(fmt::format("mp_rank_0{}/model_optim_rng.pt", rank),
                    Safetensors({{"model.a.norm", shape, of_rank},
                                 {"model.b.norm", shape, of_rank},
                                 {"model.c.norm", {1}, {5}}}));
    }
    return MustOpen(folder_.path());
  }

  ThreadPool pool_{2};
  TemporaryFolder folder_;
};

TEST_F(ReplicasTest, EqualCopiesSayNothing) {
  EXPECT_EQ(Differing(Ranks({1, 2}, {1, 2})), "");
  EXPECT_EQ(Differing(MustOpen(kCheckpoints + "/megatron")), "");
  EXPECT_EQ(Differing(MustOpen(kCheckpoints + "/megatron_experts")), "");
}

TEST_F(ReplicasTest, TheDifferingRankIsNamed) {
  EXPECT_EQ(Differing(MustOpen(kCheckpoints + "/megatron_ranks")),
            "1 parameter of the target is not the same on all ranks that hold it: "
            "decoder.layers.1.input_layernorm.weight (mp_rank_01_001 against mp_rank_00_001: 1 of "
            "2 elements differ, 122 against 121)");
}

TEST_F(ReplicasTest, SeveralAreCountedAndTheFirstIsNamed) {
  EXPECT_THAT(Differing(Ranks({1, 2}, {1, 3})),
              HasSubstr("2 parameters of the target are not the same on all ranks that hold them, "
                        "the first: a.norm (mp_rank_01 against mp_rank_00: 1 of 2 elements"));
}

TEST_F(ReplicasTest, NaNOnOneRankIsADifference) {
  EXPECT_THAT(Differing(Ranks({1, 2}, {1, NAN})), HasSubstr("2 parameters of the target"));
  EXPECT_EQ(Differing(Ranks({1, NAN}, {1, NAN})), "");
}

TEST_F(ReplicasTest, OtherShapesAreADifference) {
  EXPECT_THAT(Differing(Ranks({1, 2}, {1, 2, 3})), HasSubstr("shape [3] against [2]"));
}

TEST_F(ReplicasTest, ACopyThatCannotBeReadIsSaid) {
  const Checkpoint c = Ranks({1, 2}, {1, 2});
  folder_.Write("mp_rank_01/model_optim_rng.pt", "short");  // after it was opened
  EXPECT_THAT(Differing(c), HasSubstr("3 parameters of the target"));
  EXPECT_THAT(Differing(c), HasSubstr("as when the file was opened, found a file of 5 bytes"));
}

TEST_F(ReplicasTest, WhatMemoryHasNoRoomForIsCounted) {
  const Checkpoint c = Ranks({1, 2}, {1, 3});
  EXPECT_EQ(
      Differing(c, {.max_pair_bytes = 8, .mapped_counts = true}),
      "2 parameters of the target could not be compared between ranks: two replicas need more "
      "memory than is allowed");
  EXPECT_THAT(Differing(c, {.max_pair_bytes = 8}), HasSubstr("2 parameters of the target are"))
      << "mapped bytes need no memory unless they count";
}

}  // namespace
}  // namespace msprobe::checkpoint
