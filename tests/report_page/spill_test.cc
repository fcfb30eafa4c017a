#include "engine/report_page/spill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "engine/base/file.h"
#include "tests/base/full_disk.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::report_page {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::vector<int> All(Spill* spill) {
  std::vector<int> all;
  const Status status = spill->ForEach([&](const void* record) {
    int number;
    std::memcpy(&number, record, sizeof(number));
    all.push_back(number);
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return all;
}

TEST(Spill, GivesBackWhatItGot) {
  const TemporaryFolder folder;
  for (const int count : {0, 1, 7, 8, 9, 16, 20'000}) {
    Spill spill(folder.path(), sizeof(int), 8);
    std::vector<int> numbers;
    for (int i = 0; i < count; ++i) {
      numbers.push_back(i * 7);
      ASSERT_TRUE(spill.Append(&numbers.back()).ok());
    }
    EXPECT_EQ(All(&spill), numbers);
    EXPECT_EQ(spill.bytes_in_file() > 0, count > 8);
    EXPECT_EQ(All(&spill), numbers);  // once more
  }
}

TEST(Spill, LeavesNoNameAndMakesItsFolder) {
  const TemporaryFolder folder;
  const std::string deep = folder.path() + "/a/b";
  Spill first(deep, sizeof(int), 1);
  const int number = 5;
  ASSERT_TRUE(first.Append(&number).ok());
  EXPECT_FALSE(Exists(deep));  // it was not needed yet
  ASSERT_TRUE(first.Append(&number).ok());
  EXPECT_THAT(ListDirectory(deep).value(), IsEmpty());
  Spill moved(std::move(first));
  EXPECT_EQ(All(&moved), (std::vector<int>{5, 5}));
}

TEST(Spill, SaysThatTheDiskIsFull) {
  const TemporaryFolder folder;
  Spill spill(folder.path(), sizeof(int), 1000);
  const FullDisk full(2000);
  Status status;
  for (int i = 0; i < 2000 && status.ok(); ++i) status = spill.Append(&i);
  EXPECT_THAT(status.message(), HasSubstr("write a temporary file"));
}

TEST(Spill, SaysThatTheFolderCannotBeMade) {
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteFileAtomically(folder.path() + "/file", std::string_view("x")).ok());
  Spill spill(folder.path() + "/file", sizeof(int), 1);
  const int number = 5;
  ASSERT_TRUE(spill.Append(&number).ok());
  EXPECT_FALSE(spill.Append(&number).ok());
}

}  // namespace
}  // namespace msprobe::report_page
