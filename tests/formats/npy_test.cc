#include "engine/formats/tensors/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/formats/archive/byte_order.h"
#include "tests/formats/golden.h"

namespace msprobe::formats {
namespace {

using testing::HasSubstr;

// A version 1.0 file with this header text and these data.
Status ReadText(const std::string& header, const std::string& data = "") {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  AppendLittle<uint16_t>(&bytes, static_cast<uint16_t>(header.size()));
  const std::string path = TestFolder() + "/t.npy";
  EXPECT_TRUE(WriteFileAtomically(path, bytes + header + data).ok());
  return ReadNpy(path).status();
}

TEST(NpyRead, EveryGoldenArrayAsNumPyReadsIt) {
  for (const GoldenTensor& golden : GoldenTensors(".npy")) {
    SCOPED_TRACE(golden.file);
    const Result<TensorFile> tensor = ReadNpy(golden.file);
    ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
    EXPECT_EQ(DTypeShortName(tensor->dtype), golden.dtype);
    EXPECT_EQ(ShapeText(tensor->shape), golden.shape);
    EXPECT_EQ(ElementsCrc(tensor->view()), golden.crc);
  }
}

TEST(NpyRead, FortranOrderIsStridesNotACopy) {
  const Result<TensorFile> tensor = ReadNpy(DataPath("npy/f4_fortran.npy"));
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(tensor->strides, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(Elements(tensor->view()), Elements(ReadNpy(DataPath("npy/f4_c.npy"))->view()));
}

TEST(NpyRead, RefusesFilesThatHaveNoTensor) {
  const std::pair<const char*, const char*> cases[] = {
      {"object", "Python objects"},        {"text", "text or dates"}, {"date", "text or dates"},
      {"structured", "structured arrays"}, {"raw", "raw bytes"},      {"longdouble", "astype"},
  };
  for (const auto& [name, text] : cases) {
    const Status status = ReadNpy(DataPath(std::string("npy/refused/") + name + ".npy")).status();
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << name;
    EXPECT_THAT(status.ToString(), HasSubstr(text));
    EXPECT_THAT(status.message(), HasSubstr(name));
  }
}

TEST(NpyRead, AcceptsTheSpellingsPythonAccepts) {
  EXPECT_TRUE(ReadText("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", "abcd").ok());
  EXPECT_TRUE(ReadText("{\"shape\":(2,2),\"descr\":\"|u1\",\"fortran_order\":True}", "abcd").ok());
  EXPECT_TRUE(ReadText("{'descr': '<f4', 'fortran_order': False, 'shape': (1L,)}", "abcd").ok());
  EXPECT_TRUE(ReadText("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", "abcd").ok());
}

TEST(NpyRead, RefusesHeadersThatAreNotTheLiteral) {
  const char* headers[] = {
      "",
      "{",
      "{}",
      "[1]",
      "{'descr': '<f4'}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
      "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
      "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} ; import os",
      "{'descr': __import__('os').system('true'), 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,",
      "{'descr': '<f4\\x00', 'fortran_order': False, 'shape': (1,)}",
  };
  for (const char* header : headers) {
    const Status status = ReadText(header, "abcd");
    EXPECT_EQ(status.code(), ErrorCode::kInvalidDump) << header;
    EXPECT_TRUE(status.offset().has_value()) << header;
  }
}

TEST(NpyRead, SizeMustFitTheFileExactly) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}";
  EXPECT_TRUE(ReadText(header, "12345678").ok());
  EXPECT_THAT(ReadText(header, "1234567").message(),
              HasSubstr("expected 8 bytes of data for shape [2] of float32, found 7"));
  EXPECT_THAT(ReadText(header, "123456789").message(), HasSubstr("found 9"));
  // 2^62 x 2^62 x 4 wraps round to 0.
  const std::string huge =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, "
      "4611686018427387904)}";
  EXPECT_EQ(ReadText(huge).code(), ErrorCode::kInvalidDump);
  const std::string many =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::string(260, '1') + ")}";
  EXPECT_EQ(ReadText(many).code(), ErrorCode::kInvalidDump);
}

TEST(NpyRead, UnalignedDataAreCopiedToAlignedMemory) {
  const std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}";
  std::string bytes("\x93NUMPY\x01\x00", 8);
  AppendLittle<uint16_t>(&bytes, static_cast<uint16_t>(header.size()));
  bytes += header;
  ASSERT_NE(bytes.size() % 8, 0u);
  const double value = 2.5;
  bytes.append(reinterpret_cast<const char*>(&value), 8);
  const std::string path = TestFolder() + "/t.npy";
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
  const Result<TensorFile> tensor = ReadNpy(path);
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->data) % 8, 0u);
  EXPECT_EQ(*static_cast<const double*>(tensor->data), 2.5);
}

TEST(NpyWrite, RoundTripKeepsEveryBit) {
  const std::string folder = TestFolder();
  for (const GoldenTensor& golden : GoldenTensors(".npy")) {
    SCOPED_TRACE(golden.file);
    const Result<TensorFile> tensor = ReadNpy(golden.file);
    ASSERT_TRUE(tensor.ok());
    ASSERT_TRUE(WriteNpy(folder + "/t.npy", tensor->view()).ok());
    const Result<TensorFile> copy = ReadNpy(folder + "/t.npy");
    ASSERT_TRUE(copy.ok()) << copy.status().message();
    EXPECT_EQ(copy->dtype, tensor->dtype);
    EXPECT_EQ(copy->shape, tensor->shape);
    EXPECT_TRUE(copy->view().IsContiguous());
    EXPECT_EQ(ElementsCrc(copy->view()), golden.crc);
  }
  ExpectFolderHolds(folder, {"t.npy"});
}

TEST(NpyWrite, IsByteForByteWhatNumPyWrites) {
  for (const char* name :
       {"npy/f4_c.npy", "npy/scalar.npy", "npy/type_i8.npy", "npy/bool.npy", "npy/empty.npy"}) {
    const std::string path = TestFolder() + "/t.npy";
    ASSERT_TRUE(WriteNpy(path, ReadNpy(DataPath(name))->view()).ok());
    EXPECT_EQ(ReadWhole(path), ReadWhole(DataPath(name))) << name;
  }
}

TEST(NpyWrite, RefusesDTypesNumPyDoesNotHave) {
  const std::string folder = TestFolder();
  const uint32_t value = 0;
  for (const DType dtype :
       {DType::kBFloat16, DType::kFloat8E4M3FN, DType::kComplex32, DType::kFloat4E2M1X2}) {
    const Status status = WriteNpy(folder + "/t.npy", {.data = &value, .dtype = dtype});
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr(std::string(DTypeShortName(dtype))));
  }
  EXPECT_EQ(WriteNpy(folder + "/none/t.npy", {.data = &value}).code(), ErrorCode::kIo);
  ExpectFolderHolds(folder, {});
}

}  // namespace
}  // namespace msprobe::formats
