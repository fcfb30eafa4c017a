// Folders of torch.distributed.checkpoint: parts of tensors in *.distcp, their places in .metadata.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/values.h"

namespace msprobe::checkpoint {
namespace {

using test::Find;
using test::Floats;
using test::kCheckpoints;
using test::MustOpen;
using test::NamesOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const std::string kShards = kCheckpoints + "/dcp_shards";

// A copy of the shards of two processes, which tests damage.
class DistributedTest : public testing::Test {
 protected:
  DistributedTest() {
    for (const char* name : {".metadata", "__0_0.distcp", "__1_0.distcp"})
      Write(name, ReadWhole(kShards + "/" + name));
  }

  std::string path() const { return folder_.path() + "/dcp"; }
  std::string Write(const std::string& name, const std::string& bytes) const {
    return folder_.Write("dcp/" + name, bytes);
  }
  // Replaces text by text of the same length, so that lengths in the pickle stay right.
  void Patch(const std::string& from, const std::string& to) const {
    ASSERT_EQ(from.size(), to.size());
    std::string metadata = ReadWhole(kShards + "/.metadata");
    size_t count = 0;
    for (size_t at = 0; (at = metadata.find(from, at)) != std::string::npos; ++count)
      metadata.replace(at, to.size(), to);
    ASSERT_EQ(count, 1u) << from;
    Write(".metadata", metadata);
  }
  Status OpenError() const {
    const Result<Checkpoint> checkpoint = Checkpoint::Open(path());
    EXPECT_FALSE(checkpoint.ok());
    return checkpoint.status();
  }

  TemporaryFolder folder_;
};

TEST_F(DistributedTest, PartsOfAllProcessesAreOneTensor) {
  const Checkpoint c = MustOpen(path());
  EXPECT_EQ(c.layout(), "torch.distributed.checkpoint");
  EXPECT_THAT(NamesOf(c), UnorderedElementsAre("model.rows", "model.columns", "model.norm"))
      << "a number is no tensor";
  EXPECT_EQ(Find(c, "model.rows").shape, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(Find(c, "model.rows").parts.size(), 2u) << "two rows and one";
  EXPECT_THAT(Floats(c, "model.rows"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Floats(c, "model.columns"), ElementsAre(10, 11, 12, 13, 14, 15));
  EXPECT_EQ(Find(c, "model.norm").dtype, DType::kBFloat16);
}

TEST_F(DistributedTest, AFileOutsideOfTheFolderIsRefused) {
  folder_.Write("_0.distcp", ReadWhole(kShards + "/__0_0.distcp"));
  Patch("__0_0.distcp", "../_0.distcp");
  const Status status = OpenError();
  EXPECT_EQ(status.code(), ErrorCode::kInvalidDump);
  EXPECT_EQ(status.path(), path() + "/.metadata");
  EXPECT_THAT(status.message(), HasSubstr("the place of a tensor"));
}

TEST_F(DistributedTest, AMissingFileIsNotFound) {
  std::filesystem::remove(path() + "/__0_0.distcp");
  const Status status = OpenError();
  EXPECT_EQ(status.code(), ErrorCode::kNotFound);
  EXPECT_EQ(status.path(), path() + "/__0_0.distcp");
}

TEST_F(DistributedTest, ADamagedPartCostsItsTensorAlone) {
  std::string bytes = ReadWhole(kShards + "/__1_0.distcp");
  bytes.replace(1261, 100, 100, '\0');  // the row of the second process
  const std::string file = Write("__1_0.distcp", bytes);
  const Checkpoint c = MustOpen(path());
  const Result<formats::TensorFile> rows = c.Read(Find(c, "model.rows"));
  ASSERT_FALSE(rows.ok());
  EXPECT_EQ(rows.status().code(), ErrorCode::kInvalidDump);
  EXPECT_EQ(rows.status().path(), file);
  EXPECT_THAT(Floats(c, "model.columns"), ElementsAre(10, 11, 12, 13, 14, 15));
}

TEST_F(DistributedTest, ATruncatedFileIsNamed) {
  const std::string file =
      Write("__1_0.distcp", ReadWhole(kShards + "/__1_0.distcp").substr(0, 64));
  const Status status = OpenError();
  EXPECT_EQ(status.code(), ErrorCode::kInvalidDump);
  EXPECT_EQ(status.path(), file);
}

TEST_F(DistributedTest, APartOutsideOfItsTensorIsRefused) {
  Patch("K\x03K\x02", "K\x02K\x02");  // the rows: [3, 2] becomes [2, 2]
  const Status status = OpenError();
  EXPECT_EQ(status.code(), ErrorCode::kInvalidDump);
  EXPECT_THAT(status.message(), HasSubstr("a part inside its tensor"));
}

TEST_F(DistributedTest, PartsThatLeaveAHoleAreRefused) {
  Patch("K\x03K\x02", "K\x04K\x02");  // [4, 2], of which three rows have a place
  const Checkpoint c = MustOpen(path());
  const Result<formats::TensorFile> rows = c.Read(Find(c, "model.rows"));
  ASSERT_FALSE(rows.ok());
  EXPECT_THAT(rows.status().message(),
              HasSubstr("expected all 32 bytes of \"model.rows\", found parts of 24 bytes"));
}

TEST_F(DistributedTest, FieldsThatAreMissingAreRefused) {
  for (const char* field : {"state_dict_metadata", "storage_data", "relative_path", "offsets"}) {
    std::string other = field;
    other[0] = 'X';
    Patch(field, other);
    const Status status = OpenError();
    EXPECT_EQ(status.code(), ErrorCode::kInvalidDump) << field;
    EXPECT_EQ(status.path(), path() + "/.metadata") << field;
  }
}

TEST_F(DistributedTest, AnyByteOfTheMetadataMayBeWrong) {
  const std::string whole = ReadWhole(kShards + "/.metadata");
  const int flips[] = {0x01, 0x80, 0xff};
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ flips[at % 3]);
    Write(".metadata", damaged);
    const Result<Checkpoint> c = Checkpoint::Open(path());
    if (!c.ok()) {
      ASSERT_NE(c.status().code(), ErrorCode::kInternal) << "byte " << at;
      continue;
    }
    for (const CheckpointTensor& tensor : c->tensors()) {
      const Result<formats::TensorFile> data = c->Read(tensor);
      ASSERT_TRUE(!data.ok() || data->shape == tensor.shape) << "byte " << at;
    }
  }
}

TEST_F(DistributedTest, MetadataOfAnyLengthIsReadOrRefused) {
  const std::string whole = ReadWhole(kShards + "/.metadata");
  for (size_t size = 0; size < whole.size(); size += 7) {
    Write(".metadata", whole.substr(0, size));
    EXPECT_EQ(OpenError().code(), ErrorCode::kInvalidDump) << size << " bytes";
  }
}

}  // namespace
}  // namespace msprobe::checkpoint
