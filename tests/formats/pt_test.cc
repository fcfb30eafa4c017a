#include "engine/formats/tensors/pt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/formats/archive/zip.h"
#include "tests/formats/golden.h"

namespace msprobe::formats {
namespace {

using namespace std::string_literals;  // NOLINT: pickles have NUL bytes

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
      {"before_1_6.pt", "before version 1.6"}, {"sparse.pt", "tensor.to_dense()"},
      {"quantized.pt", "tensor.dequantize()"}, {"meta.pt", "a meta tensor has no data"},
      {"module.pt", "module.state_dict()"},    {"numpy.pt", "numpy.save"},
      {"storage.pt", "bare storage"},          {"torchscript.pt", "TorchScript"},
  };
  for (const auto& [name, text] : cases) {
    const Result<PtFile> file = ReadPt(DataPath(std::string("pt/refused/") + name));
    ASSERT_FALSE(file.ok()) << name;
    EXPECT_THAT(file.status().ToString(), HasSubstr(text)) << name;
    EXPECT_THAT(file.status().ToString(), HasSubstr(name));
  }
}

TEST(PtRead, SaysHowManyTensorsThereAre) {
  EXPECT_THAT(ReadPtTensor(DataPath("pt/tree.pt")).status().message(),
              HasSubstr("expected one tensor, found 3"));
  EXPECT_TRUE(ReadPtTensor(DataPath("pt/scalar.pt")).ok());
}

