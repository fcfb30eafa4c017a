#include "engine/dump/tensors/tensor_folder.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "engine/dump/read/reader.h"
#include "engine/dump/tensors/tensor_data.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kTestData = std::string(MSPROBE_TEST_DATA) + "/";

std::vector<std::string> NamesOfFolder(const Dump& dump) {
  std::vector<std::string> names;
  for (const Record& record : dump.records) names.emplace_back(record.name);
  return names;
}

TEST(TensorFolder, NamesOrderAndWhatIsLeftOut) {
  const TemporaryFolder folder;
  const std::string npy = ReadWhole(kTestData + "npy/f4_c.npy");
  for (const char* name : {"a10.npy", "a2.npy", "b/c.npy", "b/c.pt", "no_extension"})
    folder.Write(name, npy);
  folder.Write("notes.txt", "text");
  folder.Write("empty.npy", "");
  const Result<Dump> dump = ReadDump(folder.path());
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_EQ(dump->dialect, Dialect::kTensors);
  EXPECT_THAT(NamesOfFolder(*dump),
              ElementsAre("a2", "a10", "b/c.npy", "b/c.pt", "empty", "no_extension"));
  EXPECT_THAT(dump->note.English(),
              HasSubstr("1 file is no tensor and left out, the first: notes.txt"));
  EXPECT_EQ(dump->leaves[0].shape, "[2, 3]");
  EXPECT_EQ(dump->leaves[0].dtype, "torch.float32");
  EXPECT_TRUE(ReadTensorData(*dump, dump->leaves[2]).ok());
  EXPECT_THAT(ReadTensorData(*dump, dump->leaves[4]).status().message(),
              HasSubstr("an empty file"));
}

TEST(TensorFolder, AFileOfSeveralTensors) {
  const std::string path = kTestData + "safetensors/dtypes.safetensors";
  const Result<Dump> dump = ReadDump(path);
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_EQ(dump->records.size(), 19u);
  EXPECT_EQ(dump->records[0].name, "u64");
  for (const Leaf& leaf : dump->leaves) {
    const Result<formats::TensorFile> tensor = ReadTensorData(*dump, leaf);
    ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
    EXPECT_EQ(ShapeText(tensor->shape), leaf.shape);
  }
  const TemporaryFolder folder;
  folder.Write("model.safetensors", ReadWhole(path));
  EXPECT_THAT(NamesOfFolder(*ReadDump(folder.path())), testing::Contains("model/bf16"));
}

TEST(TensorFolder, TheRecordOfAFileOfOneTensorHasNoNameOfItsOwn) {
  const Result<Dump> dump = ReadDump(kTestData + "npy/f4_c.npy");
  ASSERT_TRUE(dump.ok());
  EXPECT_EQ(dump->records[0].name, "f4_c");
  EXPECT_EQ(dump->records[0].api, "tensor");
}

// No file outside the folder of a dump is opened; only the row of a bad name is lost.
TEST(TensorData, LinksDevicesAndWaysOutAreRefused) {
  const TemporaryFolder folder;
  const std::string npy = ReadWhole(kTestData + "npy/f4_c.npy");
  folder.Write("tensors/fine.npy", npy);
  folder.Write("secret.npy", npy);
  const std::filesystem::path tensors = folder.path() + "/tensors";
  std::filesystem::create_symlink("../secret.npy", tensors / "link.npy");
  std::filesystem::create_directory_symlink("..", tensors / "up");
  std::filesystem::create_symlink("/dev/zero", tensors / "zero.npy");
  Dump dump;
  dump.path = "dump.json";
  dump.tensor_folder = tensors.string();
  const auto message = [&](std::string_view name) {
    Leaf leaf;
    leaf.data_name = name;
    return ReadTensorData(dump, leaf).status().message();
  };
  EXPECT_EQ(message("fine.npy"), Status::Ok().message());
  EXPECT_THAT(message("link.npy"), HasSubstr("\"link.npy\", a symbolic link"));
  EXPECT_THAT(message("zero.npy"), HasSubstr("a symbolic link"));
  EXPECT_THAT(message("up/secret.npy"), HasSubstr("a symbolic link"));
  EXPECT_THAT(message("../secret.npy"), HasSubstr("which leads out of it"));
  EXPECT_THAT(message("./fine.npy"), HasSubstr("which leads out of it"));
  EXPECT_THAT(message("a//b"), HasSubstr("does not exist"));
  EXPECT_THAT(message("/etc/passwd"), HasSubstr("not a file name"));
  EXPECT_THAT(message(std::string_view("fine.npy\0", 9)), HasSubstr("not a file name"));
  EXPECT_THAT(message("fine.npy/x"), HasSubstr("a file instead of a folder"));
  dump.tensor_folder = "/dev";
  EXPECT_THAT(message("zero"), HasSubstr("a device, pipe or socket"));
  EXPECT_THAT(message("fd"), testing::AnyOf(HasSubstr("a symbolic link"), HasSubstr("a folder")));
}

TEST(ReadDump, ALinkInPlaceOfAPartOfTheDump) {
  const TemporaryFolder folder;
  const std::string entry = R"("Torch.f.0.forward": {"input_args": [], "output": []})";
  folder.Write("real/dump.json", R"({"task": "tensor", "data": {)" + entry + "}}");
  folder.Write("other/stack.json", "{}");
  std::filesystem::create_symlink("../other/stack.json", folder.path() + "/real/stack.json");
  std::filesystem::create_directory_symlink("../other", folder.path() + "/real/dump_tensor_data");
  const Result<Dump> dump = ReadDump(folder.path() + "/real");
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_EQ(dump->tensor_folder, "");
  EXPECT_THAT(dump->note.English(), HasSubstr("dump_tensor_data is a symbolic link"));
  EXPECT_THAT(dump->note.English(), HasSubstr("\"stack.json\", a symbolic link"));
  std::filesystem::create_directory(folder.path() + "/linked");
  std::filesystem::create_symlink("../real/dump.json", folder.path() + "/linked/dump.json");
  EXPECT_THAT(ReadDump(folder.path() + "/linked").status().message(),
              HasSubstr("dump.json is a symbolic link"));
  EXPECT_TRUE(ReadDump(folder.path() + "/linked/dump.json").ok());  // named by the user
}

}  // namespace
}  // namespace msprobe::dump
