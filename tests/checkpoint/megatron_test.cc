// Megatron's folders of ranks: joined, renamed, renumbered, or refused.
#include <gmock/gmock.h>

#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/values.h"
#include "tests/checkpoint/written_tensors.h"

namespace msprobe::checkpoint {
namespace {

using test::Find;
using test::Floats;
using test::kCheckpoints;
using test::MustOpen;
using test::NamesOf;
using test::Safetensors;
using test::WrittenTensor;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

void WriteRank(const TemporaryFolder& folder, const std::string& rank,
               const std::vector<WrittenTensor>& tensors) {
  folder.Write(rank + "/model_optim_rng.pt", Safetensors(tensors));
}

Status MegatronError(const std::string& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(path);
  EXPECT_FALSE(checkpoint.ok());
  return checkpoint.status();
}

TEST(Megatron, TensorAndPipelineRanksAreOneModel) {
  const Checkpoint c = MustOpen(kCheckpoints + "/megatron_ranks");
  EXPECT_EQ(c.layout(), "Megatron, 4 ranks");
  // Layer 0 of stage 1 is layer 1 of the model; older names are replaced by the present ones.
  EXPECT_THAT(
      NamesOf(c),
      UnorderedElementsAre(
          "decoder.layers.0.self_attention.linear_qkv.weight",
          "decoder.layers.0.mlp.linear_fc2.weight", "decoder.layers.0.input_layernorm.weight",
          "decoder.layers.1.self_attention.linear_qkv.weight",
          "decoder.layers.1.mlp.linear_fc2.weight", "decoder.layers.1.input_layernorm.weight",
          "mp_rank_00_000.optimizer.exp_avg", "mp_rank_00_001.optimizer.exp_avg",
          "mp_rank_01_000.optimizer.exp_avg", "mp_rank_01_001.optimizer.exp_avg"));
  // The first tensor is sharded by rows, the second by columns.
  EXPECT_EQ(Find(c, "decoder.layers.0.self_attention.linear_qkv.weight").shape,
            (std::vector<int64_t>{4, 2}));
  EXPECT_THAT(Floats(c, "decoder.layers.0.self_attention.linear_qkv.weight"),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(Find(c, "decoder.layers.1.mlp.linear_fc2.weight").shape, (std::vector<int64_t>{2, 4}));
  // The second shard of this tensor is column-major in its file.
  EXPECT_THAT(Floats(c, "decoder.layers.1.mlp.linear_fc2.weight"),
              ElementsAre(110, 111, 112, 113, 114, 115, 116, 117));
}

TEST(Megatron, EqualTensorsOfTensorRanksAreOnePartAndCopies) {
  const Checkpoint c = MustOpen(kCheckpoints + "/megatron_ranks");
  const CheckpointTensor& norm = Find(c, "decoder.layers.1.input_layernorm.weight");
  ASSERT_EQ(norm.parts.size(), 1u);
  ASSERT_EQ(norm.replicas.size(), 1u);
  EXPECT_THAT(*norm.parts[0].piece.file, HasSubstr("mp_rank_00_001"));
  EXPECT_THAT(*norm.replicas[0].piece.file, HasSubstr("mp_rank_01_001"));
  EXPECT_EQ(norm.replicas[0].part, 0u);
  EXPECT_THAT(Floats(c, norm.name), ElementsAre(120, 121));
}

TEST(Megatron, TensorsOutsideTheModelAreNoParameters) {
  const Checkpoint c = MustOpen(kCheckpoints + "/megatron_ranks");
  EXPECT_FALSE(Find(c, "mp_rank_00_000.optimizer.exp_avg").is_parameter);
  EXPECT_TRUE(Find(c, "decoder.layers.0.input_layernorm.weight").is_parameter);
}

TEST(Megatron, ExpertsAndVirtualStagesAreNumberedThrough) {
  // The second number of mp_rank_00_001 is the expert rank: there is one pipeline stage.
  const Checkpoint c = MustOpen(kCheckpoints + "/megatron_experts");
  const auto expert = [](int layer, int number) {
    return fmt::format("decoder.layers.{}.mlp.experts.local_experts.{}.linear_fc1.weight", layer,
                       number);
  };
  EXPECT_THAT(NamesOf(c),
              UnorderedElementsAre(expert(0, 0), expert(0, 1), expert(1, 0), expert(1, 1),
                                   "decoder.layers.0.input_layernorm.weight",
                                   "decoder.layers.1.input_layernorm.weight"));
  EXPECT_THAT(Floats(c, expert(0, 1)), ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(Floats(c, expert(1, 0)), ElementsAre(100, 101, 102, 103));
  // Both expert ranks hold the norm.
  EXPECT_EQ(Find(c, "decoder.layers.1.input_layernorm.weight").replicas.size(), 1u);
}

TEST(Megatron, ExpertRanksHoldCopiesOfTheSameShare) {
  const TemporaryFolder folder;
  for (const int tensor : {0, 1}) {
    for (const int expert : {0, 1}) {
      WriteRank(folder, fmt::format("mp_rank_{:02}_000_{:03}", tensor, expert),
                {{"model.decoder.linear_qkv.weight", {1, 2}, {tensor * 10.0f, 1}}});
    }
  }
  const Checkpoint c = MustOpen(folder.path());
  const CheckpointTensor& qkv = Find(c, "decoder.linear_qkv.weight");
  EXPECT_EQ(qkv.shape, (std::vector<int64_t>{2, 2}));
  ASSERT_EQ(qkv.replicas.size(), 2u);
  for (const CheckpointTensor::Replica& replica : qkv.replicas) {
    const std::string& part = *qkv.parts[replica.part].piece.file;
    EXPECT_EQ(replica.piece.file->substr(0, part.rfind("_000/")),
              part.substr(0, part.rfind("_000/")))
        << "a copy belongs to the part of its own tensor rank";
  }
}

TEST(Megatron, ARankWithoutItsShareIsNotFound) {
  const TemporaryFolder folder;
  WriteRank(folder, "mp_rank_00", {{"model.w", {1}, {1}}});
  folder.Write("mp_rank_01/other.txt", "");
  const Status status = MegatronError(folder.path());
  EXPECT_EQ(status.code(), ErrorCode::kNotFound);
  EXPECT_EQ(status.path(), folder.path() + "/mp_rank_01/model_optim_rng.pt");
}

TEST(Megatron, NamesOfRanksAreUpToThreeNumbers) {
  for (const std::string name :
       {"mp_rank_", "mp_rank_x", "mp_rank_-1", "mp_rank_00_", "mp_rank_00_000_000_000",
        "mp_rank_1000001", "mp_rank_99999999999999999999"}) {
    const TemporaryFolder folder;
    WriteRank(folder, "mp_rank_00", {{"model.w", {1}, {1}}});
    WriteRank(folder, name, {{"model.w", {1}, {1}}});
    const Status status = MegatronError(folder.path());
    EXPECT_EQ(status.code(), ErrorCode::kInvalidDump) << name;
    EXPECT_EQ(status.path(), folder.path() + "/" + name);
  }
}

TEST(Megatron, SharesOfOtherShapesAreRefused) {
  const TemporaryFolder folder;
  WriteRank(folder, "mp_rank_00", {{"model.linear_fc2.weight", {2, 1}, {1, 2}}});
  WriteRank(folder, "mp_rank_01", {{"model.linear_fc2.weight", {1, 1}, {3}}});
  const Status status = MegatronError(folder.path());
  EXPECT_EQ(status.code(), ErrorCode::kInvalidDump);
  EXPECT_THAT(status.message(), HasSubstr("mp_rank_01/model_optim_rng.pt"));
  EXPECT_THAT(status.message(), HasSubstr("expected a share of \"linear_fc2.weight\" as float32 "
                                          "[2, 1], found float32 [1, 1]"));
}

TEST(Megatron, SharesThatAreTooLongTogetherAreRefused) {
  const TemporaryFolder folder;
  for (const char* rank : {"mp_rank_00", "mp_rank_01"}) {
    WriteRank(folder, rank, {{"model.linear_qkv.weight", {int64_t{1} << 62, 0}, {}}});
  }
  const Status status = MegatronError(folder.path());
  EXPECT_EQ(status.code(), ErrorCode::kInvalidDump);
  EXPECT_THAT(status.message(), HasSubstr("less than 2^63 together"));
}

TEST(Megatron, ANumberThatIsNoLayerIsLeftAsItIs) {
  const TemporaryFolder folder;
  const std::string huge = "decoder.layers.99999999999999999999.w",
                    many = "decoder.layers.1000001.w", word = "decoder.layers.x.w";
  for (const char* rank : {"mp_rank_00_000", "mp_rank_00_001"})
    WriteRank(
        folder, rank,
        {{"model." + huge, {1}, {1}}, {"model." + many, {1}, {1}}, {"model." + word, {1}, {1}}});
  EXPECT_THAT(NamesOf(MustOpen(folder.path())), UnorderedElementsAre(huge, many, word));
}

TEST(Megatron, ADamagedShareIsNamed) {
  const TemporaryFolder folder;
  WriteRank(folder, "mp_rank_00", {{"model.w", {1}, {1}}});
  const std::string whole = ReadWhole(kCheckpoints + "/megatron/mp_rank_01/model_optim_rng.pt");
  const std::string path =
      folder.Write("mp_rank_01/model_optim_rng.pt", whole.substr(0, whole.size() / 2));
  const Status status = MegatronError(folder.path());
  EXPECT_EQ(status.code(), ErrorCode::kInvalidDump);
  EXPECT_EQ(status.path(), path);
}

}  // namespace
}  // namespace msprobe::checkpoint