TEST(PtRead, ADamagedElementIsAnErrorNotADifference) {
  std::string bytes = ReadWhole(DataPath("pt/dtype_float32.pt"));
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

// Reads an archive with this pickle and 16 bytes of storage.
Status ReadPickle(const std::string& opcodes, const std::string& storage = "0123456789abcdef") {
  ZipComposer zip;
  zip.Add("a/data.pkl", "\x80\x02" + opcodes + ".");
  zip.Add("a/data/0", storage, 64);
  zip.Finish();
  const std::string path = TestFolder() + "/hostile.pt";
  EXPECT_TRUE(WriteFileAtomically(path, zip.Take()).ok());
  return ReadPt(path).status();
}

struct Hostile {
  std::string function = "_rebuild_tensor_v2";
  std::string storage = "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\4tQ"s;
  std::string offset = "K\0"s, shape = "K\4\x85", strides = "K\1\x85", grad = "\x89", hooks = "N",
              rest;
  Status Read() const {
    return ReadPickle("ctorch._utils\n" + function + "\n(" + storage + offset + shape + strides +
                      grad + hooks + rest + "tR");
  }
};
constexpr char kLarge[] = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";  // 2^63 - 1

TEST(PtRead, ATensorLiesInsideItsStorage) {
  EXPECT_TRUE(Hostile{}.Read().ok()) << Hostile{}.Read().message();
  const std::string large = kLarge, minus = "J\xff\xff\xff\xff";
  const std::pair<Hostile, const char*> cases[] = {
      {{.offset = "K\1"}, "inside its storage of 4 elements"},
      {{.offset = minus}, "inside its storage"},
      {{.offset = large}, "inside its storage"},
      {{.offset = "K\5", .shape = "K\0\x85"s}, "inside its storage"},
      {{.shape = "K\5\x85"}, "found offset 0, shape [5], strides [1]"},
      {{.shape = minus + "\x85"}, "not negative"},
      {{.shape = large + "\x85"}, "at most 1 TiB"},
      {{.shape = large + large + "\x86", .strides = "K\1K\1\x86"}, "at most 1 TiB"},
      {{.shape = "J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86", .strides = "K\0K\0\x86"s},
       "at most 1 TiB"},
      {{.strides = minus + "\x85"}, "not negative"},
      {{.strides = large + "\x85"}, "inside its storage"},
      {{.strides = "K\2\x85"}, "inside its storage"},
      {{.strides = "K\1K\1\x86"}, "as many strides"},
      {{.shape = "K\2K\2\x86", .strides = large + large + "\x86"}, "inside its storage"},
      {{.shape = "(" + std::string(200, 'N') + "t"}, "64 dimensions"},
      {{.shape = "N"}, "a tuple of integers"},
      {{.shape = "G\0\0\0\0\0\0\0\0\x85"s}, "another value"},
      {{.grad = "N"}, "requires_grad"},
  };
  for (const auto& [hostile, text] : cases) {
    const Status status = hostile.Read();
    EXPECT_EQ(status.code(), ErrorCode::kInvalidDump) << text;
    EXPECT_THAT(status.message(), HasSubstr(text));
    EXPECT_TRUE(status.offset().has_value());
  }
}

TEST(PtRead, AStorageIsWhatTheArchiveHas) {
  const auto storage = [](const std::string& type, const std::string& key,
                          const std::string& count) {
    return Hostile{.storage = "(X\7\0\0\0storagec"s + type + "\nX\1\0\0\0"s + key +
                              "X\3\0\0\0cpu"s + count + "tQ"}
        .Read();
  };
  EXPECT_TRUE(storage("torch\nFloatStorage", "0", "K\4").ok());
  EXPECT_THAT(storage("torch\nFloatStorage", "0", "K\3").message(),
              HasSubstr("a storage of 16 bytes"));
  EXPECT_THAT(storage("torch\nFloatStorage", "0", "K\5").message(),
              HasSubstr("5 elements of 4 bytes"));
  EXPECT_THAT(storage("torch\nDoubleStorage", "0", "K\4").message(),
              HasSubstr("a storage of 16 bytes"));
  EXPECT_THAT(storage("torch\nFloatStorage", "0", kLarge).message(),
              HasSubstr("a storage of 16 bytes"));
  EXPECT_THAT(storage("torch\nFloatStorage", "0", "J\xff\xff\xff\xff").message(),
              HasSubstr("a storage of 16 bytes"));
  EXPECT_THAT(storage("torch\nFloatStorage", "1", "K\4").message(),
              HasSubstr("an entry \"a/data/1\" in the archive"));
  EXPECT_THAT(storage("torch.storage\nUntypedStorage", "0", "K\x10").message(),
              HasSubstr("untyped"));
  EXPECT_THAT(storage("torch\nfloat32", "0", "K\4").message(), HasSubstr("a storage's class"));
  EXPECT_FALSE(Hostile{.storage = "NQ"}.Read().ok());
  EXPECT_FALSE(Hostile{.storage = ")Q"}.Read().ok());
  EXPECT_FALSE(Hostile{.storage = "N"}.Read().ok());
}

TEST(PtRead, CallsThatAreNotTensorsAreRefused) {
  const std::string tensor = "ctorch._utils\n_rebuild_tensor_v2\n";
  EXPECT_FALSE(ReadPickle(tensor + ")R").ok());
  EXPECT_FALSE(ReadPickle("ctorch._utils\n_rebuild_tensor_v3\n(NNNNNNNtR").ok());
  EXPECT_FALSE(ReadPickle("ctorch\nTensor\n)R").ok());
  EXPECT_FALSE(ReadPickle("ctorch\nFloatStorage\n)R").ok());
  EXPECT_FALSE(ReadPickle("ctorch.nn.parameter\nParameter\n)R").ok());
  EXPECT_FALSE(ReadPickle("ctorch._utils\n_rebuild_parameter\n(N\x89NtR").ok());
  EXPECT_FALSE(ReadPickle("ctorch._utils\n_rebuild_parameter\n(ctorch\nSize\n)R\x89NtR").ok());
  EXPECT_FALSE(ReadPickle("ctorch._tensor\n_rebuild_from_type_v2\n(NNNNtR").ok());
  EXPECT_FALSE(
      ReadPickle("ctorch._tensor\n_rebuild_from_type_v2\n(ctorch\nSize\nctorch\nTensor\n))tR")
          .ok());
  EXPECT_TRUE(ReadPickle("ctorch\nSize\n)\x85R").ok()) << "a plain value without tensors";
  EXPECT_THAT(ReadPickle("}(X\1\0\0\0kNX\1\0\0\0kNu"s).message(), HasSubstr("each key once"));
}

// Lists that each contain the same list twice expand from a few bytes to 2^64 values; a list that
// contains itself never ends.
TEST(PtRead, BombsOfSharedValuesAreRefused) {
  std::string bomb = "]q\0"s;
  for (int i = 0; i < 64; ++i)
    bomb += std::string("h") + static_cast<char>(i) + "h" + static_cast<char>(i) + "\x86q" +
            static_cast<char>(i + 1);
  std::string whole = "(" + bomb + "t";
  EXPECT_THAT(ReadPickle(whole).message(), HasSubstr("values, found more"));
  EXPECT_THAT(ReadPickle("]q\0h\0a"s).message(), HasSubstr("nesting of at most 256"));
}

TEST(PtRead, BigEndianAndForeignArchives) {
  const auto read = [](const std::vector<std::pair<std::string, std::string>>& entries) {
    const std::string path = TestFolder() + "/t.pt";
    EXPECT_TRUE(WriteFileAtomically(path, Archive(entries)).ok());
    return ReadPt(path).status();
  };
  const std::string none = "\x80\x02N.";
  EXPECT_TRUE(read({{"a/data.pkl", none}, {"a/byteorder", "little"}}).ok());
  EXPECT_THAT(read({{"a/data.pkl", none}, {"a/byteorder", "big"}}).message(),
              HasSubstr("big-endian"));
  EXPECT_THAT(read({{"a/data.pkl", none}, {"a/byteorder", "middle"}}).message(),
              HasSubstr("middle"));
  EXPECT_THAT(read({{"a/data.pkl", none}, {"b/data.pkl", none}}).message(),
              HasSubstr("one data.pkl"));
  EXPECT_THAT(read({{"arr_0.npy", "x"}}).message(), HasSubstr("the first \"arr_0.npy\""));
}

// Other programs write data at any offset; elements in memory must still be aligned.
TEST(PtRead, UnalignedStoragesAreCopied) {
  for (int padding = 0; padding < 17; ++padding) {
    const std::string opcodes =
        "ctorch._utils\n_rebuild_tensor_v2\n(" + Hostile{}.storage + "K\0K\4\x85K\1\x85\x89NtR."s;
    const std::string path = TestFolder() + "/t.pt";
    const std::string bytes =
        Archive({{"a/data.pkl", "\x80\x02" + opcodes},
                 {"a/" + std::string(static_cast<size_t>(padding) + 1, 'x'), ""},
                 {"a/data/0", "0123456789abcdef"}});
    ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
    const Result<TensorFile> tensor = ReadPtTensor(path);
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->data) % 16, 0u);
    EXPECT_EQ(Elements(tensor->view()), "0123456789abcdef");
  }
}

