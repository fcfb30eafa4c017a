// PackWriter and TensorPack: what is written is read, at every moment of the writing.
#include "engine/dump/write/pack_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "tests/base/full_disk.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

using formats::TensorPack;

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class PackTest : public ::testing::Test {
 protected:
  Status Add(PackWriter* writer, const std::string& name, const std::vector<float>& values,
             bool* linked = nullptr) {
    const int64_t shape[] = {static_cast<int64_t>(values.size())};
    return writer->Add(name, DType::kFloat32, shape,
                       {reinterpret_cast<const char*>(values.data()), values.size() * 4}, linked);
  }
  static std::vector<float> Values(size_t count, float first) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
  }
  static std::vector<float> Get(const TensorPack& pack, const std::string& name) {
    const formats::PackEntry* entry = pack.Find(name);
    EXPECT_NE(entry, nullptr) << name;
    if (entry == nullptr) return {};
    const Result<formats::TensorFile> tensor = pack.Read(*entry);
    EXPECT_TRUE(tensor.ok()) << tensor.status().message();
    if (!tensor.ok()) return {};
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->data) % formats::kPackAlignment, 0u);
    std::vector<float> values(static_cast<size_t>(tensor->view().numel()));
    CopyContiguous(tensor->view(), values.data());
    return values;
  }
  Result<TensorPack> Open() const { return TensorPack::Open(folder_, formats::kPackName); }
  // What a process that dies now leaves, in another folder.
  std::string Dead() const {
    std::string other = folder_ + "/dead";
    std::filesystem::remove_all(other);
    std::filesystem::create_directory(other);
    for (const char* end : {"", formats::kPackLogSuffix}) {
      const std::string name = std::string(formats::kPackName) + end;
      if (Exists(folder_ + "/" + name))
        std::filesystem::copy_file(folder_ + "/" + name, other + "/" + name);
    }
    return other;
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  const std::string path_ = folder_ + "/" + formats::kPackName;
};

TEST_F(PackTest, HoldsTensorsOfEverySizeAtEachMoment) {
  auto writer = *PackWriter::Create(folder_);
  // Into the log, beside it, over its end, and without elements.
  const size_t sizes[] = {1, 3, 16, 500, 20000, 0, 12000, 12000, 15000, 15000, 15000, 300000, 2};
  size_t count = 0;
  for (const size_t size : sizes) {
    ASSERT_TRUE(Add(writer.get(), std::to_string(count), Values(size, 0.5f + count)).ok());
    ++count;
    const std::string dead = Dead();
    for (int closed = 0; closed < 2; ++closed) {
      const Result<TensorPack> pack = TensorPack::Open(dead, formats::kPackName);
      ASSERT_TRUE(pack.ok()) << pack.status().message();
      EXPECT_EQ(pack->entries().size(), count);
      EXPECT_EQ(pack->is_complete(), closed == 1);
      EXPECT_EQ(pack->ignored_bytes(), 0u);
      for (size_t i = 0; i < count; ++i)
        EXPECT_EQ(Get(*pack, std::to_string(i)), Values(sizes[i], 0.5f + i)) << i;
      const Result<bool> close = ClosePack(dead);
      ASSERT_TRUE(close.ok()) << close.status().message();
      EXPECT_EQ(*close, closed == 0);
    }
  }
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_FALSE(Exists(path_ + formats::kPackLogSuffix));
  const auto finished = Open();
  ASSERT_TRUE(finished.ok() && finished->is_complete());
  EXPECT_EQ(ReadAll(Dead() + "/" + formats::kPackName), ReadAll(path_));
  // A step that is started again continues its pack.
  ASSERT_TRUE(Add(writer.get(), "more", Values(7, 1)).ok());
  EXPECT_EQ(Open()->entries().size(), count + 1);
  ASSERT_TRUE(writer->Finish().ok());
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(Get(*Open(), "more"), Values(7, 1));
  EXPECT_EQ(Get(*Open(), "11"), Values(300000, 11.5f));
}

TEST_F(PackTest, EqualElementsAreWrittenOnce) {
  auto writer = *PackWriter::Create(folder_);
  bool linked = true;
  ASSERT_TRUE(Add(writer.get(), "a", Values(1000, 1), &linked).ok());
  EXPECT_FALSE(linked);
  ASSERT_TRUE(Add(writer.get(), "b", Values(1000, 1), &linked).ok());
  EXPECT_TRUE(linked);
  const int64_t shape[] = {10, 100};
  const std::vector<float> values = Values(1000, 1);
  ASSERT_TRUE(writer
                  ->Add("c", DType::kInt32, shape,
                        {reinterpret_cast<const char*>(values.data()), 4000}, &linked)
                  .ok());
  EXPECT_TRUE(linked);  // elements alone are shared: the record has the dtype and the shape
  ASSERT_TRUE(Add(writer.get(), "a", Values(5, 2)).ok());  // the later one of a name counts
  for (int finished = 0; finished < 2; ++finished) {
    const auto pack = Open();
    ASSERT_TRUE(pack.ok());
    EXPECT_EQ(pack->entries().size(), 3u);
    EXPECT_EQ(Get(*pack, "a"), Values(5, 2));
    EXPECT_EQ(Get(*pack, "b"), Values(1000, 1));
    EXPECT_EQ(pack->Find("c")->dtype, DType::kInt32);
    EXPECT_EQ(pack->Find("c")->offset, pack->Find("b")->offset);
    ASSERT_TRUE(writer->Finish().ok());
  }
  EXPECT_LT(std::filesystem::file_size(path_), 6000u);
}

