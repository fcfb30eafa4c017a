#include "engine/formats/archive/zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/formats/archive/byte_order.h"
#include "engine/formats/archive/zip_layout.h"
#include "tests/formats/golden.h"

namespace msprobe::formats {
namespace {

using testing::HasSubstr;

template <typename T>
void Patch(std::string* bytes, size_t at, T value) {
  std::memcpy(bytes->data() + at, &value, sizeof(T));
}

size_t Central(const std::string& bytes, int n = 0) {
  size_t at = bytes.find("PK\x01\x02");
  while (n-- > 0) at = bytes.find("PK\x01\x02", at + 1);
  return at;
}
size_t End(const std::string& bytes) { return bytes.rfind("PK\x05\x06"); }

Status OpenStatus(const std::string& bytes) { return ZipReader::Open(bytes, "x.zip").status(); }

TEST(Zip, ReadsWhatItWrites) {
  const std::string bytes = Archive({{"a/b", "hello"}, {"c", ""}, {"d", std::string(1000, 'x')}});
  const Result<ZipReader> zip = ZipReader::Open(bytes, "x.zip");
  ASSERT_TRUE(zip.ok()) << zip.status().message();
  ASSERT_EQ(zip->entries().size(), 3u);
  EXPECT_EQ(zip->Find("none"), nullptr);
  const Result<ZipContent> content = zip->Read(*zip->Find("a/b"), 0);
  ASSERT_TRUE(content.ok());
  EXPECT_EQ(content->bytes, "hello");
  EXPECT_EQ(content->owner, nullptr) << "stored entries are not copied";
}

TEST(Zip, AlignsContent) {
  ZipComposer zip;
  for (int i = 0; i < 20; ++i) zip.Add(std::string(static_cast<size_t>(i) + 1, 'n'), "data", 64);
  zip.Finish();
  const std::string bytes = zip.Take();
  const Result<ZipReader> reader = ZipReader::Open(bytes, "x.zip");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  for (const ZipEntry& entry : reader->entries()) EXPECT_EQ(entry.offset % 64, 0u);
}

TEST(Zip, ContentFromElsewhere) {
  ZipComposer zip;
  zip.Add("first", "1");
  zip.Begin("second", 6, 64);
  std::string bytes = zip.Take();
  EXPECT_EQ(bytes.size() % 64, 0u);
  bytes += "middle";
  zip.End(Crc32("middle"));
  zip.Add("third", "3");
  zip.Finish();
  bytes += zip.Take();
  const Result<ZipReader> reader = ZipReader::Open(bytes, "x.zip");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  for (const ZipEntry& entry : reader->entries()) EXPECT_TRUE(reader->Read(entry, 0).ok());
  EXPECT_EQ(reader->Read(*reader->Find("second"), 0)->bytes, "middle");
}

TEST(Zip, AChecksumByManyThreadsIsThatOfOne) {
  ThreadPool pool(3);
  std::string bytes(9 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>((i * 2654435761u) >> 13);
  for (const size_t size :
       {size_t{0}, size_t{5}, size_t{4 << 20}, size_t{(5 << 20) + 17}, bytes.size()}) {
    const std::string_view part(bytes.data(), size);
    EXPECT_EQ(Crc32(part, &pool), Crc32(part)) << size;
  }
}

TEST(Zip, ManyEntriesUseZip64) {
  ZipComposer zip;
  for (int i = 0; i < 70000; ++i) zip.Add(std::to_string(i), "");
  zip.Finish();
  const std::string bytes = zip.Take();
  const Result<ZipReader> reader = ZipReader::Open(bytes, "x.zip");
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->entries().size(), 70000u);
}

TEST(Zip, RefusesUnsafeNamesAndDuplicates) {
  for (const char* name : {"../x", "a/../x", "..", "/etc/passwd", "a\\b", "a/.."}) {
    EXPECT_THAT(OpenStatus(Archive({{name, "x"}})).message(),
                HasSubstr("an entry name inside the archive"))
        << name;
  }
  EXPECT_TRUE(OpenStatus(Archive({{"a..b/..c", "x"}})).ok());
  EXPECT_THAT(OpenStatus(Archive({{"a", "x"}, {"a", "y"}})).message(), HasSubstr("each name once"));
  EXPECT_FALSE(OpenStatus(Archive({{"", "x"}})).ok());
}

TEST(Zip, RefusesTruncationAtEveryByte) {
  const std::string bytes = Archive({{"a", "hello"}, {"b", "world"}});
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Status status = OpenStatus(bytes.substr(0, size));
    EXPECT_EQ(status.code(), ErrorCode::kInvalidDump) << size;
    EXPECT_TRUE(status.offset().has_value());
  }
}

TEST(Zip, RefusesDamagedFields) {
  const std::string good = Archive({{"aa", "hello"}, {"bb", "world"}});
  const auto damaged = [&](auto&& change) {
    std::string bytes = good;
    change(&bytes);
    return OpenStatus(bytes).message();
  };
  const size_t first = Central(good), second = Central(good, 1), end = End(good);
  EXPECT_THAT(damaged([&](std::string* b) { Patch<uint16_t>(b, first + 8, 1); }),
              HasSubstr("encrypted"));
  EXPECT_THAT(damaged([&](std::string* b) { Patch<uint16_t>(b, first + 10, 12); }),
              HasSubstr("method 12"));
  EXPECT_THAT(damaged([&](std::string* b) { Patch<uint32_t>(b, first + 20, 1u << 30); }),
              HasSubstr("at most"));
  EXPECT_THAT(damaged([&](std::string* b) { Patch<uint32_t>(b, first + 24, 4); }),
              HasSubstr("4 bytes stored"));
  EXPECT_THAT(damaged([&](std::string* b) { Patch<uint32_t>(b, first + 24, 0xffffffff); }),
              HasSubstr("zip64 record"));
  EXPECT_THAT(damaged([&](std::string* b) { Patch<uint32_t>(b, first + 42, 0xfffffff0); }),
              HasSubstr("local header"));
  EXPECT_THAT(damaged([&](std::string* b) { Patch<uint16_t>(b, first + 28, 60000); }),
              HasSubstr("directory entry"));
  EXPECT_THAT(damaged([&](std::string* b) { (*b)[30] = 'z'; }), HasSubstr("agrees"));
  EXPECT_THAT(damaged([&](std::string* b) { Patch<uint16_t>(b, 28, 60000); }), HasSubstr("agrees"));
  EXPECT_THAT(damaged([&](std::string* b) {
                Patch<uint16_t>(b, end + 10, 3), Patch<uint16_t>(b, end + 8, 3);
              }),
              HasSubstr("zip"));
  EXPECT_THAT(damaged([&](std::string* b) {
                Patch<uint16_t>(b, end + 10, 60000), Patch<uint16_t>(b, end + 8, 60000);
              }),
              HasSubstr("at most 2 entries"));
  EXPECT_THAT(damaged([&](std::string* b) { Patch<uint16_t>(b, end + 4, 1); }),
              HasSubstr("one disk"));
  EXPECT_THAT(damaged([&](std::string* b) { Patch<uint32_t>(b, end + 16, 0x7fffffff); }),
              HasSubstr("directory"));
  // The second entry claims to lie where the first does.
  EXPECT_FALSE(damaged([&](std::string* b) {
                 Patch<uint32_t>(b, second + 42, 0);
                 b->replace(second + 46, 2, "aa");
               }).empty());
}

TEST(Zip, RefusesOverlappingEntries) {
  // Two names of the directory share one local header: a small archive claims to be large.
  std::string bytes = Archive({{"aa", std::string(100, 'x')}, {"bb", "y"}});
  // The first entry's size includes the second's header.
  const size_t first = Central(bytes);
  Patch<uint32_t>(&bytes, first + 20, 140);
  Patch<uint32_t>(&bytes, first + 24, 140);
  EXPECT_THAT(OpenStatus(bytes).message(), HasSubstr("entries that do not overlap"));
}

TEST(Zip, ChecksTheChecksum) {
  std::string bytes = Archive({{"a", "hello"}});
  bytes[bytes.find("hello")] ^= 1;
  const Result<ZipReader> zip = ZipReader::Open(bytes, "x.zip");
  ASSERT_TRUE(zip.ok());
  EXPECT_THAT(zip->Read(zip->entries()[0], 0).status().message(), HasSubstr("the file is damaged"));
  EXPECT_TRUE(zip->Read(zip->entries()[0], 0, false).ok());
}

TEST(Zip, DeflatedEntriesAreBounded) {
  const std::string bytes = ReadWhole(DataPath("pt/deflated.pt"));
  const Result<ZipReader> zip = ZipReader::Open(bytes, "x.zip");
  ASSERT_TRUE(zip.ok()) << zip.status().message();
  const ZipEntry* entry = zip->Find("transposed/data.pkl");
  ASSERT_NE(entry, nullptr);
  ASSERT_TRUE(entry->deflated);
  EXPECT_TRUE(zip->Read(*entry, entry->size).ok());
  EXPECT_THAT(zip->Read(*entry, entry->size - 1).status().message(), HasSubstr("at most"));
  ZipEntry bomb = *entry;
  bomb.size = entry->stored_size * 2000;
  EXPECT_THAT(zip->Read(bomb, UINT64_MAX).status().message(), HasSubstr("at most"));
  bomb.size = entry->size + 1;
  EXPECT_THAT(zip->Read(bomb, UINT64_MAX).status().message(), HasSubstr("damaged data"));
}

}  // namespace
}  // namespace msprobe::formats