TEST(PtReader, TheChecksumIsLeftToACallerWhereItIsOfTheWholeTensor) {
  for (const GoldenTensor& golden : GoldenTensors(".pt")) {
    if (!golden.name.empty()) continue;
    SCOPED_TRACE(golden.file);
    const Result<TensorFile> tensor =
        ReadPtTensor(*MappedFile::Open(golden.file), {}, Verify::kByCaller);
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    if (tensor->crc32) {
      EXPECT_EQ(*tensor->crc32, Crc32(Elements(tensor->view())));
    }
  }
  // The last element is changed: the reader reports it, or leaves the check to the caller.
  const float values[] = {1, 2, 3, 4};
  const int64_t shape = 4;
  const std::string path = TestFolder() + "/t.pt";
  ASSERT_TRUE(WritePt(path, {.data = values, .ndim = 1, .shape = &shape}).ok());
  std::string bytes = ReadWhole(path);
  bytes[bytes.find(std::string_view(reinterpret_cast<const char*>(values), sizeof(values))) + 15] ^=
      1;
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
  EXPECT_THAT(ReadPtTensor(path).status().message(), HasSubstr("the file is damaged"));
  const Result<TensorFile> tensor = ReadPtTensor(*MappedFile::Open(path), {}, Verify::kByCaller);
  ASSERT_TRUE(tensor.ok()) << tensor.status().message();
  EXPECT_TRUE(tensor->crc32.has_value());
  EXPECT_NE(*tensor->crc32, Crc32(Elements(tensor->view())));
}

