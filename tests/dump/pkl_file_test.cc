#include "engine/dump/pkl/pkl_file.h"

#include <gmock/gmock.h>

#include "engine/dump/pkl/pkl_names.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/tensors/tensor_data.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kData = std::string(MSPROBE_RECORDED) + "/dumps/";

std::string Described(std::string_view text) {
  const std::optional<PklName> name = ParsePklName(text);
  if (!name) return "none";
  return name->Api() + " " + std::to_string(name->number) + " " + std::to_string(name->call) +
         (name->direction == Direction::kForward ? " forward " : " backward ") +
         (name->part == PklPart::kInput    ? "input"
          : name->part == PklPart::kOutput ? "output"
                                           : "stack") +
         std::string(name->rest);
}

TEST(PklName, EveryGenerationsForm) {
  EXPECT_EQ(Described("7_Functional_relu_forward_input.0"), "Functional.relu 7 -1 forward input.0");
  EXPECT_EQ(Described("99_VF_lstm_forward_input.1.0"), "VF.lstm 99 -1 forward input.1.0");
  EXPECT_EQ(Described("Tensor___add___1_backward_output"), "Tensor.__add__ -1 1 backward output");
  EXPECT_EQ(Described("Functional_batch_norm_12_forward_stack_info"),
            "Functional.batch_norm -1 12 forward stack");
  EXPECT_EQ(Described("Functional.conv2d.0.forward.input.0"),
            "Functional.conv2d -1 0 forward input.0");
  EXPECT_EQ(Described("Torch_add_forward_input.0"), "Torch.add -1 -1 forward input.0");
  EXPECT_EQ(Described("my_block_3_forward_output"), "my_block -1 3 forward output");
  EXPECT_EQ(Described("Torch_get_output_layer_forward_input_2_forward_input.0"),
            "Torch.get_output_layer_forward_input -1 2 forward input.0");
  EXPECT_EQ(Described("loss"), "none");
  EXPECT_EQ(Described(""), "none");
  EXPECT_EQ(WithoutLineNumber("7_a"), "a");
  EXPECT_EQ(WithoutLineNumber("7"), "7");
}

Dump Read(const std::string& text, std::vector<int32_t>* segments = nullptr) {
  static std::string kept;
  kept = text;
  std::vector<int32_t> own;
  Dump dump;
  const Status status = ReadPklLines("d.pkl", kept, &dump, segments != nullptr ? segments : &own);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return dump;
}

std::string PklTensor(const std::string& name) {
  return "[\"" + name + "\", 0, [], \"torch.float32\", [2, 3], [1.5, -2.0, 0.25]]\n";
}

TEST(PklFile, RecordedDumpsOfPtdbg) {
  const Result<Dump> dump = ReadDump(kData + "ptdbg_4.1/api_stack/base/step0_v3.0");
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_EQ(dump->dialect, Dialect::kPtdbg1To4);
  EXPECT_EQ(dump->task, Task::kTensor);
  EXPECT_EQ(dump->records.size(), 9u);
  const Record& record = dump->records[1];
  EXPECT_EQ(record.name, "Functional_linear_0_forward");
  EXPECT_EQ(record.api, "Functional.linear");
  EXPECT_EQ(record.call, 0);
  ASSERT_GE(record.stack, 0);
  EXPECT_THAT(std::string(dump->stacks[record.stack][0]), HasSubstr("line 58, in __call__"));
  for (const Leaf& leaf : dump->leaves) {
    if (leaf.kind != LeafKind::kTensor) continue;
    const Result<formats::TensorFile> tensor = ReadTensorData(*dump, leaf);
    ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
    EXPECT_EQ(ShapeText(tensor->shape), leaf.shape);
  }
  const Result<Dump> summary = ReadDump(kData + "ptdbg_4.1/summary/base");
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->task, Task::kStatistics);
  EXPECT_EQ(summary->records.size(), 24u);
}

TEST(PklFile, FormsOfTheLater) {
  Dump dump = Read(R"(["Torch_a_0_forward_input.0", 0, [], "torch.int64", [2], [2, 1, 1.5, "Nan"]]
["Torch_a_0_forward_input.1", 0, [], "<class 'bool'>", "[]", [true, true, true]]
["Torch_a_0_forward_input.2", 0, [], "torch.bool", [0], []]
)");
  EXPECT_EQ(dump.dialect, Dialect::kPtdbg5);
  EXPECT_EQ(dump.leaves[0].norm, "");
  EXPECT_EQ(dump.leaves[0].max_value, 2);
  EXPECT_EQ(dump.leaves[1].value, "True");
  EXPECT_EQ(dump.leaves[1].type, "bool");
  EXPECT_FALSE(dump.leaves[2].has_stats);
  dump = Read(R"(["Torch.a.0.forward.input.0", 0, "0123abcd", "torch.float32", [2], []])");
  EXPECT_EQ(dump.dialect, Dialect::kPtdbg6);
  EXPECT_TRUE(dump.has_checksums);
  EXPECT_EQ(dump.leaves[0].checksum, "0123abcd");
}

