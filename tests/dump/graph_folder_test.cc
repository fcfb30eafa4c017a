#include "engine/dump/graphs/graph_folder.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "engine/dump/graphs/graph_lines.h"
#include "engine/dump/graphs/graph_names.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/source_line.h"
#include "engine/dump/tensors/tensor_data.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kMindSporeDumps = std::string(MSPROBE_RECORDED) + "/dumps/mindspore_2.10/";
const std::string kTwoByThree = ReadWhole(std::string(MSPROBE_TEST_DATA) + "/npy/f4_c.npy");

std::vector<std::string> Names(const Dump& dump) {
  std::vector<std::string> names;
  for (const Record& record : dump.records) names.emplace_back(record.name);
  return names;
}

TEST(GraphNames, FilesOfEveryVersion) {
  const auto file = ParseGraphFile(
      "MatMul.Default_network-Net_fc1-Dense_MatMul-op0.0.3.1795441006033405.input.1.DefaultFormat."
      "Float32.npy");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->type, "MatMul");
  EXPECT_EQ(file->name, "Default_network-Net_fc1-Dense_MatMul-op0");
  EXPECT_EQ(file->time, 1795441006033405u);
  EXPECT_FALSE(file->is_output);
  EXPECT_EQ(file->slot, 1);
  EXPECT_EQ(file->dtype, "Float32");
  const auto older = ParseGraphFile("Add.Default_a.b_Add-op12.2.7.1617551412398.output.0.NCHW.npy");
  ASSERT_TRUE(older);
  EXPECT_EQ(older->name, "Default_a.b_Add-op12");
  EXPECT_TRUE(older->is_output);
  EXPECT_EQ(older->dtype, "");
  for (const char* name :
       {"", ".npy", "x.npy", "input.0.npy", "a.b.1.2.3.input.npy", "a.b.1.2.x.input.0.F.D.npy",
        "a.1.2.3.input.0.F.D.npy", ".b.1.2.3.input.0.F.D.npy", "a.b.1.2.3.input.0.F.D.bin",
        "a.b.1.2.3.input.-1.F.D.npy", "a.b.1.2.3.input.99999999999.F.D.npy",
        "a.b.1.2.99999999999999999999999.input.0.F.D.npy", "a.b.1.2.3.input.0.F.D.E.npy"}) {
    EXPECT_FALSE(ParseGraphFile(name)) << name;
  }
}

TEST(GraphNames, PartsOfATrainingStep) {
  const auto part = [](std::string_view type, std::string_view name) {
    return ParseGraphOperator(type, name).part;
  };
  EXPECT_EQ(part("MatMul", "Default/fc1-Dense/MatMul-op0"), GraphPart::kForward);
  EXPECT_EQ(part("MatMul", "Gradients/Default/fc1-Dense/Grad_MatMul/MatMul-op0"),
            GraphPart::kBackward);
  EXPECT_EQ(part("MatMul", "Gradients_Default_fc1-Dense_Grad_MatMul_MatMul-op0"),
            GraphPart::kBackward);
  EXPECT_EQ(part("AssignAdd", "Default/optimizer-SGD/AssignAdd-op0"), GraphPart::kOptimizer);
  EXPECT_EQ(part("ApplyMomentum", "Default/ApplyMomentum-op0"), GraphPart::kOptimizer);
  EXPECT_EQ(part("Adam", "Default_Adam-op3"), GraphPart::kOptimizer);
  EXPECT_EQ(part("Parameter", "fc1_weight"), GraphPart::kParameter);
}

