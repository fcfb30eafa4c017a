#include "engine/checkpoint/checkpoint.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/compare/model/value_text.h"
#include "tests/base/english.h"
#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/values.h"
#include "tests/checkpoint/written_tensors.h"

namespace msprobe::checkpoint {
namespace {

using test::Find;
using test::Floats;
using test::MustOpen;
using test::NamesOf;
using test::Safetensors;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNan;

const std::string kData = test::kCheckpoints;

Status OpenError(const std::string& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(path);
  EXPECT_FALSE(checkpoint.ok());
  return checkpoint.status();
}

TEST(Checkpoint, KeysOfContainersAreNamesWithDots) {
  const Checkpoint c = MustOpen(kData + "/nested.pt");
  EXPECT_EQ(c.layout(), "1 file");
  EXPECT_THAT(NamesOf(c), ElementsAre("model.layers.0.weight", "model.layers.0.bias", "model.emb",
                                      "model.count", "model.none", "optimizer.state.0.exp_avg"));
  EXPECT_EQ(Find(c, "model.count").dtype, DType::kInt64);
  EXPECT_THAT(Find(c, "model.count").shape, IsEmpty());
  EXPECT_THAT(Floats(c, "model.none"), IsEmpty());
  EXPECT_THAT(Floats(c, "model.layers.0.bias"), ElementsAre(0.5, IsNan()));
  // The file has the transposed layout; the elements are in logical order.
  EXPECT_EQ(Find(c, "model.emb").shape, (std::vector<int64_t>{2, 4}));
  EXPECT_THAT(Floats(c, "model.emb"), ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
}

TEST(Checkpoint, AnIndexNamesTheFilesToRead) {
  const TemporaryFolder folder;
  for (const char* name : {"pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin",
                           "pytorch_model.bin.index.json"})
    folder.Write(name, ReadWhole(kData + "/sharded/" + name));
  folder.Write("pytorch_model-old.bin", Safetensors({{"old", {1}, {1}}}));  // not in the index
  const Checkpoint c = MustOpen(folder.path());
  EXPECT_EQ(c.layout(), "pytorch_model.bin.index.json of 2 files");
  EXPECT_THAT(NamesOf(c), ElementsAre("layers.0.weight", "layers.0.bias", "count"));
  EXPECT_THAT(c.notes(), IsEmpty());
  std::filesystem::remove(folder.path() + "/pytorch_model-00002-of-00002.bin");
  const Status status = OpenError(folder.path());
  EXPECT_EQ(status.code(), ErrorCode::kNotFound);
  EXPECT_EQ(status.path(), folder.path() + "/pytorch_model-00002-of-00002.bin");
}

TEST(Checkpoint, TensorsOfAnIndexThatNoFileHasAreReported) {
  const TemporaryFolder folder;
  folder.Write("a.safetensors", Safetensors({{"a", {1}, {1}}}));
  folder.Write("model.safetensors.index.json",
               R"({"weight_map": {"a": "a.safetensors", "b": "a.safetensors"}})");
  EXPECT_THAT(EnglishOf(MustOpen(folder.path()).notes()),
              ElementsAre(HasSubstr("names 1 tensors that no file has, the first being \"b\"")));
}

// A download cache is a folder of links to files in another folder.
TEST(Checkpoint, LinksToFilesAreFollowed) {
  const TemporaryFolder folder;
  const std::string blob = folder.Write("blobs/0a1b", Safetensors({{"w", {2}, {1, 2}}}));
  const std::string link = folder.path() + "/snapshot/model.safetensors";
  std::filesystem::create_directory(folder.path() + "/snapshot");
  std::filesystem::create_symlink("../blobs/0a1b", link);
  EXPECT_THAT(Floats(MustOpen(folder.path() + "/snapshot"), "w"), ElementsAre(1, 2));
  folder.Write("snapshot/model.safetensors.index.json",
               R"({"weight_map": {"w": "model.safetensors"}})");
  EXPECT_THAT(Floats(MustOpen(folder.path() + "/snapshot"), "w"), ElementsAre(1, 2));
  std::filesystem::remove(blob);
  EXPECT_EQ(OpenError(folder.path() + "/snapshot").code(), ErrorCode::kNotFound);
  std::filesystem::remove(link);
  std::filesystem::create_symlink("model.safetensors", link);  // to itself
  EXPECT_EQ(OpenError(folder.path() + "/snapshot").code(), ErrorCode::kIo);
}

TEST(Checkpoint, NamesOfTwoFilesAreKeptApart) {
  const TemporaryFolder folder;
  folder.Write("model-1.safetensors", Safetensors({{"w", {1}, {1}}, {"a", {1}, {2}}}));
  folder.Write("model-2.safetensors", Safetensors({{"w", {1}, {3}}}));
  const Checkpoint c = MustOpen(folder.path());
  EXPECT_THAT(NamesOf(c), ElementsAre("w", "a", "model-2.safetensors.w"));
  EXPECT_THAT(Floats(c, "model-2.safetensors.w"), ElementsAre(3));
}

TEST(Checkpoint, OneNameIsOneTensor) {
  Checkpoint c;
  CheckpointBuilder builder(&c);
  for (int i = 0; i < 3; ++i) builder.Add({.name = "a.b"});
  ASSERT_TRUE(builder.Finish("a test"_t).ok());
  EXPECT_THAT(NamesOf(c), ElementsAre("a.b", "a.b#2", "a.b#3"));
}

TEST(Checkpoint, ADamagedFileBesideAWholeOneIsANote) {
  const TemporaryFolder folder;
  folder.Write("model-1.safetensors", Safetensors({{"w", {1}, {1}}}));
  const std::string whole = ReadWhole(kData + "/nested.pt");
  folder.Write("model-2.safetensors", whole.substr(0, whole.size() / 2));
  const Checkpoint c = MustOpen(folder.path());
  EXPECT_EQ(c.layout(), "1 file");
  EXPECT_THAT(EnglishOf(c.notes()), ElementsAre(HasSubstr("model-2.safetensors")));
  std::filesystem::remove(folder.path() + "/model-1.safetensors");
  EXPECT_EQ(OpenError(folder.path()).code(), ErrorCode::kInvalidDump)
      << "unless it is the only one";
}

TEST(Checkpoint, AFileWithoutATensorIsRefused) {
  const TemporaryFolder folder;
  const Status status =
      OpenError(folder.Write("model.safetensors", test::SafetensorsBytes("{}      ", "")));
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("expected a checkpoint with tensors"));
  EXPECT_FALSE(status.hint().empty());
}

TEST(Checkpoint, LengthsThatTheFileDoesNotHaveAreRefused) {
  const auto header = [](std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"w": {{"dtype": "F32", "shape": {}, "data_offsets": {}}}}})", shape,
                       offsets);
  };
  std::string beyond = Safetensors({{"w", {1}, {1}}});
  beyond[3] = 1;  // the header is 16 MiB longer
  const std::string files[] = {
      beyond,
      test::SafetensorsBytes(header("[2]", "[0, 8]"), "1234"),
      test::SafetensorsBytes(header("[2]", "[0, 4]"), "1234"),
      test::SafetensorsBytes(header("[1]", "[4, 0]"), "1234"),
      test::SafetensorsBytes(header("[-1]", "[0, 4]"), "1234"),
      test::SafetensorsBytes(header("[4294967296, 4294967296]", "[0, 4]"), "1234"),
      test::SafetensorsBytes(header("[1]", "[18446744073709551612, 0]"), "1234"),
  };
  const TemporaryFolder folder;
  for (const std::string& file : files) {
    const std::string path = folder.Write("model.safetensors", file);
    const Status status = OpenError(path);
    EXPECT_EQ(status.code(), ErrorCode::kInvalidDump) << status.ToString();
    EXPECT_EQ(status.path(), path);
  }
}

