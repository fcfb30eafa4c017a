#include "engine/dump/pkl/pkl_writer.h"

#include <gtest/gtest.h>

#include "engine/dump/pkl/pkl_place.h"
#include "engine/formats/tensors/npy.h"
#include "tests/base/temporary_folder.h"
#include "tests/model/entry_from_json.h"

namespace msprobe::dump {
namespace {

constexpr std::string_view kEntry =
    R"("f_0_forward": {"output":{"type":"torch.Tensor","dtype":"torch.float32","shape":[2],)"
    R"("Max":1.0,"Min":1.0,"Mean":1.0,"Norm":1.0,"data_name":"f_0_forward.output.pt"}})";
constexpr std::string_view kLine =
    "[\"f_0_forward_output\", 0, [], \"torch.float32\", [2], [1.0, 1.0, 1.0, 1.0]]\n";

class PklWriterTest : public testing::Test {
 protected:
  std::string Path(std::string_view name) { return JoinPath(folder_.path(), name); }
  std::string Text(const std::string& path) {
    const Result<MappedFile> file = MappedFile::Open(path);
    return file.ok() ? std::string(file->bytes()) : "none";
  }
  TensorView View() const {
    return {.data = values_, .dtype = DType::kFloat32, .ndim = 1, .shape = shape_};
  }
  std::unique_ptr<PklWriter> Make(const PklStyle& style, bool keep = false) {
    Result<std::unique_ptr<PklWriter>> writer = PklWriter::Create(style, keep);
    EXPECT_TRUE(writer.ok()) << writer.status().message();
    return std::move(writer).value();
  }

  TemporaryFolder folder_;
  TensorQueue queue_{{.budget = 0}};
  const float values_[2] = {1, 2};
  const int64_t shape_[1] = {2};
};

TEST_F(PklWriterTest, AppendsLinesAndKeepsThemWhenAsked) {
  const PklStyle style{.file = Path("a/b.pkl")};
  ASSERT_TRUE(Make(style)->Write(test::ParseEntry(kEntry)).ok());
  EXPECT_EQ(Text(style.file), kLine);
  ASSERT_TRUE(Make(style, /*keep=*/true)->Write(test::ParseEntry(kEntry)).ok());
  EXPECT_EQ(Text(style.file), std::string(kLine) + std::string(kLine));
  ASSERT_TRUE(Make(style)->Write(test::ParseEntry(kEntry)).ok());
  EXPECT_EQ(Text(style.file), kLine);
}

TEST_F(PklWriterTest, StacksStandBehindOrInFrontOfTheirCall) {
  const std::string entry = std::string(kEntry.substr(0, kEntry.size() - 1)) + R"(,"stack":"0"})";
  PklStyle style{.mode = PklMode::kApiStack, .file = Path("b.pkl")};
  const auto write = [&] {
    const auto writer = Make(style);
    ASSERT_EQ(*writer->AddStack("f_0_forward", {"File a.py, line 1, in g, \n h()"}), 0);
    ASSERT_TRUE(writer->Write(test::ParseEntry(entry)).ok());
  };
  const std::string stack = "[\"f_0_forward_stack_info\", [[\"a.py\", \"1\", \"g\", \"h()\"]]]\n";
  write();
  EXPECT_EQ(Text(style.file), std::string(kLine) + stack);
  style.dialect = PklDialect::kNumbered;
  write();
  EXPECT_TRUE(Text(style.file).starts_with(stack)) << Text(style.file);
}

TEST_F(PklWriterTest, TensorsGoToNpyFilesUnderTheNamesOfTheirLines) {
  const auto writer = Make({.file = Path("a.pkl")});
  queue_.SetFolder(Path("a"));
  ASSERT_TRUE(writer->Store("f_0_forward.output.pt", View(), &queue_).ok());
  ASSERT_TRUE(writer->Store("f_0_forward.kwargs.w.0.pt", View(), &queue_).ok());
  EXPECT_EQ(*ListDirectory(Path("a")),
            (std::vector<std::string>{"f_0_forward_input.w.0.npy", "f_0_forward_output.npy"}));
  const Result<formats::TensorFile> read = formats::ReadNpy(Path("a/f_0_forward_output.npy"));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->view().dtype, DType::kFloat32);
  EXPECT_EQ(ShapeText(read->view().dims()), "[2]");
}

TEST_F(PklWriterTest, BFloat16BecomesFloat32) {
  const auto writer = Make({.file = Path("a.pkl")});
  queue_.SetFolder(Path("a"));
  TensorView view = View();
  view.dtype = DType::kBFloat16;
  ASSERT_TRUE(writer->Store("f_0_forward.output.pt", view, &queue_).ok());
  EXPECT_EQ(formats::ReadNpy(Path("a/f_0_forward_output.npy"))->view().dtype, DType::kFloat32);
}

TEST_F(PklWriterTest, StoragesSayWhereElementsLie) {
  const auto writer = Make({.dialect = PklDialect::kHooks, .data = PklData::kStorages});
  queue_.SetFolder(Path("a"));
  const int64_t shape[] = {2, 2}, strides[] = {0, 1};
  TensorView view = View();
  view.ndim = 2;
  view.shape = shape;
  view.strides = strides;
  for (const char* file : {"f_0_forward.input.0.pt", "f_0_forward.input.2.pt",
                           "f_0_backward.output.1.pt", "f_0_backward.input.0.pt"})
    ASSERT_TRUE(writer->Store(file, view, &queue_).ok());
  ASSERT_TRUE(writer->Write(test::ParseEntry(kEntry)).ok());
  EXPECT_EQ(*ListDirectory(Path("a")),
            (std::vector<std::string>{
                "0_f_forward_input0_shape[2,2]_stride[0,1]_offset[0]_format[2].npy",
                "0_f_forward_input1_shape[2,2]_stride[0,1]_offset[0]_format[2].npy",
                "1_f_backward_input1_shape[2,2]_stride[0,1]_offset[0]_format[2].npy",
                "2_f_backward_output0_shape[2,2]_stride[0,1]_offset[0]_format[2].npy"}));
}

TEST_F(PklWriterTest, EachOverflowHasAFileAndAFolderOfTheSameStem) {
  const auto writer =
      Make({.dialect = PklDialect::kNumbered, .file = Path("o"), .file_for_each = true});
  std::vector<std::string> files;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(writer->Store("7_f_forward.output.pt", View(), &queue_).ok());
    ASSERT_TRUE(writer->Write(test::ParseEntry(kEntry)).ok());
    files.push_back(writer->last_file());
    EXPECT_EQ(Text(files.back()), "[\"f_0_forward_output\", 101, [], \"torch.float32\", [2]]\n");
    const std::string folder = files.back().substr(0, files.back().size() - 4);
    EXPECT_EQ(*ListDirectory(folder), std::vector<std::string>{"f_forward_output.npy"});
  }
  EXPECT_NE(files[0], files[1]);
}

