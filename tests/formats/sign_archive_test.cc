#include "engine/formats/tensors/sign_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "tests/base/temporary_folder.h"

namespace msprobe::formats {
namespace {

using ::testing::HasSubstr;

class SignArchiveTest : public ::testing::Test {
 protected:
  void Write(const std::vector<std::pair<std::string, std::vector<uint8_t>>>& arrays) {
    Result<SignWriter> out = SignWriter::Create(path_);
    ASSERT_TRUE(out.ok());
    for (const auto& [name, elements] : arrays) ASSERT_TRUE(out->Add(name, elements).ok());
    ASSERT_TRUE(out->Finish().ok());
  }
  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void WriteBytes(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/signs.npz";
};

TEST(PackSigns, FirstElementIsTheHighestBitAndAnyByteButZeroCounts) {
  const std::vector<uint8_t> elements = {1, 0, 0, 2, 255, 0, 0, 0, 0, 128};
  uint8_t bits[2] = {};
  PackSigns(elements, bits);
  EXPECT_EQ(bits[0], 0b10011000);
  EXPECT_EQ(bits[1], 0b01000000);
}

TEST_F(SignArchiveTest, AllNamesAndLengthsComeBack) {
  std::vector<std::pair<std::string, std::vector<uint8_t>>> arrays;
  for (const std::string name :
       {"fc.weight", "..", "../../etc/x", "a\\b", "a/b", "a%2Fb", "\u00e4", ""}) {
    std::vector<uint8_t> elements(arrays.size() * 5);
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = i % 3 == 0;
    arrays.emplace_back(name, elements);
  }
  Write(arrays);
  const Result<SignArchive> archive = SignArchive::Open(path_);
  ASSERT_TRUE(archive.ok()) << archive.status().message();
  EXPECT_FALSE(archive->Has("other"));
  for (const auto& [name, elements] : arrays) {
    ASSERT_TRUE(archive->Has(name)) << name;
    const Result<SignBits> bits = archive->Read(name, static_cast<int64_t>(elements.size()));
    ASSERT_TRUE(bits.ok()) << bits.status().message();
    for (size_t i = 0; i < elements.size(); ++i)
      EXPECT_EQ(bits->data[i / 8] >> (7 - i % 8) & 1, elements[i]) << name << i;
  }
}

TEST_F(SignArchiveTest, WrongSizesAndNamesAreRefused) {
  Write({{"a", std::vector<uint8_t>(20)}});
  const Result<SignArchive> archive = SignArchive::Open(path_);
  ASSERT_TRUE(archive.ok());
  EXPECT_THAT(
      archive->Read("a", 25).status().message(),
      HasSubstr("expected the bits of 25 elements, for \"a\", found an entry of 131 bytes"));
  EXPECT_FALSE(archive->Read("a", 0).ok());
  EXPECT_FALSE(archive->Read("a", INT64_MAX).ok());
  EXPECT_THAT(archive->Read("b", 20).status().message(), HasSubstr("expected directions of \"b\""));
}

TEST_F(SignArchiveTest, AnyCutOrChangedByteIsAnErrorOrTheSameBits) {
  Write({{"a", {1, 1, 0, 1}}});
  const std::string good = Bytes();
  for (size_t i = 0; i < good.size(); ++i) {
    WriteBytes(good.substr(0, i));
    EXPECT_FALSE(SignArchive::Open(path_).ok()) << i;
    std::string changed = good;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    WriteBytes(changed);
    const Result<SignArchive> archive = SignArchive::Open(path_);
    if (!archive.ok()) continue;
    const Result<SignBits> bits = archive->Read("a", 4);
    if (!bits.ok()) continue;
    EXPECT_EQ(bits->data[0], 0b11010000) << i;
  }
}

}  // namespace
}  // namespace msprobe::formats
