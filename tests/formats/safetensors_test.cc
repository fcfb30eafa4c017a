#include "engine/formats/tensors/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/formats/archive/byte_order.h"
#include "tests/formats/golden.h"

namespace msprobe::formats {
namespace {

using testing::HasSubstr;

std::string WrittenSafetensors(const std::string& header, const std::string& data) {
  std::string bytes;
  AppendLittle<uint64_t>(&bytes, header.size());
  const std::string path = TestFolder() + "/t.safetensors";
  EXPECT_TRUE(WriteFileAtomically(path, bytes + header + data).ok());
  return path;
}

// expected.txt has the tensors that the format's own library reads.
TEST(Safetensors, EveryTensorAsItsOwnLibraryReadsIt) {
  std::ifstream in(DataPath("safetensors/expected.txt"));
  int checked = 0;
  for (std::string line; std::getline(in, line); ++checked) {
    SCOPED_TRACE(line);
    const std::vector<std::string_view> cells = Split(line, '\t');
    ASSERT_EQ(cells.size(), 5u);
    const auto file = SafetensorsFile::Open(DataPath("safetensors/" + std::string(cells[0])));
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    const SafetensorsEntry* entry = file->Find(cells[1]);
    ASSERT_NE(entry, nullptr);
    const Result<TensorFile> tensor = file->Read(*entry);
    ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
    EXPECT_EQ(DTypeShortName(tensor->dtype), cells[2]);
    EXPECT_EQ(ShapeText(tensor->shape), cells[3]);
    EXPECT_EQ(ElementsCrc(tensor->view()), cells[4]);
    EXPECT_EQ(file->Find("no such tensor"), nullptr);
  }
  EXPECT_EQ(checked, 20);
}

TEST(Safetensors, MetadataAndOrder) {
  const auto file = SafetensorsFile::Open(DataPath("safetensors/dtypes.safetensors"));
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(file->metadata(), testing::ElementsAre(testing::Pair("format", "pt")));
  for (size_t i = 1; i < file->entries().size(); ++i)
    EXPECT_LE(file->entries()[i - 1].offset, file->entries()[i].offset);
}

TEST(Safetensors, RefusesInconsistentFiles) {
  const std::pair<const char*, const char*> cases[] = {
      {"overlap", "an overlap"},
      {"hole", "a hole"},
      {"outside", "expected 16 bytes of tensors, found 8"},
      {"trailing", "expected 4 bytes of tensors, found 12"},
      {"backwards", "data_offsets [4, 0]"},
      {"size", "expected 8 bytes for"},
      {"overflow", "less than 2^63"},
      {"negative", "0 or more"},
      {"dtype", "dtype \"F37\""},
      {"six_bits", "dtype \"F6_E2M3\""},
      {"twice", "\"a\" twice"},
      {"no_shape", "not all three"},
      {"truncated_header", "a header of 400 bytes"},
      {"huge_header", "100000001"},
      {"metadata", "string"},
      {"array", "'{'"},
      {"behind", "blanks"},
  };
  for (const auto& [name, text] : cases) {
    const std::string path = DataPath("safetensors/refused/" + std::string(name) + ".safetensors");
    const Status status = SafetensorsFile::Open(path).status();
    EXPECT_THAT(status.message(), HasSubstr(text)) << name;
    EXPECT_THAT(status.message(), HasSubstr(path));
  }
}

TEST(Safetensors, DataThatAreNotAlignedAreCopied) {
  const std::string path =
      WrittenSafetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                         R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                         std::string("\1\0\0\x80\x3f", 5));
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const Result<TensorFile> tensor = file->Read(*file->Find("b"));
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(*static_cast<const float*>(tensor->data), 1.0f);
}

TEST(Safetensors, FourBitElementsAreCountedInBytes) {
  const auto file = SafetensorsFile::Open(
      WrittenSafetensors(R"({"a":{"dtype":"F4","shape":[2,4],"data_offsets":[0,4]}})", "abcd"));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->entries()[0].shape, (std::vector<int64_t>{2, 2}));
}

// The first byte of a file with a header of 128 bytes is also the first byte of a pickle.
TEST(Safetensors, ToldFromAPickle) {
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  header.resize(128, ' ');
  const Result<TensorFile> tensor = ReadTensorFile(WrittenSafetensors(header, "x"));
  ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
  EXPECT_EQ(tensor->dtype, DType::kUInt8);
}

TEST(Safetensors, OneTensorIsAsked) {
  const Status status = ReadTensorFile(DataPath("safetensors/dtypes.safetensors")).status();
  EXPECT_THAT(status.message(), HasSubstr("expected one tensor, found 19"));
  EXPECT_TRUE(ReadTensorFile(DataPath("safetensors/one.safetensors")).ok());
}

}  // namespace
}  // namespace msprobe::formats