TEST(GraphNames, TheCellAroundAForwardOperator) {
  const GraphOperator op =
      ParseGraphOperator("MatMul", "Default/network-Net/_backbone-Mlp/fc1-Dense/MatMul-op12");
  EXPECT_EQ(op.stem, "Default/network-Net/_backbone-Mlp/fc1-Dense/MatMul");
  EXPECT_EQ(op.number, 12);
  EXPECT_EQ(op.module, "Cell.network._backbone.fc1.Dense");
  EXPECT_EQ(ParseGraphOperator("MatMul", "Default_fc1-Dense_MatMul-op0").module, "");
  EXPECT_EQ(ParseGraphOperator("MatMul", "Default/MatMul-op0").module, "");
  EXPECT_EQ(ParseGraphOperator("Mul", "Expand/_Muls/Mul-op0").module, "");
  EXPECT_EQ(ParseGraphOperator("X", "Default/X-op99999999999999999999").stem,
            "Default/X-op99999999999999999999");
}

TEST(GraphLines, TheInnermostFirst) {
  const GraphLines lines(
      "  %1(a) = PrimFunc_MatMul(%0)\n"
      "      # Fullname with scope: (Default/MatMul-op0)\n"
      "      # In file model.py:3~5, 4~9/    def construct(self, x):/\n"
      "      # In file model.py:4, 8~9/        y = f(x)  # a:1, b/\n"
      "      # In file model.py:4, 8~9/        y = f(x)  # a:1, b/<~~This line of code can be "
      "shared by multiple nodes, and may be duplicated./\n"
      "      # In file other.py:9~12/@ms.jit/\n"
      "      # In file other.py:10, 2~3/  return x @ x/\n"
      "      # In file nothing\n"
      "  %2(b) = PrimFunc_Mul(%1)\n"
      "      # In file lost.py:1, 2~3/  lost/\n"
      "      # Fullname with scope: (Gradients/Mul-op0)\n"
      "      # Corresponding forward node candidate:\n"
      "      # In file model.py:4, 8~9/        y = f(x)/\n"
      "      # Fullname with scope: (cut",
      {"Default/MatMul-op0", "Gradients/Mul-op0", "cut", ""});
  const GraphLines::Node* node = lines.Of("Default/MatMul-op0");
  ASSERT_NE(node, nullptr);
  EXPECT_THAT(node->frames,
              ElementsAre("File other.py, line 10, in <graph>, \n return x @ x",
                          "File model.py, line 4, in construct, \n y = f(x)  # a:1, b"));
  EXPECT_FALSE(node->of_forward);
  ASSERT_NE(lines.Of("Gradients/Mul-op0"), nullptr);
  EXPECT_TRUE(lines.Of("Gradients/Mul-op0")->of_forward);
  EXPECT_EQ(lines.Of("cut"), nullptr);
}

TEST(GraphFolder, ATrainingStepRecordedByMindSpore) {
  const Result<std::vector<DumpLocation>> found = FindDumps(kMindSporeDumps + "train");
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().rank, 0);
  EXPECT_EQ(found->front().step, 0);
  const Result<Dump> dump = ReadDump(kMindSporeDumps + "train");
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_EQ(dump->DialectName(), "MindSpore graph");
  EXPECT_EQ(dump->framework, "mindspore");
  EXPECT_EQ(dump->task, Task::kTensor);
  EXPECT_EQ(dump->note, "");
  EXPECT_THAT(dump->provenance, Contains(testing::Pair("mindspore", "2.10.0")));
  ASSERT_EQ(dump->records.size(), 27u);
  // In the order of execution_order, which is not that of the times; parameters are last.
  const std::vector<std::string> names = Names(*dump);
  EXPECT_EQ(names[0], "Default/network-WithLossCell/_backbone-Net/fc-Dense/MatMul.0.forward");
  EXPECT_EQ(names[2], "Default/network-WithLossCell/_backbone-Net/act-ReLU/ReLU.0.forward");
  EXPECT_THAT(names, Contains("Default/optimizer-SGD/SGD.1.optimizer"));
  EXPECT_THAT(
      names,
      Contains("Gradients/Default/network-WithLossCell/_backbone-Net/fc-Dense/Grad_MatMul/MatMul.0."
               "backward"));
  EXPECT_EQ(names.back(), "Parameter.stat_fc_weight");
  // The .ir says that this operator belongs to the gradient of another one.
  EXPECT_THAT(names, Contains("Expand/_Muls/Mul.0.backward"));

  const Record& first = dump->records[0];
  EXPECT_EQ(first.module, "Cell.network._backbone.fc.Dense");
  EXPECT_EQ(first.direction, Direction::kForward);
  EXPECT_EQ(UserSourceLine(dump->stacks[first.stack]),
            "/train/record.py:12 in construct: return self.act(self.fc(x))");
  ASSERT_EQ(first.leaf_count, 5u);
  const Leaf& input = dump->leaves[0];
  EXPECT_EQ(input.name, std::string(names[0]) + ".input.0");
  EXPECT_EQ(input.dtype, "Float32");
  EXPECT_EQ(input.shape, "[2, 2]");
  EXPECT_EQ(dump->leaves[4].slot, Slot::kOutput);
  const Result<formats::TensorFile> tensor = ReadTensorData(*dump, input);
  ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
  EXPECT_EQ(static_cast<const float*>(tensor->data)[3], 4.0F);
}

