#include "engine/formats/pt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/golden.h"

namespace msprobe {
namespace {

using testing::HasSubstr;

TEST(PtRead, EveryGoldenTensorAsTorchReadsIt) {
  std::map<std::string, std::vector<GoldenTensor>> by_file;
  for (const GoldenTensor& golden : GoldenTensors(".pt")) by_file[golden.file].push_back(golden);
  for (const auto& [path, tensors] : by_file) {
    SCOPED_TRACE(path);
    const Result<PtFile> file = ReadPt(path);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    ASSERT_EQ(file->tensors.size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const PtTensor& tensor = file->tensors[i];
      EXPECT_EQ(tensor.name, tensors[i].name);
      EXPECT_EQ(DTypeShortName(tensor.tensor.dtype), tensors[i].dtype);
      EXPECT_EQ(ShapeText(tensor.tensor.shape), tensors[i].shape);
      EXPECT_EQ(tensor.requires_grad, tensors[i].requires_grad);
      EXPECT_EQ(tensor.is_parameter, tensors[i].is_parameter);
      EXPECT_EQ(ElementsCrc(tensor.tensor.view()), tensors[i].crc);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.tensor.data) % 4, 0u);
    }
  }
}

TEST(PtRead, PlainValuesOfATree) {
  for (const char* name : {"pt/tree.pt", "pt/tree_protocol5.pt"}) {
    SCOPED_TRACE(name);
    const Result<PtFile> file = ReadPt(DataPath(name));
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    const PickleTree& tree = file->tree;
    ASSERT_EQ(tree.root().kind, PickleKind::kDict);
    EXPECT_EQ(tree[tree.root().items[0]].text, "list");
    const PickleNode& tuple = tree[tree[tree.root().items[1]].items[1]];
    ASSERT_EQ(tuple.kind, PickleKind::kTuple);
    ASSERT_EQ(tuple.items.size(), 9u);
    EXPECT_EQ(tree[tuple.items[1]].kind, PickleKind::kNone);
    EXPECT_EQ(tree[tuple.items[2]].integer, 1);
    EXPECT_EQ(tree[tuple.items[3]].integer, -3);
    EXPECT_EQ(tree[tuple.items[4]].integer, int64_t{1} << 40);
    EXPECT_EQ(tree[tuple.items[5]].kind, PickleKind::kBigInt);
    EXPECT_EQ(tree[tuple.items[6]].real, 2.5);
    EXPECT_EQ(tree[tuple.items[7]].text, "text \xc3\xa9");
  }
}

TEST(PtRead, TensorsThatShareAStorageShareMemory) {
  const Result<PtFile> file = ReadPt(DataPath("pt/tree.pt"));
  ASSERT_TRUE(file.ok());
  const char* first = static_cast<const char*>(file->tensors[0].tensor.data);
  EXPECT_EQ(static_cast<const char*>(file->tensors[1].tensor.data), first + 4);
  EXPECT_EQ(file->tensors[2].tensor.data, first);
}

TEST(PtRead, RefusesInOneClearLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"before_1_6.pt", "before version 1.6"},
      {"sparse.pt", "tensor.to_dense()"},
      {"quantized.pt", "tensor.dequantize()"},
      {"meta.pt", "a meta tensor has no data"},
      {"module.pt", "module.state_dict()"},
      {"numpy.pt", "numpy.save"},
      {"storage.pt", "bare storage"},
      {"torchscript.pt", "TorchScript"},
  };
  for (const auto& [name, text] : cases) {
    const Result<PtFile> file = ReadPt(DataPath(std::string("pt/refused/") + name));
    ASSERT_FALSE(file.ok()) << name;
    EXPECT_THAT(file.status().ToString(), HasSubstr(text)) << name;
    EXPECT_THAT(file.status().ToString(), HasSubstr(name));
  }
}

TEST(PtRead, SaysHowManyTensorsThereAre) {
  EXPECT_THAT(ReadPtTensor(DataPath("pt/tree.pt")).status().message(), HasSubstr("expected one tensor, found 3"));
  EXPECT_TRUE(ReadPtTensor(DataPath("pt/scalar.pt")).ok());
}

TEST(PtRead, ADamagedElementIsAnErrorNotADifference) {
  std::string bytes = ReadAll(DataPath("pt/dtype_float32.pt"));
  const Result<PtFile> file = ReadPt(DataPath("pt/dtype_float32.pt"));
  ASSERT_TRUE(file.ok());
  const std::string elements = Elements(file->tensors[0].tensor.view());
  bytes[bytes.find(elements)] ^= 1;
  const std::string path = TestFolder() + "/damaged.pt";
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
  EXPECT_EQ(ReadPt(path).status().code(), ErrorCode::kInvalidDump);
  EXPECT_THAT(ReadPt(path).status().message(), HasSubstr("checksum"));
  EXPECT_TRUE(ReadPt(path, {.verify_checksums = false}).ok());
}

