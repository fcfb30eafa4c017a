#include "engine/formats/tensors/ascend_dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/formats/archive/byte_order.h"
#include "engine/formats/tensors/npy.h"
#include "engine/formats/tensors/protobuf_fields.h"
#include "tests/formats/golden.h"

namespace msprobe::formats {
namespace {

using testing::HasSubstr;

constexpr const char* kConv = "ascend_dump/Conv2D.conv1.3.7.1697617551412398";
constexpr const char* kMul = "ascend_dump/MatMul.mul.4.7.1697617551412999";

// A field with a length: text, message, or packed numbers.
std::string Bytes(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}
std::string Small(int number, int value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}

std::string Written(const std::string& header, const std::string& data) {
  std::string bytes;
  AppendLittle<uint64_t>(&bytes, header.size());
  const std::string path = TestFolder() + "/Op.name.1.2.1697617551412398";
  EXPECT_TRUE(WriteFileAtomically(path, bytes + header + data).ok());
  return path;
}

std::string MessageOf(const std::string& header, const std::string& data) {
  return ReadAscendDump(Written(header, data)).status().message();
}

TEST(AscendDump, ReadsWhatTheLibraryOfTheFormatWrites) {
  const auto dump = ReadAscendDump(DataPath(kConv));
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_EQ(dump->version, "2.0");
  EXPECT_EQ(dump->time, 1697617551412398u);
  EXPECT_EQ(dump->op_name, "conv1");
  ASSERT_EQ(dump->tensors.size(), 3u);
  const AscendTensor &image = dump->tensors[0], &weight = dump->tensors[1],
                     &output = dump->tensors[2];
  EXPECT_TRUE(image.is_input && weight.is_input && !output.is_input);
  EXPECT_EQ(image.layout, AscendLayout::kNC1HWC0);
  EXPECT_EQ(image.original_layout, std::nullopt);
  EXPECT_THAT(image.original_shape, testing::ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(weight.layout, AscendLayout::kFractalZ);
  EXPECT_EQ(weight.index, 1);
  EXPECT_EQ(output.index, 0);
  EXPECT_EQ(output.original_layout, AscendLayout::kNHWC);
  EXPECT_THAT(output.elements.shape, testing::ElementsAre(2, 1, 4, 5, 8));
  EXPECT_EQ(output.elements.dtype, DType::kFloat32);
}

// Every tensor, brought to its original layout, is the one that NumPy padded and cut.
TEST(AscendDump, ElementsInTheirOriginalLayout) {
  int checked = 0;
  for (const auto& [path, op] : {std::pair(kConv, "Conv2D.conv1"), std::pair(kMul, "MatMul.mul")}) {
    const auto dump = ReadAscendDump(DataPath(path));
    ASSERT_TRUE(dump.ok()) << dump.status().ToString();
    for (const AscendTensor& tensor : dump->tensors) {
      if (!tensor.problem.empty() || !IsPadded(*tensor.layout)) continue;
      const std::string name = std::string(op) + (tensor.is_input ? ".input." : ".output.") +
                               std::to_string(tensor.index);
      SCOPED_TRACE(name);
      const auto expected = ReadNpy(DataPath("ascend_dump/expected/" + name + ".npy"));
      ASSERT_TRUE(expected.ok());
      const LayoutShape from{*tensor.layout, tensor.elements.shape};
      const auto original = tensor.original_layout
                                ? LayoutShape{*tensor.original_layout, tensor.original_shape}
                                : *OriginalOf(from, tensor.original_shape);
      const auto plan = PlanLayout(from, original.layout, original, 16);
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      EXPECT_EQ(plan->shape, expected->shape);
      const size_t size = DTypeSize(tensor.elements.dtype);
      std::string out(static_cast<size_t>(plan->elements) * size, '\0'), want(out);
      ConvertLayout(*plan, tensor.elements.data, size, out.data());
      CopyContiguous(expected->view(), want.data());
      EXPECT_EQ(out, want);
      ++checked;
    }
  }
  EXPECT_EQ(checked, 5);
}

TEST(AscendDump, SaysWhyATensorHasNoElements) {
  const auto dump = ReadAscendDump(DataPath(kMul));
  ASSERT_TRUE(dump.ok());
  std::vector<std::string> problems;
  for (const AscendTensor& tensor : dump->tensors) problems.push_back(tensor.problem.English());
  EXPECT_THAT(problems,
              testing::ElementsAre("", "", "the dtype DT_INT4", "", "no elements were stored", ""));
  const TensorFile& inside = dump->tensors[5].elements;  // of the header
  EXPECT_EQ(static_cast<const int32_t*>(inside.data)[1], -6);
}

TEST(AscendDump, RefusesDamagedHeaders) {
  const std::string shape = Bytes(3, Bytes(1, "\x02"));
  EXPECT_THAT(MessageOf("\x08", ""), HasSubstr(":9: expected a number"));
  EXPECT_THAT(MessageOf("\x0b", ""), HasSubstr("expected a field of proto3"));
  EXPECT_THAT(MessageOf(std::string("\0\0", 2), ""), HasSubstr("the number of a field"));
  EXPECT_THAT(MessageOf("\x32\x05"
                        "abc",
                        ""),
              HasSubstr("as many bytes as"));
  EXPECT_THAT(MessageOf("\x15"
                        "ab",
                        ""),
              HasSubstr("four or eight bytes"));
  EXPECT_THAT(MessageOf(std::string("\x10") + std::string(11, '\xff'), ""), HasSubstr("ten bytes"));
  // The output says 16 bytes, and 8 follow.
  EXPECT_THAT(MessageOf(Bytes(3, Small(1, 1) + shape + Small(6, 16)), "12345678"),
              HasSubstr("expected 16 bytes of output 0, found 8 bytes"));
  std::string many;
  for (int i = 0; i < 65; ++i) many += '\x01';
  EXPECT_THAT(MessageOf(Bytes(3, Bytes(3, Bytes(1, many))), ""), HasSubstr("at most 64 extents"));
  EXPECT_THAT(MessageOf(Bytes(4, Bytes(3, Bytes(1, std::string(9, '\xff') + '\x01'))), ""),
              HasSubstr("below 2^62"));
  const std::string path = TestFolder() + "/short";
  EXPECT_TRUE(WriteFileAtomically(path, std::string("\xff\xff\0\0\0\0\0\0x", 9)).ok());
  EXPECT_THAT(ReadAscendDump(path).status().message(), HasSubstr("a header of at most 1 bytes"));
  EXPECT_FALSE(LooksLikeAscendDump("12345678"));
}

TEST(AscendDump, ShapesThatOneByOneOrAreTooLargeForTheBytes) {
  const std::string unpacked = Bytes(3, Small(1, 2) + Small(1, 1));
  const auto dump =
      ReadAscendDump(Written(Bytes(3, Small(1, 4) + Small(2, 2) + unpacked + Small(6, 2)), "ab"));
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_THAT(dump->tensors[0].elements.shape, testing::ElementsAre(2, 1));
  // 2^60 elements of 8 bytes: the product has no int64.
  std::string huge;
  for (int i = 0; i < 8; ++i) huge += '\x80';
  huge += '\x10';
  const auto large = ReadAscendDump(
      Written(Bytes(3, Small(1, 12) + Bytes(3, Bytes(1, huge + huge)) + Small(6, 2)), "ab"));
  ASSERT_TRUE(large.ok()) << large.status().ToString();
  EXPECT_THAT(large->tensors[0].problem.English(), HasSubstr("2 bytes for float64"));
}

}  // namespace
}  // namespace msprobe::formats