TEST(GraphFolder, EveryFolderAroundAnIterationNamesIt) {
  for (const char* path : {"train", "train/rank_0", "train/rank_0/net", "train/rank_0/net/0",
                           "train/rank_0/net/0/0", "train/rank_0/net/0/0/"}) {
    const Result<Dump> dump = ReadDump(kMindSporeDumps + path);
    ASSERT_TRUE(dump.ok()) << path;
    EXPECT_EQ(dump->records.size(), 27u) << path;
    EXPECT_FALSE(dump->stacks.empty()) << path;
  }
  EXPECT_FALSE(ReadDump(kMindSporeDumps + "train/rank_0/graphs").ok());
}

TEST(GraphFolder, OperatorsThatRunTwiceGoOnCounting) {
  const Result<Dump> dump = ReadDump(kMindSporeDumps + "two/rank_0/net/0/1");
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_THAT(Names(*dump),
              ElementsAre("Default/Cast.0.forward", "Default/Cast.1.forward", "Parameter.x",
                          "Default/Cast.2.forward", "Default/Cast.3.forward", "Parameter.x.1"));
  // The order of execution has other numbers ("Cast-op2") than the files ("Cast-op0").
  EXPECT_EQ(UserSourceLine(dump->stacks[dump->records[1].stack]),
            "/train/record_two.py:6 in <graph>: y = x.astype(ms.bfloat16)");
  const Leaf& rounded = dump->leaves[1];
  EXPECT_EQ(rounded.dtype, "BFloat16");
  const Result<formats::TensorFile> tensor = ReadTensorData(*dump, rounded);
  ASSERT_TRUE(tensor.ok()) << tensor.status().ToString();
  EXPECT_EQ(tensor->dtype, DType::kBFloat16);
  EXPECT_EQ(static_cast<const uint16_t*>(tensor->data)[1], 0xc000);  // -2
}

class MadeFolder : public testing::Test {
 protected:
  // One value of operator `name`.
  void Value(const std::string& place, const std::string& type, const std::string& name, int time,
             const std::string& slot, std::string_view bytes = kTwoByThree) const {
    folder_.Write(place + "/" + type + "." + name + ".0.0." + std::to_string(time) + "." + slot +
                      ".DefaultFormat.Float32.npy",
                  bytes);
  }
  Result<Dump> Read(const std::string& place = "") const {
    return ReadDump(folder_.path() + "/" + place);
  }
  TemporaryFolder folder_;
};