TEST(PtWrite, RoundTripKeepsEveryBit) {
  const std::string path = TestFolder() + "/copy.pt";
  for (const GoldenTensor& golden : GoldenTensors(".pt")) {
    if (!golden.name.empty()) continue;
    SCOPED_TRACE(golden.file);
    const Result<TensorFile> tensor = ReadPtTensor(golden.file);
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    const PtWriteOptions options{.requires_grad = golden.requires_grad,
                                 .is_parameter = golden.is_parameter};
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
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read.tensor.data) % 64, 0u)
        << "a tensor starts on a cache line";
  }
  ExpectFolderHolds(TestFolder(), {"copy.pt"});
}

TEST(PtWrite, WritesOnlyTheViewedElements) {
  std::vector<float> big(100000, 1.0f);
  const int64_t shape[] = {10}, strides[] = {10000};
  const std::string path = TestFolder() + "/few.pt";
  ASSERT_TRUE(
      WritePt(path, {.data = big.data(), .ndim = 1, .shape = shape, .strides = strides}).ok());
  EXPECT_LT(ReadWhole(path).size(), 1000u);
}

TEST(PtWrite, TheFileIsTheSameHoweverItIsWritten) {
  // From some size on, data are written in pieces, with a checksum thread: sizes around the limits.
  ThreadPool pool(2);
  for (const int64_t size : {0, 1, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 1 << 20, 3000001}) {
    std::vector<uint8_t> data(static_cast<size_t>(size));
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * i >> 7);
    const TensorView view{.data = data.data(), .dtype = DType::kUInt8, .ndim = 1, .shape = &size};
    const std::string alone = TestFolder() + "/alone.pt", shared = TestFolder() + "/shared.pt";
    ASSERT_TRUE(WritePt(alone, view).ok());
    ASSERT_TRUE(WritePt(shared, view, {}, &pool).ok());
    EXPECT_EQ(ReadWhole(alone), ReadWhole(shared)) << size;
    const Result<TensorFile> read = ReadPtTensor(shared);  // verifies the checksum
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(ElementsCrc(read->view()), ElementsCrc(view)) << size;
  }
}

TEST(PtLayout, PrefixDataSuffixIsTheFile) {
  const int64_t shape[] = {3};
  const float data[] = {1, 2, 3};
  const std::string_view bytes(reinterpret_cast<const char*>(data), sizeof(data));
  const Result<PtLayout> layout =
      MakePtLayout(DType::kFloat32, shape, {.archive_name = "Tensor.add.0"});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->prefix().size() % 64, 0u);
  EXPECT_EQ(layout->data_size(), sizeof(data));
  const std::string path = TestFolder() + "/t.pt";
  ASSERT_TRUE(WritePt(path, *layout, bytes).ok());
  const std::string file = ReadWhole(path);
  EXPECT_EQ(file,
            std::string(layout->prefix()) + std::string(bytes) + layout->Suffix(Crc32(bytes)));
  EXPECT_THAT(file, HasSubstr("Tensor.add.0/data.pkl"));
  EXPECT_EQ(WritePt(path, *layout, "short").code(), ErrorCode::kInternal);
}

TEST(PtLayout, RefusesWhatNoTensorHas) {
  const int64_t negative[] = {-1}, huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_EQ(MakePtLayout(DType::kFloat32, negative).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(MakePtLayout(DType::kFloat32, huge).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(MakePtLayout(DType::kFloat32, {}, {.archive_name = "a/b"}).status().code(),
            ErrorCode::kInvalidArgument);
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
  ASSERT_TRUE(MakeDirectories(folder + "/t.pt").ok());  // a directory in place of the file
  EXPECT_EQ(WritePt(folder + "/t.pt", {.data = &value}).code(), ErrorCode::kIo);
  ExpectFolderHolds(folder, {"t.pt"});
}

}  // namespace
}  // namespace msprobe::formats
