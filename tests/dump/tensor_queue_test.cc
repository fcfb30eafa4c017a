#include "engine/dump/write/tensor_queue.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>

#include "engine/base/file.h"
#include "engine/formats/tensors/npy.h"
#include "tests/base/full_disk.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

class TensorQueueTest : public ::testing::Test {
 protected:
  std::vector<float> Read(const std::string& name) const {
    Result<formats::TensorFile> file = formats::ReadPtTensor(JoinPath(folder_, name));
    EXPECT_TRUE(file.ok()) << file.status().message();
    if (!file.ok()) return {};
    const TensorView view = file->view();
    std::vector<float> values(static_cast<size_t>(view.numel()));
    CopyContiguous(view, values.data());
    return values;
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path() + "/tensors";  // the queue must create it
};

TensorView ViewOf(const std::vector<float>& values, const int64_t* shape) {
  return {.data = values.data(), .dtype = DType::kFloat32, .ndim = 1, .shape = shape};
}

TEST_F(TensorQueueTest, StoresWhatTheTensorHeldAtPush) {
  TensorQueue queue(TensorQueueOptions{});
  queue.SetFolder(folder_);
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 0.0f);
  const std::vector<float> before = values;
  const int64_t shape[] = {1000};
  ASSERT_TRUE(queue.Push("a.pt", ViewOf(values, shape)).ok());
  values.assign(1000, -1);  // the training overwrites the values
  ASSERT_TRUE(queue.Drain().ok());
  EXPECT_EQ(Read("a.pt"), before);
  EXPECT_EQ(queue.bytes_written(), 4000);
}

TEST_F(TensorQueueTest, AQueueThatWroteAtOnceGetsAThread) {
  TensorQueue queue({.budget = 0});
  queue.SetFolder(folder_);
  const int64_t shape[] = {2};
  ASSERT_TRUE(queue.Push("a.pt", ViewOf({1, 2}, shape)).ok());
  EXPECT_EQ(queue.bytes_held(), 0);
  queue.SetBudget(1 << 20);
  ASSERT_TRUE(queue.Push("b.pt", ViewOf({3, 4}, shape)).ok());
  EXPECT_GT(queue.bytes_held(), 0);
  ASSERT_TRUE(queue.Drain().ok());
  EXPECT_EQ(Read("a.pt"), (std::vector<float>{1, 2}));
  EXPECT_EQ(Read("b.pt"), (std::vector<float>{3, 4}));
}

TEST_F(TensorQueueTest, ANameSaysWhichKindOfFile) {
  const std::vector<float> values = {1, 2, 3, 4};
  const int64_t shape[] = {2, 2}, strides[] = {1, 2};  // a transpose
  TensorView view = ViewOf(values, shape);
  view.ndim = 2;
  view.strides = strides;
  for (const int64_t budget : {0, 1 << 20}) {
    TensorQueue queue({.budget = budget});
    queue.SetFolder(folder_);
    for (const char* name : {"a.npy", "a.pt", "b.npy"}) ASSERT_TRUE(queue.Push(name, view).ok());
    ASSERT_TRUE(queue.Drain().ok());
    EXPECT_EQ(Read("a.pt"), (std::vector<float>{1, 3, 2, 4}));
    const Result<formats::TensorFile> npy = formats::ReadNpy(JoinPath(folder_, "b.npy"));
    ASSERT_TRUE(npy.ok()) << npy.status().message();
    std::vector<float> read(4);
    CopyContiguous(npy->view(), read.data());
    EXPECT_EQ(read, (std::vector<float>{1, 3, 2, 4}));
    EXPECT_EQ(ShapeText(npy->view().dims()), "[2, 2]");
    std::filesystem::remove_all(folder_);
  }
}

