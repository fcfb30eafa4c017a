#include "engine/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "engine/base/file.h"
#include "engine/compare/model/value_text.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::checkpoint {
namespace {

const std::string kData = MSPROBE_TEST_DATA "/checkpoints";

TEST(Checkpoint, SharesOfRanksAreJoined) {
  const Result<Checkpoint> c = Checkpoint::Open(kData + "/megatron");
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  ASSERT_EQ(c->tensors().size(), 1u);
  EXPECT_EQ(c->tensors()[0].name, "decoder.layers.0.mlp.linear_fc2.weight");
  EXPECT_EQ(c->tensors()[0].shape, (std::vector<int64_t>{2, 6}));
  const Result<formats::TensorFile> data = c->Read(c->tensors()[0]);
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  const auto* values = static_cast<const float*>(data->data);
  const float expected[] = {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5};
  for (int i = 0; i < 12; ++i) EXPECT_EQ(values[i], expected[i]) << i;
}

TEST(Checkpoint, PartsOfADistributedOneAreFound) {
  const Result<Checkpoint> c = Checkpoint::Open(kData + "/dcp");
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  ASSERT_EQ(c->tensors().size(), 1u) << "a number is no tensor";
  EXPECT_EQ(c->tensors()[0].name, "w");
  EXPECT_EQ(c->tensors()[0].shape, (std::vector<int64_t>{4}));
}

TEST(Checkpoint, AnIndexNamesFilesBesideItOnly) {
  const TemporaryFolder folder;
  const std::string index = folder.path() + "/model.safetensors.index.json";
  for (const char* text :
       {R"({"weight_map": {"a": "../a.safetensors"}})", R"({"weight_map": {"a": "/etc/passwd"}})",
        R"({"weight_map": {}})", R"({"weight_map": 3})", "{"}) {
    ASSERT_TRUE(WriteFileAtomically(index, text).ok());
    const Result<Checkpoint> c = Checkpoint::Open(folder.path());
    ASSERT_FALSE(c.ok()) << text;
    EXPECT_EQ(c.status().code(), ErrorCode::kInvalidDump) << text;
  }
}

TEST(Checkpoint, PartsThatDoNotCoverItAreRefused) {
  const Result<Checkpoint> c = Checkpoint::Open(kData + "/megatron");
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  CheckpointTensor claimed = c->tensors()[0];
  claimed.shape = {int64_t{1} << 40, 1 << 20};  // 4 EiB: refused before memory is taken
  const Result<formats::TensorFile> data = c->Read(claimed);
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.status().code(), ErrorCode::kInvalidDump);
}

TEST(Checkpoint, AnEmptyTensorMayHaveHugeExtents) {
  const TemporaryFolder folder;
  const std::string header =
      R"({"w": {"dtype": "F32", "shape": [1099511627776, 1099511627776, 0], "data_offsets": [0, 0]}})";
  std::string file(8, 0);
  file[0] = static_cast<char>(header.size());
  ASSERT_TRUE(WriteFileAtomically(folder.path() + "/w.safetensors", file + header).ok());
  const Result<Checkpoint> c = Checkpoint::Open(folder.path() + "/w.safetensors");
  ASSERT_TRUE(c.ok()) << c.status().ToString();
  EXPECT_TRUE(c->Read(c->tensors()[0]).ok());
}

TEST(Checkpoint, WhatIsNoneIsNotTakenForOne) {
  EXPECT_FALSE(LooksLikeCheckpoint(kData));
  EXPECT_FALSE(LooksLikeCheckpoint(kData + "/README.md"));
  EXPECT_FALSE(LooksLikeCheckpoint(kData + "/missing"));
  EXPECT_TRUE(LooksLikeCheckpoint(kData + "/megatron"));
  EXPECT_TRUE(LooksLikeCheckpoint(kData + "/dcp"));
  EXPECT_TRUE(LooksLikeCheckpoint(kData + "/megatron/mp_rank_00/model_optim_rng.pt"));
}

TEST(Checkpoint, AnElementIsNamedByItsPlace) {
  EXPECT_EQ(compare::IndexText(0, "[]"), "[]");
  EXPECT_EQ(compare::IndexText(3, "[4]"), "[3]");
  EXPECT_EQ(compare::IndexText(23, "[2, 3, 4]"), "[1, 2, 3]");
  EXPECT_EQ(compare::IndexText(7, "N/A"), "7");
}

}  // namespace
}  // namespace msprobe::checkpoint