TEST_F(MadeFolder, GraphsOfOneIterationAreOneDump) {
  Value("rank_3/net/0/1", "Exp", "Default_Exp-op0", 20, "output.0");
  Value("rank_3/net/1/1", "Log", "Default_Log-op0", 10, "output.0");
  Value("rank_3/net/1/2", "Log", "Default_Log-op0", 30, "output.0");
  const auto found = FindDumps(folder_.path());
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ(found->at(0).step, 1);
  EXPECT_EQ(found->at(0).rank, 3);
  EXPECT_EQ(found->at(1).step, 2);
  const Result<Dump> both = Read("rank_3/net/0/1");
  ASSERT_TRUE(both.ok());
  EXPECT_THAT(Names(*both),
              ElementsAre("graph1/Default_Log.0.forward", "graph0/Default_Exp.0.forward"));
  for (const Leaf& leaf : both->leaves) EXPECT_TRUE(ReadTensorData(*both, leaf).ok());
  EXPECT_THAT(Names(*Read("rank_3/net/1/1")), ElementsAre("Default_Log.0.forward"));
}

TEST_F(MadeFolder, WithoutAnExecutionOrderTimesTellTheOrder) {
  Value("it", "Mul", "Default_Mul-op1", 5, "input.0");
  Value("it", "Mul", "Default_Mul-op1", 6, "output.0");
  Value("it", "Mul", "Default_Mul-op0", 9, "output.0");
  Value("it", "Parameter", "w", 1, "output.0");
  const Result<Dump> dump = Read("it");
  ASSERT_TRUE(dump.ok());
  EXPECT_THAT(Names(*dump),
              ElementsAre("Default_Mul.1.forward", "Default_Mul.0.forward", "Parameter.w"));
  EXPECT_THAT(dump->note.English(), HasSubstr("in the order of their times"));
}

TEST_F(MadeFolder, StatisticsWithoutTensors) {
  folder_.Write(
      "rank_0/net/0/7/statistic.csv",
      "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,"
      "Min Value,Avg Value,Count,Negative Zero Count,Positive Zero Count,NaN Count,Negative Inf "
      "Count,Positive Inf Count,Zero Count,L2Norm Value,MD5\n"
      "Sub,Default_Sub-op0,0,0,1733905446819790,input,0,24,bfloat16,\"(2,3)\",3,nan,-inf,6,0,0,1,"
      "2,0,0,2.5,abc\n"
      "Sub,Default_Sub-op0,0,0,1733905446820495,output,0,4,float32,\"()\",2,2,2,1,0,0,0,0,0,0,2,d\n"
      "Sub,Default_Sub-op0,0,0,17339");
  const Result<Dump> dump = Read();
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_EQ(dump->task, Task::kStatistics);
  EXPECT_FALSE(dump->has_checksums);
  ASSERT_EQ(dump->leaves.size(), 2u);
  const Leaf& leaf = dump->leaves[0];
  EXPECT_EQ(leaf.name, "Default_Sub.0.forward.input.0");
  EXPECT_EQ(leaf.dtype, "BFloat16");
  EXPECT_EQ(leaf.shape, "[2, 3]");
  EXPECT_TRUE(leaf.has_stats);
  EXPECT_EQ(leaf.max, "3");
  EXPECT_EQ(leaf.min, "NaN");
  EXPECT_EQ(leaf.mean, "-Infinity");
  EXPECT_EQ(leaf.norm_value, 2.5);
  EXPECT_EQ(leaf.counts->nan, 1);
  EXPECT_EQ(leaf.counts->neg_inf, 2);
  EXPECT_EQ(leaf.checksum, "abc");
  EXPECT_EQ(dump->leaves[1].shape, "[]");
}

TEST_F(MadeFolder, StatisticsBesideTensors) {
  Value("0", "Sub", "Default_Sub-op0", 5, "output.0");
  folder_.Write("0/statistic.csv",
                "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max "
                "Value\nSub,Default_Sub-op0,0,0,6,output,0,24,float32,\"(2,3)\",3\n");
  const Result<Dump> dump = Read("0");
  ASSERT_TRUE(dump.ok());
  ASSERT_EQ(dump->leaves.size(), 1u);
  EXPECT_EQ(dump->leaves[0].max, "3");
  EXPECT_TRUE(ReadTensorData(*dump, dump->leaves[0]).ok());
}