TEST_F(TensorQueueTest, NumpyFilesHoldNarrowFloatsAsFloat32) {
  const std::vector<uint16_t> bits = {0x3f80, 0xc000, 0x7f80, 0x4049};  // 1, -2, inf, 3.140625
  const int64_t shape[] = {2, 2}, strides[] = {1, 2};                   // a transpose
  const TensorView view{.data = bits.data(),
                        .dtype = DType::kBFloat16,
                        .ndim = 2,
                        .shape = shape,
                        .strides = strides};
  TensorQueue queue(TensorQueueOptions{});
  queue.SetFolder(folder_);
  ASSERT_TRUE(queue.Push("a.npy", view).ok());
  ASSERT_TRUE(queue.Drain().ok());
  const Result<formats::TensorFile> npy = formats::ReadNpy(JoinPath(folder_, "a.npy"));
  ASSERT_TRUE(npy.ok()) << npy.status().message();
  ASSERT_EQ(npy->view().dtype, DType::kFloat32);
  std::vector<float> read(4);
  CopyContiguous(npy->view(), read.data());
  EXPECT_EQ(read, (std::vector<float>{1, std::numeric_limits<float>::infinity(), -2, 3.140625}));
}

TEST_F(TensorQueueTest, ManyTensorsThroughASmallBudget) {
  TensorQueue queue({.budget = 64 << 10});
  queue.SetFolder(folder_);
  for (int i = 0; i < 100; ++i) {
    const std::vector<float> values(static_cast<size_t>(100 + 70 * i), static_cast<float>(i));
    const int64_t shape[] = {static_cast<int64_t>(values.size())};
    ASSERT_TRUE(queue.Push(std::to_string(i) + ".pt", ViewOf(values, shape)).ok());
    EXPECT_LE(queue.bytes_held(), 64 << 10);
  }
  ASSERT_TRUE(queue.Drain().ok());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Read(std::to_string(i) + ".pt"),
              std::vector<float>(static_cast<size_t>(100 + 70 * i), static_cast<float>(i)));
  }
}

TEST_F(TensorQueueTest, AStepsTensorsGoToItsFolder) {
  TensorQueue queue(TensorQueueOptions{});
  const int64_t shape[] = {2};
  for (const char* step : {"step0", "step1"}) {
    queue.SetFolder(JoinPath(folder_, step));
    const std::vector<float> values = {step[4] - '0' + 0.5f, 2};
    ASSERT_TRUE(queue.Push("a.pt", ViewOf(values, shape)).ok());
  }
  ASSERT_TRUE(queue.Drain().ok());
  EXPECT_EQ(Read("step0/a.pt"), (std::vector<float>{0.5f, 2}));
  EXPECT_EQ(Read("step1/a.pt"), (std::vector<float>{1.5f, 2}));
}

TEST_F(TensorQueueTest, ATensorBeyondTheBudgetIsWrittenAtOnce) {
  TensorQueue queue({.budget = 1024});
  queue.SetFolder(folder_);
  const std::vector<float> values(10000, 2.5f);
  const int64_t shape[] = {10000};
  ASSERT_TRUE(queue.Push("big.pt", ViewOf(values, shape)).ok());
  EXPECT_EQ(Read("big.pt"), values);
}

TEST_F(TensorQueueTest, WithoutABudgetTheCallerWrites) {
  TensorQueue queue({.budget = 0});
  queue.SetFolder(folder_);
  const std::vector<float> values(10, 2.5f);
  for (const int64_t size : {0, 10}) {
    const std::string name = std::to_string(size) + ".pt";
    ASSERT_TRUE(queue.Push(name, ViewOf(values, &size)).ok());
    EXPECT_EQ(Read(name), std::vector<float>(static_cast<size_t>(size), 2.5f));
  }
  EXPECT_EQ(queue.bytes_written(), 40);
}

