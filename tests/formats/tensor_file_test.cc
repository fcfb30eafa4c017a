#include "engine/formats/tensors/tensor_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/formats/tensors/npy.h"
#include "engine/formats/tensors/pt.h"
#include "tests/formats/golden.h"

namespace msprobe::formats {
namespace {

using testing::HasSubstr;

// The tensors of a file as one string; "" for an error.
std::string Summary(const std::string& path, bool is_pt) {
  std::string text;
  const auto add = [&](const TensorFile& tensor) {
    text += std::string(DTypeShortName(tensor.dtype)) + ShapeText(tensor.shape) +
            ElementsCrc(tensor.view());
  };
  Status status;
  if (is_pt) {
    const Result<PtFile> file = ReadPt(path);
    status = file.status();
    if (file.ok()) {
      text = "pt ";
      for (const PtTensor& tensor : file->tensors) {
        text +=
            tensor.name + (tensor.requires_grad ? "r" : "") + (tensor.is_parameter ? "p " : " ");
        add(tensor.tensor);
      }
    }
  } else {
    const Result<TensorFile> file = ReadNpy(path);
    status = file.status();
    if (file.ok()) add(*file);
  }
  if (!status.ok()) {
    EXPECT_TRUE(status.code() == ErrorCode::kInvalidDump ||
                status.code() == ErrorCode::kUnsupported)
        << status.message();
    EXPECT_THAT(status.message(), HasSubstr(path));
  }
  return text;
}

class Damage : public testing::Test {
 protected:
  void Open(const std::string& golden) {
    bytes_ = ReadWhole(golden);
    is_pt_ = golden.ends_with(".pt");
    path_ = TestFolder() + "/" + BaseName(golden);
    ASSERT_TRUE(WriteFileAtomically(path_, bytes_).ok());
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd_, 0);
  }
  void Close() { ::close(fd_); }
  void Put(size_t at, char byte) { ASSERT_EQ(::pwrite(fd_, &byte, 1, static_cast<off_t>(at)), 1); }

  std::string bytes_, path_;
  bool is_pt_ = false;
  int fd_ = -1;
};

TEST_F(Damage, TruncationAtEveryByteIsAnError) {
  for (const char* suffix : {".pt", ".npy"}) {
    for (const std::string& golden : GoldenFiles(suffix)) {
      ASSERT_NO_FATAL_FAILURE(Open(golden));
      for (size_t size = bytes_.size(); size-- > 0;) {
        ASSERT_EQ(::ftruncate(fd_, static_cast<off_t>(size)), 0);
        ASSERT_EQ(Summary(path_, is_pt_), "")
            << golden << " cut to " << size << " bytes was accepted";
      }
      Close();
    }
  }
}

// A .pt has checksums: with any damaged byte, the result is an error or the same tensors. A .npy
// has none, so its result may differ; it must not crash.
TEST_F(Damage, EveryByteFlippedIsTheSameAnswerOrAnError) {
  for (const char* suffix : {".pt", ".npy"}) {
    for (const std::string& golden : GoldenFiles(suffix)) {
      if (golden.ends_with("no_checksums.pt")) continue;
      ASSERT_NO_FATAL_FAILURE(Open(golden));
      const std::string expected = Summary(path_, is_pt_);
      ASSERT_NE(expected, "");
      for (size_t at = 0; at < bytes_.size(); ++at) {
        for (const char bits : {'\x01', '\x80', '\xff'}) {
          Put(at, static_cast<char>(bytes_[at] ^ bits));
          const std::string found = Summary(path_, is_pt_);
          if (is_pt_ && !found.empty()) {
            ASSERT_EQ(found, expected) << golden << " with byte " << at << " changed";
          }
        }
        Put(at, bytes_[at]);
      }
      Close();
    }
  }
}

TEST(TensorFile, ChoosesByContentNotByName) {
  const std::string folder = TestFolder();
  ASSERT_TRUE(WriteFileAtomically(folder + "/a.npy", ReadWhole(DataPath("pt/scalar.pt"))).ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/b.pt", ReadWhole(DataPath("npy/scalar.npy"))).ok());
  const Result<TensorFile> a = ReadTensorFile(folder + "/a.npy"),
                           b = ReadTensorFile(folder + "/b.pt");
  ASSERT_TRUE(a.ok()) << a.status().message();
  ASSERT_TRUE(b.ok()) << b.status().message();
  EXPECT_EQ(a->dtype, DType::kFloat32);
  EXPECT_EQ(b->dtype, DType::kFloat64);
}

TEST(TensorFile, SaysWhatItExpected) {
  const std::string folder = TestFolder();
  EXPECT_EQ(ReadTensorFile(folder + "/none.pt").status().code(), ErrorCode::kNotFound);
  ASSERT_TRUE(WriteFileAtomically(folder + "/empty.pt", "").ok());
  EXPECT_THAT(ReadTensorFile(folder + "/empty.pt").status().message(), HasSubstr("an empty file"));
  ASSERT_TRUE(WriteFileAtomically(folder + "/text.pt", "hello").ok());
  EXPECT_THAT(ReadTensorFile(folder + "/text.pt").status().message(), HasSubstr("found \"hello\""));
  EXPECT_THAT(ReadTensorFile(folder).status().message(), HasSubstr("a directory"));
  EXPECT_THAT(ReadTensorFile(DataPath("pt/refused/before_1_6.pt")).status().message(),
              HasSubstr("before version 1.6"));
}

TEST(TensorFile, CopiesShareTheMapping) {
  TensorFile copy;
  {
    const Result<TensorFile> tensor = ReadTensorFile(DataPath("pt/special.pt"));
    ASSERT_TRUE(tensor.ok());
    copy = *tensor;
  }
  EXPECT_TRUE(static_cast<const float*>(copy.view().data)[0] !=
              static_cast<const float*>(copy.view().data)[0])
      << "NaN";
}

}  // namespace
}  // namespace msprobe::formats