TEST_F(MadeFolder, LongNamesAreLookedUp) {
  folder_.Write("0/1234.npy", kTwoByThree);
  Value("0", "Add", "Default_Add-op0", 5, "output.0");
  folder_.Write("0/mapping.csv",
                "1234.npy,Mul.Default_long_Mul-op0.0.0.7.output.0.DefaultFormat.Float32.npy\n");
  const Result<Dump> dump = Read("0");
  ASSERT_TRUE(dump.ok());
  EXPECT_THAT(Names(*dump), ElementsAre("Default_Add.0.forward", "Default_long_Mul.0.forward"));
  EXPECT_EQ(dump->leaves[1].data_name, "1234.npy");
  EXPECT_TRUE(ReadTensorData(*dump, dump->leaves[1]).ok());
}

TEST_F(MadeFolder, DamagedFilesCostOnlyTheirValues) {
  const std::string place = "rank_0/net/0/0";
  Value(place, "Add", "Default_Add-op0", 5, "output.0");
  Value(place, "Mul", "Default_Mul-op0", 6, "output.0", kTwoByThree.substr(0, 90));
  Value(place, "Sub", "Default_Sub-op0", 7, "output.0", "");
  const std::string link = "/Exp.Default_Exp-op0.0.0.8.output.0.DefaultFormat.Float32.npy";
  folder_.Write("secret.npy", kTwoByThree);
  std::filesystem::create_symlink(folder_.path() + "/secret.npy",
                                  folder_.path() + "/" + place + link);
  folder_.Write(place + "/notes.txt", "text");
  // Neither file may lead out of the folder.
  folder_.Write("order.csv", "Default/Mul-op0\n");
  std::filesystem::create_directories(folder_.path() + "/rank_0/execution_order");
  std::filesystem::create_symlink(
      folder_.path() + "/order.csv",
      folder_.path() + "/rank_0/execution_order/ms_execution_order_graph_0.csv");
  const Result<Dump> dump = Read();
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  EXPECT_THAT(Names(*dump), ElementsAre("Default_Add.0.forward", "Default_Mul.0.forward",
                                        "Default_Sub.0.forward", "Default_Exp.0.forward"));
  EXPECT_THAT(dump->note.English(),
              HasSubstr("1 file is no value of an operator and left out, the first: "
                        "notes.txt"));
  EXPECT_TRUE(ReadTensorData(*dump, dump->leaves[0]).ok());
  for (int i = 1; i < 4; ++i) {
    const Status refused = ReadTensorData(*dump, dump->leaves[i]).status();
    EXPECT_FALSE(refused.ok()) << i;
    EXPECT_THAT(refused.message(), Not(IsEmpty()));
  }
}

TEST_F(MadeFolder, ATableWithoutItsColumnsIsRefused) {
  folder_.Write("0/statistic.csv", "Op Type,Op Name,Task ID\nSub,Default_Sub-op0,0\n");
  const Result<Dump> dump = Read("0");
  ASSERT_FALSE(dump.ok());
  EXPECT_THAT(dump.status().message(), HasSubstr("\"Data Type\""));
}

TEST_F(MadeFolder, OtherFoldersOfTensorsStayWhatTheyAre) {
  folder_.Write("rank_0/net/0/0/a.npy", kTwoByThree);
  folder_.Write("rank_0/net/0/0/b.npy", kTwoByThree);
  folder_.Write("rank_0/net/0/0/c.npy", kTwoByThree);
  Value("rank_0/net/0/0", "Add", "Default_Add-op0", 5, "output.0");
  const Result<Dump> dump = Read();
  ASSERT_TRUE(dump.ok());
  EXPECT_EQ(dump->dialect, Dialect::kTensors);
}

}  // namespace
}  // namespace msprobe::dump
