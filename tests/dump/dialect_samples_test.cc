// Reads the samples of tests/data/dialects, one for each dialect.
#include <gmock/gmock.h>

#include "engine/dump/read/reader.h"
#include "engine/dump/tensors/storage_folder.h"
#include "engine/dump/tensors/tensor_data.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

using testing::HasSubstr;

struct Sample {
  const char* path;
  const char* dialect;
  size_t calls, values, with_data;  // with_data: elements can be read
  bool sampled = false, checksums = false;
  const char* stack = "";  // part of the innermost frame of the first call
  const char* note = "";
};

class DialectSamples : public testing::TestWithParam<Sample> {};

TEST_P(DialectSamples, AreRead) {
  const Sample& sample = GetParam();
  const Result<Dump> dump = ReadDump(std::string(MSPROBE_TEST_DATA) + "/dialects/" + sample.path);
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_EQ(dump->DialectName(), sample.dialect);
  EXPECT_EQ(dump->records.size(), sample.calls);
  EXPECT_EQ(dump->leaves.size(), sample.values);
  EXPECT_EQ(dump->sampled, sample.sampled);
  EXPECT_EQ(dump->has_checksums, sample.checksums);
  EXPECT_THAT(dump->note.English(), HasSubstr(sample.note));
  EXPECT_TRUE(sample.note[0] != '\0' || dump->note.empty()) << dump->note.English();
  size_t with_data = 0;
  for (const Leaf& leaf : dump->leaves) {
    if (!HasTensorData(leaf)) continue;
    const Result<formats::TensorFile> tensor = ReadTensorData(*dump, leaf);
    with_data += tensor.ok();
    // Flattened elements get their shape back; samples cannot.
    if (tensor.ok() && !dump->sampled && dump->dialect != Dialect::kTensors) {
      EXPECT_EQ(ShapeText(tensor->shape), leaf.shape) << leaf.name.view();
    }
  }
  EXPECT_EQ(with_data, sample.with_data);
  const int32_t stack = dump->records[0].stack;
  ASSERT_EQ(stack >= 0, sample.stack[0] != '\0');
  if (stack >= 0) {
    EXPECT_THAT(std::string(dump->stacks[stack][0]), HasSubstr(sample.stack));
  }
}

constexpr char kNet[] = "/w/net.py";
INSTANTIATE_TEST_SUITE_P(
    Dialects, DialectSamples,
    testing::Values(Sample{"hooks_sampled/npu.pkl", "torch_npu.hooks", 2, 4, 4, true},
                    Sample{"hooks_full/npu.pkl", "torch_npu.hooks", 1, 2, 2},
                    Sample{"hooks_overflow", "torch_npu.hooks", 1, 2, 2, false, false, kNet},
                    Sample{"ptdbg_0.1/npu_dump.pkl", "ptdbg_ascend 0.1", 2, 4, 4},
                    Sample{"ptdbg_0.1_stack/npu_dump.pkl", "ptdbg_ascend 0.1", 1, 2, 2, false,
                           false, kNet},
                    Sample{"ptdbg_0.1_broken", "ptdbg_ascend 0.1", 2, 3, 0, false, false, kNet,
                           "1 line could not be read, the first is line 4"},
                    Sample{"ptdbg_0.1_overflow", "ptdbg_ascend 0.1", 1, 2, 2, false, false, kNet},
                    Sample{"ptdbg_2.0", "ptdbg_ascend 1 to 4", 1, 8, 4, false, false, kNet},
                    Sample{"ptdbg_3.4_inside", "ptdbg_ascend 1 to 4", 1, 2, 0},
                    Sample{"ptdbg_3.4_outside", "ptdbg_ascend 1 to 4", 1, 2, 0},
                    Sample{"ptdbg_4.1_overflow", "ptdbg_ascend 1 to 4", 1, 2, 0},
                    Sample{"ptdbg_5.0", "ptdbg_ascend 5", 1, 3, 0},
                    Sample{"ptdbg_5.0_md5", "ptdbg_ascend 5", 1, 2, 0, false, true},
                    Sample{"ptdbg_5.0_crc32", "ptdbg_ascend 5", 1, 2, 0, false, true},
                    Sample{"ptdbg_6.0", "ptdbg_ascend 6", 2, 3, 0, false, false, kNet},
                    Sample{"hooks_async", "torch_npu.hooks", 1, 2, 2}),
    [](const auto& sample) {
      std::string name = sample.param.path;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name;
    });

TEST(DialectSamples, StoragesAreSeenThroughShapeAndStrides) {
  const Result<Dump> dump = ReadDump(std::string(MSPROBE_TEST_DATA) + "/dialects/hooks_async");
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  // input of a backward call is what it makes.
  EXPECT_EQ(dump->leaves[0].name, "17_Functional_relu_backward_output.0");
  EXPECT_EQ(dump->leaves[0].slot, Slot::kInput);
  const Result<formats::TensorFile> tensor = ReadTensorData(*dump, dump->leaves[0]);
  ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
  std::vector<float> values(6);
  CopyContiguous(tensor->view(), values.data());
  EXPECT_THAT(values, testing::ElementsAre(1.5F, 0.25F, -0.5F, -2.0F, 3.0F, 0.125F));
}