TEST_F(PklWriterTest, ProcessesOfOneRunDoNotShareAnOverflow) {
  const PklStyle style{.dialect = PklDialect::kNumbered, .file = Path("o"), .file_for_each = true};
  EXPECT_EQ(PlacePklFiles(style, 1)->file, Path("o"));
  const auto one = Make(style), other = Make(style);
  ASSERT_TRUE(one->Write(test::ParseEntry(kEntry)).ok() &&
              other->Write(test::ParseEntry(kEntry)).ok());
  EXPECT_NE(one->last_file(), other->last_file());
}

TEST_F(PklWriterTest, SaysThatItsFileIsGone) {
  const auto writer = Make({.file = Path("a.pkl")});
  ASSERT_TRUE(RemoveFile(Path("a.pkl")).ok());
  EXPECT_NE(writer->Finish().message().find("removed"), std::string::npos);
}

TEST_F(PklWriterTest, PlaceOfARankBelowATag) {
  const PklStyle style{
      .tag_folder = Path("d/dump_v0.1"), .step_folder = "step2", .stem = "api_stack_dump"};
  const Result<PklStyle> placed = PlacePklFiles(style, 3);
  ASSERT_TRUE(placed.ok()) << placed.status().message();
  EXPECT_EQ(placed->file, Path("d/dump_v0.1/step2/rank3/api_stack_dump.pkl"));
  EXPECT_EQ(placed->data_folder, Path("d/dump_v0.1/step2/rank3/api_stack_dump"));
}

TEST_F(PklWriterTest, AnEarlierDumpIsMovedAsideOnce) {
  ASSERT_TRUE(MakeDirectories(Path("dump_v0.1/rank0/dump")).ok());
  ASSERT_TRUE(WriteFileAtomically(Path("dump_v0.1/rank0/dump.pkl"), "old").ok());
  const PklStyle style{.tag_folder = Path("dump_v0.1"), .stem = "dump"};
  const Result<PklStyle> placed = PlacePklFiles(style, std::nullopt);
  ASSERT_TRUE(placed.ok());
  EXPECT_EQ(placed->file, Path("dump_v0.1/rank0/dump.pkl"));
  EXPECT_EQ(Text(Path("dump_v0.1_1/rank0/dump.pkl")), "old");
  EXPECT_TRUE(IsDirectory(Path("dump_v0.1_1/rank0/dump")));
  ASSERT_TRUE(Make(*placed)->Write(test::ParseEntry(kEntry)).ok());
  ASSERT_TRUE(PlacePklFiles(style, std::nullopt).ok());  // our own file stays
  EXPECT_EQ(Text(placed->file), kLine);
}

TEST_F(PklWriterTest, RanksDoNotShareAFile) {
  const PklStyle style{.dialect = PklDialect::kNumbered,
                       .file = "/d.e/npu_dump.pkl",
                       .data_folder = "/d.e/npu_dump_20230104_134530",
                       .stem = "/d.e/npu_dump"};
  EXPECT_EQ(PlacePklFiles(style, 0)->file, style.file);
  EXPECT_EQ(PlacePklFiles(style, std::nullopt)->data_folder, style.data_folder);
  EXPECT_EQ(PlacePklFiles(style, 2)->file, "/d.e/npu_dump_rank2.pkl");
  EXPECT_EQ(PlacePklFiles(style, 2)->data_folder, "/d.e/npu_dump_rank2_20230104_134530");
}

}  // namespace
}  // namespace msprobe::dump