TEST(PtWrite, RoundTripKeepsEveryBit) {
  const std::string path = TestFolder() + "/copy.pt";
  for (const GoldenTensor& golden : GoldenTensors(".pt")) {
    if (!golden.name.empty()) continue;
    SCOPED_TRACE(golden.file);
    const Result<TensorFile> tensor = ReadPtTensor(golden.file);
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    const PtWriteOptions options{.requires_grad = golden.requires_grad, .is_parameter = golden.is_parameter};
    const Status written = WritePt(path, tensor->view(), options);
    ASSERT_TRUE(written.ok()) << written.message();
    const Result<PtFile> copy = ReadPt(path);
    ASSERT_TRUE(copy.ok()) << copy.status().message();
    ASSERT_EQ(copy->tensors.size(), 1u);
    const PtTensor& read = copy->tensors[0];
    EXPECT_EQ(read.tensor.dtype, tensor->dtype);
    EXPECT_EQ(read.tensor.shape, tensor->shape);
    EXPECT_TRUE(read.tensor.view().IsContiguous());
    EXPECT_EQ(read.requires_grad, golden.requires_grad);
    EXPECT_EQ(read.is_parameter, golden.is_parameter);
    EXPECT_EQ(ElementsCrc(read.tensor.view()), golden.crc);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read.tensor.data) % 64, 0u) << "a tensor starts on a cache line";
  }
  ExpectFolderHolds(TestFolder(), {"copy.pt"});
}

TEST(PtWrite, WritesOnlyTheViewedElements) {
  std::vector<float> big(100000, 1.0f);
  const int64_t shape[] = {10}, strides[] = {10000};
  const std::string path = TestFolder() + "/few.pt";
  ASSERT_TRUE(WritePt(path, {.data = big.data(), .ndim = 1, .shape = shape, .strides = strides}).ok());
  EXPECT_LT(ReadAll(path).size(), 1000u);
}

TEST(PtLayout, PrefixDataSuffixIsTheFile) {
  const int64_t shape[] = {3};
  const float data[] = {1, 2, 3};
  const std::string_view bytes(reinterpret_cast<const char*>(data), sizeof(data));
  const Result<PtLayout> layout = MakePtLayout(DType::kFloat32, shape, {.archive_name = "Tensor.add.0"});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->prefix().size() % 64, 0u);
  EXPECT_EQ(layout->data_size(), sizeof(data));
  const std::string path = TestFolder() + "/t.pt";
  ASSERT_TRUE(WritePt(path, *layout, bytes).ok());
  const std::string file = ReadAll(path);
  EXPECT_EQ(file, std::string(layout->prefix()) + std::string(bytes) + layout->Suffix(PtChecksum(bytes)));
  EXPECT_THAT(file, HasSubstr("Tensor.add.0/data.pkl"));
  EXPECT_EQ(WritePt(path, *layout, "short").code(), ErrorCode::kInternal);
}

TEST(PtLayout, RefusesWhatNoTensorHas) {
  const int64_t negative[] = {-1}, huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_EQ(MakePtLayout(DType::kFloat32, negative).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(MakePtLayout(DType::kFloat32, huge).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(MakePtLayout(DType::kFloat32, {}, {.archive_name = "a/b"}).status().code(), ErrorCode::kInvalidArgument);
}

// 5 GiB: sizes that need the zip64 records. Only the records are made, not the data.
TEST(PtLayout, LargeTensorsUseZip64) {
  const int64_t shape[] = {int64_t{5} << 30};
  const Result<PtLayout> layout = MakePtLayout(DType::kUInt8, shape);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->data_size(), uint64_t{5} << 30);
  const std::string suffix = layout->Suffix(0x12345678);
  EXPECT_THAT(suffix, HasSubstr(std::string("PK\x06\x06", 4)));
  EXPECT_THAT(suffix, HasSubstr(std::string("PK\x06\x07", 4)));
}

TEST(PtWrite, ErrorsLeaveNothingBehind) {
  const std::string folder = TestFolder();
  const float value = 1;
  const Status status = WritePt(folder + "/no/such/folder/t.pt", {.data = &value});
  EXPECT_EQ(status.code(), ErrorCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("no/such/folder/t.pt"));
  ASSERT_TRUE(MakeDirectories(folder + "/t.pt").ok());  // a directory stands where the file should go
  EXPECT_EQ(WritePt(folder + "/t.pt", {.data = &value}).code(), ErrorCode::kIo);
  ExpectFolderHolds(folder, {"t.pt"});
}

}  // namespace
}  // namespace msprobe