TEST(Checkpoint, AFileThatShrinksAfterItWasOpenedIsRefused) {
  const TemporaryFolder folder;
  const std::string whole = Safetensors({{"w", {4096}, std::vector<float>(4096, 1)}});
  const std::string path = folder.Write("model.safetensors", whole);
  const Checkpoint c = MustOpen(path);
  folder.Write("model.safetensors", whole.substr(0, 8192));
  const Result<formats::TensorFile> data = c.Read(c.tensors()[0]);
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.status().code(), ErrorCode::kInvalidDump);
  EXPECT_THAT(data.status().message(), HasSubstr("as when the file was opened"));
}

TEST(Checkpoint, AFlippedBitIsFoundByTheChecksum) {
  const TemporaryFolder folder;
  std::string bytes = ReadWhole(kData + "/nested.pt");
  const float row[] = {0, 1, 2, 3, 4, 5};  // model.layers.0.weight
  const size_t at = bytes.find(std::string_view(reinterpret_cast<const char*>(row), sizeof(row)));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 6] ^= 1;
  const Checkpoint c = MustOpen(folder.Write("model.pt", bytes));
  const Result<formats::TensorFile> data = c.Read(Find(c, "model.layers.0.weight"));
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.status().code(), ErrorCode::kInvalidDump);
  EXPECT_THAT(data.status().message(), HasSubstr("do not have the checksum"));
  EXPECT_TRUE(c.Read(Find(c, "model.layers.0.bias")).ok());
}