// Each call has both sides, whichever was written first.
TEST(StorageFolder, CallsHaveBothSidesInEitherOrder) {
  const std::string npy = ReadWhole(std::string(MSPROBE_TEST_DATA) + "/npy/f4_c.npy");
  for (const bool output_first : {true, false}) {
    const TemporaryFolder folder;
    int index = 0;
    const auto write = [&](const std::string& side) {
      folder.Write(
          std::to_string(index++) + "_" + side + "0_shape[2,3]_stride[3,1]_offset[0]_format[2].npy",
          npy);
    };
    write("Tensor_sum_backward_input");  // the other value is no tensor: no file
    for (int call = 0; call < 3; ++call) {
      write(std::string("Functional_relu_backward_") + (output_first ? "output" : "input"));
      write(std::string("Functional_relu_backward_") + (output_first ? "input" : "output"));
    }
    const Result<Dump> dump = ReadDump(folder.path());
    ASSERT_TRUE(dump.ok()) << dump.status().ToString();
    ASSERT_EQ(dump->records.size(), 4u);
    for (size_t i = 1; i < 4; ++i) EXPECT_EQ(dump->records[i].leaf_count, 2u);
  }
}

TEST(StorageName, TakesTheWholeFormAndNothingElse) {
  const auto name = ParseStorageName(
      "16_Functional_relu_backward_input12_shape[2,1]_stride[1,1]_offset[3]_format[29].npy");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->index, 16);
  EXPECT_EQ(name->side, "Functional_relu_backward_input");
  EXPECT_EQ(name->place, 12);
  EXPECT_THAT(name->shape, testing::ElementsAre(2, 1));
  EXPECT_EQ(name->offset, 3);
  EXPECT_EQ(name->format, 29);
  EXPECT_TRUE(ParseStorageName("0_T_a_forward_output0_shape[]_stride[]_offset[0]_format[2].npy"));
  for (const char* other :
       {"", "a.npy", "16_Functional_relu_backward_input0.npy",
        "16_F_relu_backward_input_shape[2]_stride[1]_offset[0]_format[2].npy",
        "16_F_relu_backward_input0_shape[2,]_stride[1]_offset[0]_format[2].npy",
        "16_F_relu_backward_input0_shape[2]_stride[1,1]_offset[0]_format[2].npy",
        "16_F_relu_backward_input0_shape[-2]_stride[1]_offset[0]_format[2].npy",
        "16_F_relu_backward_input0_shape[99999999999999999999]_stride[1]_offset[0]_format[2].npy",
        "16_F_relu_backward_input0_shape[2]_stride[1]_offset[0]_format[2].npyx"}) {
    EXPECT_FALSE(ParseStorageName(other)) << other;
  }
}

TEST(StorageName, ATensorBeyondItsStorageIsRefused) {
  const std::vector<float> storage(6);
  for (const auto& [shape, strides, offset, fits] :
       {std::tuple<std::vector<int64_t>, std::vector<int64_t>, int64_t, bool>{
            {2, 3}, {3, 1}, 0, true},
        {{2, 3}, {3, 1}, 1, false},
        {{7}, {1}, 0, false},
        {{2}, {int64_t{1} << 62}, 0, false},
        {{0, 9}, {9, 1}, 0, true},
        {{9}, {0}, 5, true}}) {
    formats::TensorFile tensor{
        .dtype = DType::kFloat32, .shape = {6}, .strides = {1}, .data = storage.data()};
    const StorageName name{.shape = shape, .strides = strides, .offset = offset};
    EXPECT_EQ(ViewStorage(name, "a.npy", &tensor).ok(), fits);
  }
}

TEST(DialectSamples, ScalarsEmptyStatisticsAndNestedPlaces) {
  const Result<Dump> dump = ReadDump(std::string(MSPROBE_TEST_DATA) + "/dialects/ptdbg_2.0");
  ASSERT_TRUE(dump.ok());
  const auto leaf = [&](std::string_view name) -> const Leaf& {
    for (const Leaf& one : dump->leaves) {
      if (one.name == name) return one;
    }
    ADD_FAILURE() << name;
    return dump->leaves[0];
  };
  EXPECT_EQ(leaf("VF_lstm_99_forward_input.1.1").shape, "[2, 3]");
  EXPECT_EQ(leaf("VF_lstm_99_forward_input.3").kind, LeafKind::kScalar);
  EXPECT_EQ(leaf("VF_lstm_99_forward_input.3").value, "True");
  EXPECT_EQ(leaf("VF_lstm_99_forward_input.4").type, "float");
  EXPECT_FALSE(leaf("VF_lstm_99_forward_input.5").has_stats);
  EXPECT_EQ(leaf("VF_lstm_99_forward_input.6").shape, "[0]");
}

}  // namespace
}  // namespace msprobe::dump
