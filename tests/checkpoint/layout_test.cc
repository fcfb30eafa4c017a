#include "engine/checkpoint/layout.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/values.h"
#include "tests/checkpoint/written_tensors.h"

namespace msprobe::checkpoint {
namespace {

using Kind = CheckpointLayout::Kind;
using test::kCheckpoints;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kModel = test::Safetensors({{"w", {2}, {1, 2}}});

Kind KindOf(const std::string& path) {
  const Result<CheckpointLayout> layout = FindLayout(path);
  EXPECT_TRUE(layout.ok()) << layout.status().ToString();
  return layout.ok() ? layout->kind : Kind::kNone;
}

TEST(Layout, EachIsToldByItsFiles) {
  EXPECT_EQ(KindOf(kCheckpoints + "/nested.pt"), Kind::kFiles);
  EXPECT_EQ(KindOf(kCheckpoints + "/sharded"), Kind::kIndexed);
  EXPECT_EQ(KindOf(kCheckpoints + "/megatron"), Kind::kMegatron);
  EXPECT_EQ(KindOf(kCheckpoints + "/megatron_ranks"), Kind::kMegatron);
  EXPECT_EQ(KindOf(kCheckpoints + "/dcp_shards"), Kind::kDistributed);
  EXPECT_EQ(KindOf(kCheckpoints), Kind::kNone);
  EXPECT_EQ(KindOf(kCheckpoints + "/README.md"), Kind::kNone);
}

TEST(Layout, ContentDecidesWhatAFileIs) {
  const TemporaryFolder folder;
  EXPECT_EQ(KindOf(folder.Write("weights", kModel)), Kind::kFiles);
  EXPECT_EQ(KindOf(folder.Write("text/model.pt", "no tensors")), Kind::kNone);
  EXPECT_EQ(KindOf(folder.Write("empty/model.safetensors", "")), Kind::kNone);
  EXPECT_EQ(KindOf(folder.path() + "/text"), Kind::kNone);
  EXPECT_EQ(KindOf(folder.Write("a.npz", "PK\x03\x04")), Kind::kNone);
}

TEST(Layout, AFolderIsItsModelFiles) {
  const TemporaryFolder folder;
  const std::string second = folder.Write("model-2.safetensors", kModel);
  const std::string first = folder.Write("model-1.safetensors", kModel);
  folder.Write("optimizer.safetensors", kModel);  // not a model by its name
  folder.Write("pytorch_model.bin", ReadWhole(kCheckpoints + "/nested.pt"));
  const Result<CheckpointLayout> layout = FindLayout(folder.path());
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  EXPECT_EQ(layout->kind, Kind::kFiles);
  EXPECT_THAT(layout->files, ElementsAre(first, second)) << "the same weights are read once";
}

TEST(Layout, ADumpIsNone) {
  for (const char* name : {"dump.json", "debug.json"}) {
    const TemporaryFolder folder;
    folder.Write("model.safetensors", kModel);
    EXPECT_EQ(KindOf(folder.path()), Kind::kFiles);
    folder.Write(name, "{}");
    EXPECT_EQ(KindOf(folder.path()), Kind::kNone) << name;
  }
}

TEST(Layout, TheLatestIterationIsTaken) {
  const TemporaryFolder folder;
  for (const char* iteration : {"iter_0000007", "iter_0000012", "release"})
    folder.Write(iteration + std::string("/mp_rank_00/model_optim_rng.pt"), kModel);
  const auto latest = [&](std::string_view text) {
    folder.Write("latest_checkpointed_iteration.txt", text);
    const Result<CheckpointLayout> layout = FindLayout(folder.path());
    EXPECT_TRUE(layout.ok()) << layout.status().ToString();
    return layout.ok() ? layout->folder.substr(folder.path().size()) : "";
  };
  EXPECT_EQ(latest("7"), "/iter_0000007");
  EXPECT_EQ(latest("12\r\n"), "/iter_0000012");
  EXPECT_EQ(latest("release"), "/release");
}

TEST(Layout, ATrackerThatNamesNoIterationIsRefused) {
  const TemporaryFolder folder;
  folder.Write("iter_0000007/mp_rank_00/model_optim_rng.pt", kModel);
  for (const std::string text :
       {"", "seven", "-7", "7 8", "7.0", "../iter_0000007", "99999999999999999999", "8"}) {
    const std::string tracker = folder.Write("latest_checkpointed_iteration.txt", text);
    const Result<CheckpointLayout> layout = FindLayout(folder.path());
    ASSERT_FALSE(layout.ok()) << text;
    EXPECT_EQ(layout.status().code(), ErrorCode::kInvalidDump) << text;
    EXPECT_EQ(layout.status().path(), tracker);
  }
}

TEST(Layout, ANamedPipeIsNotWaitedFor) {
  const TemporaryFolder folder;
  const std::string pipe = folder.path() + "/model.pt";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(KindOf(pipe), Kind::kNone);
  EXPECT_EQ(KindOf(folder.path()), Kind::kNone);
}

TEST(Layout, AMissingPathIsNotFound) {
  const TemporaryFolder folder;
  const std::string link = folder.path() + "/link.pt";
  std::filesystem::create_symlink("missing.pt", link);
  for (const std::string& path : {folder.path() + "/missing", link}) {
    const Result<CheckpointLayout> layout = FindLayout(path);
    ASSERT_FALSE(layout.ok());
    EXPECT_EQ(layout.status().code(), ErrorCode::kNotFound);
    EXPECT_THAT(layout.status().message(),
                HasSubstr(path + ": does not exist; expected a checkpoint"));
  }
}

}  // namespace
}  // namespace msprobe::checkpoint