TEST_F(TensorQueueTest, StridedViewsAreStoredContiguous) {
  TensorQueue queue(TensorQueueOptions{});
  queue.SetFolder(folder_);
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  const int64_t shape[] = {3, 2}, strides[] = {1, 3};
  ASSERT_TRUE(queue
                  .Push("t.pt", {.data = values.data(),
                                 .dtype = DType::kFloat32,
                                 .ndim = 2,
                                 .shape = shape,
                                 .strides = strides})
                  .ok());
  ASSERT_TRUE(queue.Drain().ok());
  EXPECT_EQ(Read("t.pt"), (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

TEST_F(TensorQueueTest, AFailureIsKeptAndAnswered) {
  temporary_.Write("tensors", "a file where the folder should be");
  TensorQueue queue(TensorQueueOptions{});
  queue.SetFolder(folder_);
  const std::vector<float> values(10, 1.0f);
  const int64_t shape[] = {10};
  const Status status = queue.Push("a.pt", ViewOf(values, shape));
  EXPECT_EQ(status.code(), ErrorCode::kIo);
}

TEST_F(TensorQueueTest, AFailureInTheWriterThreadReachesDrainAndLaterPushes) {
  TensorQueue queue(TensorQueueOptions{});
  queue.SetFolder(folder_);
  const std::vector<float> values(10, 1.0f);
  const int64_t shape[] = {10};
  ASSERT_TRUE(queue.Push("a.pt", ViewOf(values, shape)).ok());
  ASSERT_TRUE(queue.Drain().ok());
  std::filesystem::remove_all(folder_);  // as if the disk was removed
  ASSERT_TRUE(queue.Push("b.pt", ViewOf(values, shape)).ok());
  EXPECT_EQ(queue.Drain().code(), ErrorCode::kIo);
  EXPECT_FALSE(queue.Push("c.pt", ViewOf(values, shape)).ok());
}

TEST_F(TensorQueueTest, AFullDiskLeavesNoHalfFileAndIsRemembered) {
  // Sizes that are written in one piece, in several, and with a checksum thread.
  for (const int64_t size : {2000, 100'000, 1'000'000}) {
    TensorQueue queue({.budget = 0});
    queue.SetFolder(folder_);
    const std::vector<float> values(static_cast<size_t>(size), 1.0f);
    {
      const FullDisk full(4096);
      EXPECT_EQ(queue.Push("a.pt", ViewOf(values, &size)).code(), ErrorCode::kIo) << size;
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder_)) << size;
    const int64_t small = 10;
    EXPECT_EQ(queue.Push("b.pt", ViewOf(values, &small)).code(), ErrorCode::kIo) << size;
    EXPECT_EQ(queue.Drain().code(), ErrorCode::kIo) << size;
  }
}

ino_t InodeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info.st_ino;
}

TEST_F(TensorQueueTest, EqualTensorsShareAFile) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6}, others = {1, 2, 3, 4, 5, 7};
  const int64_t flat[] = {6}, wide[] = {2, 3}, tall[] = {3, 2}, across[] = {1, 3};
  const TensorView row = ViewOf(values, flat);
  TensorView two = row, transposed = row, integers = row;
  two.ndim = transposed.ndim = 2;
  two.shape = wide;
  transposed.shape = tall, transposed.strides = across;
  integers.dtype = DType::kInt32;
  std::vector<float> turned(6);
  CopyContiguous(transposed, turned.data());
  TensorView contiguous = ViewOf(turned, tall);
  contiguous.ndim = 2;
  for (const int64_t budget : {0, 1 << 20}) {
    TensorQueue queue({.budget = budget});
    queue.SetFolder(folder_, {.link_equal = true});
    for (const char* name : {"a.pt", "b.pt", "a.npy", "c.pt", "b.npy"})
      ASSERT_TRUE(queue.Push(name, row).ok());
    ASSERT_TRUE(queue.Push("other.pt", ViewOf(others, flat)).ok());
    ASSERT_TRUE(queue.Push("shape.pt", two).ok());
    ASSERT_TRUE(queue.Push("dtype.pt", integers).ok());
    ASSERT_TRUE(queue.Push("transposed.pt", transposed).ok());
    ASSERT_TRUE(queue.Push("contiguous.pt", contiguous).ok());
    ASSERT_TRUE(queue.Drain().ok());
    const auto inode = [&](const char* name) { return InodeOf(JoinPath(folder_, name)); };
    EXPECT_EQ(inode("b.pt"), inode("a.pt"));
    EXPECT_EQ(inode("c.pt"), inode("a.pt"));
    EXPECT_EQ(inode("b.npy"), inode("a.npy"));
    EXPECT_EQ(inode("contiguous.pt"), inode("transposed.pt"));
    for (const char* name : {"a.npy", "other.pt", "shape.pt", "dtype.pt", "transposed.pt"})
      EXPECT_NE(inode(name), inode("a.pt")) << name;
    EXPECT_EQ(Read("c.pt"), values);
    EXPECT_EQ(Read("other.pt"), others);
    EXPECT_EQ(Read("contiguous.pt"), turned);
    EXPECT_EQ(queue.bytes_written(), 6 * 24);
    // Another folder is another step: its files are its own.
    queue.SetFolder(folder_ + "2", {.link_equal = true});
    ASSERT_TRUE(queue.Push("a.pt", row).ok());
    ASSERT_TRUE(queue.Drain().ok());
    EXPECT_NE(InodeOf(folder_ + "2/a.pt"), inode("a.pt"));
    std::filesystem::remove_all(folder_);
    std::filesystem::remove_all(folder_ + "2");
  }
}