TEST_F(PackTest, CutAtEveryByteOnlyTheLastTensorsAreLost) {
  auto writer = *PackWriter::Create(folder_, /*link_equal=*/false);
  for (int i = 0; i < 6; ++i)
    ASSERT_TRUE(Add(writer.get(), std::to_string(i), Values(20 + i, i)).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const std::string whole = ReadAll(path_);
  const std::vector<formats::PackEntry> entries = Open()->entries();
  const std::string cut = folder_ + "/cut";
  std::filesystem::create_directory(cut);
  for (size_t size = 0; size < whole.size(); ++size) {
    std::ofstream(cut + "/" + formats::kPackName, std::ios::binary) << whole.substr(0, size);
    const Result<TensorPack> pack = TensorPack::Open(cut, formats::kPackName);
    ASSERT_EQ(pack.ok(), size >= formats::kPackHeaderBytes) << size;
    if (!pack.ok()) continue;
    size_t expected = 0;
    while (expected < entries.size() && entries[expected].offset + entries[expected].size <= size)
      ++expected;
    ASSERT_EQ(pack->entries().size(), expected) << size;
    for (size_t i = 0; i < expected; ++i)
      ASSERT_EQ(Get(*pack, std::to_string(i)), Values(20 + i, i)) << size;
    const Result<bool> closed = ClosePack(cut);
    ASSERT_TRUE(closed.ok() && *closed) << size;
    const Result<TensorPack> again = TensorPack::Open(cut, formats::kPackName);
    ASSERT_TRUE(again.ok() && again->is_complete()) << size;
    ASSERT_EQ(again->entries().size(), expected) << size;
  }
}

TEST_F(PackTest, AFlippedBitIsFound) {
  auto writer = *PackWriter::Create(folder_);
  ASSERT_TRUE(Add(writer.get(), "a", Values(20, 1)).ok());
  ASSERT_TRUE(Add(writer.get(), "b", Values(20, 2)).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const std::string whole = ReadAll(path_);
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    std::string other = whole;
    other[byte] ^= 1 << byte % 8;
    std::ofstream(path_, std::ios::binary) << other;
    const Result<TensorPack> pack = Open();
    if (!pack.ok()) continue;
    for (const formats::PackEntry& entry : pack->entries()) {
      const Result<formats::TensorFile> tensor = pack->Read(entry);
      if (!tensor.ok()) continue;
      ASSERT_TRUE(entry.name == "a" || entry.name == "b") << byte;
      std::vector<float> values(20);
      ASSERT_EQ(tensor->view().numel(), 20) << byte;
      CopyContiguous(tensor->view(), values.data());
      ASSERT_EQ(values, Values(20, entry.name == "a" ? 1 : 2)) << byte;
    }
  }
}

TEST_F(PackTest, TheLogOfAnotherPackIsIgnored) {
  auto writer = *PackWriter::Create(folder_);
  ASSERT_TRUE(Add(writer.get(), "old", Values(20, 1)).ok());
  const std::string log = ReadAll(path_ + formats::kPackLogSuffix);
  auto other = *PackWriter::Create(folder_);  // replaces the pack
  ASSERT_TRUE(Add(other.get(), "new", Values(20, 2)).ok());
  EXPECT_EQ(Open()->entries().size(), 1u);
  std::ofstream(path_ + formats::kPackLogSuffix, std::ios::binary) << log;
  const auto pack = Open();
  ASSERT_TRUE(pack.ok());
  EXPECT_EQ(pack->entries().size(), 0u);
}

TEST_F(PackTest, OnAFullDiskWhatWasWrittenStays) {
  auto writer = *PackWriter::Create(folder_);
  size_t count = 0;
  {
    const FullDisk disk(1 << 20);
    Status status = Status::Ok();
    for (; status.ok() && count < 1000; ++count)
      status = Add(writer.get(), std::to_string(count), Values(2000 + 37 * (count % 5), count));
    ASSERT_EQ(status.code(), ErrorCode::kIo);
    (void)writer->Finish();
  }
  const Result<TensorPack> pack = Open();
  ASSERT_TRUE(pack.ok()) << pack.status().message();
  EXPECT_EQ(pack->entries().size(), count - 1);
  for (size_t i = 0; i + 1 < count; ++i)
    ASSERT_EQ(Get(*pack, std::to_string(i)), Values(2000 + 37 * (i % 5), i));
}

TEST_F(PackTest, NamesThatLeaveTheFolderAreRefused) {
  for (const char* name : {"", ".", "..", "a/b", "/etc/passwd", "a\nb"})
    EXPECT_FALSE(formats::IsPackName(name)) << name;
  EXPECT_TRUE(formats::IsPackName("Torch.mm.0.forward.output.0.pt"));
}

}  // namespace
}  // namespace msprobe::dump