TEST(PklFile, OneLineOfSeveralValuesAsTheFirstPtdbgWroteIt) {
  const Dump dump = Read(
      R"(["7_Torch_a_forward_stack_info", [["net.py", "18", "f", "y"], ["run.py", 4, "<module>", null]]])"
      R"(["7_Torch_a_forward_stack_info.0", ["net.py", "18", "f", "y"]])"
      R"(["7_Torch_a_forward_stack_info.0.0", "net.py"])"
      "\n" +
      PklTensor("7_Torch_a_forward_input.0"));
  EXPECT_EQ(dump.dialect, Dialect::kPtdbgFirst);
  ASSERT_EQ(dump.records.size(), 1u);
  ASSERT_EQ(dump.stacks.size(), 1u);
  EXPECT_THAT(dump.stacks[0], ElementsAre("File net.py, line 18, in f, \n y",
                                          "File run.py, line 4, in <module>, \n "));
  EXPECT_TRUE(dump.complete);
}

// In the oldest dialect, the backward "input" is the result of the call.
TEST(PklFile, LabelsOfTheFirstBackward) {
  const std::string lines = PklTensor("3_Torch_a_backward_input.0") +
                            PklTensor("3_Torch_a_backward_output.0") +
                            PklTensor("4_Torch_a_forward_input.0");
  const Dump dump = Read(lines);
  EXPECT_EQ(dump.leaves[0].slot, Slot::kInput);
  EXPECT_EQ(dump.leaves[0].name, "3_Torch_a_backward_output.0");
  EXPECT_EQ(dump.leaves[1].slot, Slot::kOutput);
  EXPECT_EQ(dump.leaves[2].slot, Slot::kInput);
}

TEST(PklFile, BackwardCallsOfNumberedLinesRunInReverse) {
  const Dump dump =
      Read(PklTensor("0_Torch_a_forward_input.0") + PklTensor("1_Torch_a_forward_input.0") +
           PklTensor("2_Torch_a_backward_input.0") + PklTensor("3_Torch_a_backward_input.0"));
  EXPECT_EQ(dump.records[2].call, 1);
  EXPECT_EQ(dump.records[3].call, 0);
}

TEST(PklFile, HooksGroupsTheirNumberedLines) {
  const auto line = [](const std::string& name) {
    return "[\"" + name + "\", [1, 2, 2, 1, 1.5], \"torch.float32\", [2]]\n";
  };
  const Dump dump = Read(line("0_Torch_a_forward_input.0") + line("1_Torch_a_forward_input.1") +
                         line("2_Torch_a_forward_output") + line("3_Torch_a_forward_input.0") +
                         line("4_Torch_a_forward_output") + line("5_Torch_a_forward_input.0"));
  EXPECT_EQ(dump.dialect, Dialect::kHooks);
  ASSERT_EQ(dump.records.size(), 3u);
  EXPECT_EQ(dump.records[0].leaf_count, 3u);
  EXPECT_EQ(dump.records[1].leaf_count, 2u);
  EXPECT_TRUE(dump.sampled);
  EXPECT_EQ(dump.leaves[0].max, "2");
  EXPECT_EQ(dump.leaves[0].mean, "1.5");
}

TEST(PklFile, ThirteenElementsAreASampleWhenTheOthersAre) {
  const std::string thirteen =
      R"(["0_Torch_a_forward_input.0", [1,2,3,4,5,6,7,8,9,10,11,12,13], "torch.float32", [13]])"
      "\n";
  EXPECT_EQ(Read(thirteen + R"(["1_Torch_a_forward_output", [7, 8], "torch.float32", [2]])")
                .leaves[0]
                .max,
            "");
  EXPECT_EQ(Read(thirteen + R"(["1_Torch_a_forward_output", [7, 7, 7, 7], "torch.float32", [1]])")
                .leaves[0]
                .max,
            "11");
}

TEST(PklFile, SegmentsOfAFileThatWasAppendedTo) {
  std::vector<int32_t> segments;
  Read(PklTensor("3_Torch_a_forward_input.0") + PklTensor("4_Torch_b_forward_input.0") +
           PklTensor("0_Torch_a_forward_input.0"),
       &segments);
  EXPECT_THAT(segments, ElementsAre(0, 0, 1));
}

TEST(PklFile, DamagedLinesAreLeftOutAndCounted) {
  Dump dump = Read(PklTensor("Torch_a_0_forward_input.0") + "[\"Torch_b_0_forward_inp\n" +
                   PklTensor("Torch_c_0_forward_input.0") + "[\"Torch_d_0_forward_output\", 0, [");
  EXPECT_EQ(dump.records.size(), 2u);
  EXPECT_FALSE(dump.complete);
  EXPECT_THAT(dump.note.English(),
              HasSubstr("1 line could not be read, the first is line 2: d.pkl:"));
  EXPECT_THAT(dump.note.English(), HasSubstr("bytes of an unfinished line ignored"));
  dump = Read(PklTensor("Torch_a_0_forward_input.0") + PklTensor("loss"));
  EXPECT_THAT(dump.note.English(),
              HasSubstr("1 name of another form left out, the first \"loss\""));
}

TEST(PklFile, NothingToReadIsAnError) {
  Dump dump;
  std::vector<int32_t> segments;
  EXPECT_THAT(
      ReadPklLines("d.pkl", "[\"loss\", 1, [], \"t\", [1], []]", &dump, &segments).message(),
      HasSubstr("other names, the first \"loss\""));
  EXPECT_THAT(ReadPklLines("d.pkl", "[1]\n", &dump, &segments).message(), HasSubstr("d.pkl:1"));
}

}  // namespace
}  // namespace msprobe::dump