TEST_F(TensorQueueTest, ALinkNeverFollowsAFileThatChanged) {
  const std::vector<float> first = {1, 2}, second = {3, 4};
  const int64_t shape[] = {2};
  const auto path = [&](const char* name) { return JoinPath(folder_, name); };
  TensorQueue queue({.budget = 0});
  queue.SetFolder(folder_, {.link_equal = true});
  const auto push = [&](const char* name, const std::vector<float>& values) {
    ASSERT_TRUE(queue.Push(name, ViewOf(values, shape)).ok());
  };
  push("a.pt", first);
  push("a.pt", first);  // the same name again
  push("b.pt", first);
  EXPECT_EQ(InodeOf(path("a.pt")), InodeOf(path("b.pt")));
  push("a.pt", second);  // the name gets another content: "b.pt" keeps the former one
  EXPECT_EQ(Read("a.pt"), second);
  EXPECT_EQ(Read("b.pt"), first);
  push("c.pt", first);
  EXPECT_EQ(Read("c.pt"), first);
  std::filesystem::remove(path("c.pt"));
  push("d.pt", first);
  EXPECT_EQ(Read("d.pt"), first);
  { std::ofstream(path("d.pt")) << "changed by another program"; }
  push("e.pt", first);
  EXPECT_EQ(Read("e.pt"), first);
  push("d.pt", first);  // a name that exists gets the link
  EXPECT_EQ(InodeOf(path("d.pt")), InodeOf(path("e.pt")));
  for (const auto& file : std::filesystem::directory_iterator(folder_))
    EXPECT_EQ(file.path().extension(), ".pt") << file.path();
}

TEST_F(TensorQueueTest, AFileWithAllItsLinksIsWrittenAgain) {
  const std::vector<float> values = {1, 2};
  const int64_t shape[] = {2};
  TensorQueue queue({.budget = 0});
  queue.SetFolder(folder_, {.link_equal = true});
  ASSERT_TRUE(queue.Push("0.pt", ViewOf(values, shape)).ok());
  // ext4 allows 65,000 links of a file; a file system that allows more is not tested here.
  std::error_code error;
  for (int i = 0; i < 65100 && !error; ++i)
    std::filesystem::create_hard_link(folder_ + "/0.pt", folder_ + "/" + std::to_string(i) + ".l",
                                      error);
  if (!error) GTEST_SKIP() << "this file system allows more links";
  ASSERT_TRUE(queue.Push("1.pt", ViewOf(values, shape)).ok());
  ASSERT_TRUE(queue.Push("2.pt", ViewOf(values, shape)).ok());
  EXPECT_NE(InodeOf(folder_ + "/1.pt"), InodeOf(folder_ + "/0.pt"));
  EXPECT_EQ(InodeOf(folder_ + "/2.pt"), InodeOf(folder_ + "/1.pt"));
  EXPECT_EQ(Read("2.pt"), values);
}

}  // namespace
}  // namespace msprobe::dump