TEST(Checkpoint, TheCostOfReadingIsKnownBefore) {
  const Checkpoint whole = MustOpen(kData + "/nested.pt");
  EXPECT_EQ(Checkpoint::CostOf(Find(whole, "model.layers.0.weight")).mapped, 24u);
  EXPECT_EQ(Checkpoint::CostOf(Find(whole, "model.layers.0.weight")).made, 0u);
  const Checkpoint shares = MustOpen(kData + "/megatron");
  EXPECT_EQ(Checkpoint::CostOf(shares.tensors()[0]).mapped, 24u);  // one shard at a time
  EXPECT_EQ(Checkpoint::CostOf(shares.tensors()[0]).made, 48u);
  EXPECT_EQ(Checkpoint::CostOf(shares.tensors()[0]).all(), 72u);
}

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

TEST(Checkpoint, OtherFilesAreNotTakenForACheckpoint) {
  EXPECT_FALSE(LooksLikeCheckpoint(kData));
  EXPECT_FALSE(LooksLikeCheckpoint(kData + "/README.md"));
  EXPECT_FALSE(LooksLikeCheckpoint(kData + "/missing"));
  EXPECT_TRUE(LooksLikeCheckpoint(kData + "/megatron"));
  EXPECT_TRUE(LooksLikeCheckpoint(kData + "/dcp"));
  EXPECT_TRUE(LooksLikeCheckpoint(kData + "/megatron/mp_rank_00/model_optim_rng.pt"));
}

TEST(Checkpoint, AnElementIsNamedByItsPlace) {
  ShapePool shapes;
  const auto text = [&](int64_t index, std::string_view shape) {
    return compare::IndexText(index, shapes.Of(shape));
  };
  EXPECT_EQ(text(0, "[]"), "[]");
  EXPECT_EQ(text(3, "[4]"), "[3]");
  EXPECT_EQ(text(23, "[2, 3, 4]"), "[1, 2, 3]");
  EXPECT_EQ(text(7, "N/A"), "7");
  EXPECT_EQ(text(7, "[2, s0]"), "7");
  EXPECT_EQ(text(7, "[2, 0]"), "7") << "a damaged dump";
}

}  // namespace
}  // namespace msprobe::checkpoint
