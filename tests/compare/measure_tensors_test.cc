#include "engine/compare/measure/measure_tensors.h"

#include <gmock/gmock.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/base/threads.h"
#include "engine/compare/explain/summary.h"
#include "engine/compare/judge/judge.h"
#include "engine/formats/tensors/npy.h"
#include "engine/formats/tensors/pt.h"
#include "tests/base/temporary_folder.h"
#include "tests/compare/divergence_values.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Numbers;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MeasureTensorsTest : public ::testing::Test {
 protected:
  MeasureTensorsTest() {
    for (const char* side : {"target", "golden"})
      std::filesystem::create_directories(folder_ / side);
  }

  void Write(const std::string& name, const std::vector<float>& values,
             std::vector<int64_t> shape = {}) {
    if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
    const TensorView view{.data = values.data(),
                          .dtype = DType::kFloat32,
                          .ndim = static_cast<int>(shape.size()),
                          .shape = shape.data()};
    const Status status = formats::WriteNpy(folder_ / name, view);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  // A call whose output is always right, then a call whose output is in `file`.
  Dump MakeDump(const std::string& side, const std::string& file) {
    DumpBuilder b;
    b.dump().task = Task::kTensor;
    b.dump().tensor_folder = folder_ / side;
    b.Call("Torch.good.0.forward").Out(Numbers(1, 0, 0.5, 1).Shape("[4]").Data("good.npy"));
    b.Call("Torch.f.0.forward").Out(Numbers(2, 0, 0.5, 3).Shape("[4]").Data(file));
    return b.Take();
  }
  Comparison Run(const std::string& target = "x.npy", const std::string& golden = "x.npy",
                 const CompareOptions& options = {}) {
    Write("target/good.npy", {1, 2, 3, 4});
    Write("golden/good.npy", {1, 2, 3, 4});
    return MustCompare(MakeDump("target", target), MakeDump("golden", golden), options);
  }

  const TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(MeasureTensorsTest, ElementsDecideNotStatistics) {
  Write("target/x.npy", {1, 2, 3, 4.5});
  Write("golden/x.npy", {1, 2, 3, 4});
  const Comparison c = Run();
  EXPECT_EQ(c.mode, Mode::kTensor);
  EXPECT_EQ(c.measures[0].verdict, RowVerdict::kEqual);
  EXPECT_EQ(c.measures[1].verdict, RowVerdict::kDiffers);
  ASSERT_EQ(c.measures[1].tensor, 1);
  EXPECT_EQ(c.diffs[1].max_abs_error, 0.5);
  EXPECT_EQ(c.diffs[1].worst_index, 3);
  EXPECT_TRUE(c.notes.empty());
}

// Equal statistics are one content where a dump has no digests, unless the elements say otherwise.
TEST_F(MeasureTensorsTest, RelationsHeedElements) {
  Write("golden/x.npy", {1, 2, 3, 4});
  const auto dump = [&](const std::string& side) {
    DumpBuilder b;
    b.dump().task = Task::kTensor;
    b.dump().tensor_folder = folder_ / side;
    b.Call("Torch.f.0.forward").In(Numbers(2, 0, 1, 3).Shape("[4]"));
    b.Out(Numbers(9, 1, 5, 11).Shape("[4]").Data("x.npy"));
    return b.Take();
  };
  for (const float last : {4.0F, 4.5F}) {
    Write("target/x.npy", {1, 2, 3, last});
    const Comparison c = MustCompare(dump("target"), dump("golden"));
    EXPECT_EQ(test::First(c), last == 4 ? "none" : "Torch.f.0.forward");
  }
}

TEST_F(MeasureTensorsTest, LargeFilesTakeTheOtherPath) {
  Write("target/x.npy", {1, 2, 3, 4.5});
  Write("golden/x.npy", {1, 2, 3, 4});
  const Comparison c = Run("x.npy", "x.npy", {.max_resident_tensor_bytes = 1});
  EXPECT_EQ(c.measures[0].verdict, RowVerdict::kEqual);
  EXPECT_EQ(c.diffs[c.measures[1].tensor].max_abs_error, 0.5);
}

TEST_F(MeasureTensorsTest, WhatIsNotFiniteIsCountedAndMatchedWithItsSign) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  Write("target/x.npy", {nan, inf, -inf, 4, 5, nan}, {2, 3});
  Write("golden/x.npy", {nan, inf, inf, 4, 5, 6}, {2, 3});
  const Comparison c = Run();
  const kernels::Diff& d = c.diffs[c.measures[1].tensor];
  EXPECT_EQ(d.nonfinite_matched, 2);
  EXPECT_EQ(d.nonfinite_mismatch, 2);
  const Leaf &t = c.target.leaves[c.rows[1].target], &g = c.golden.leaves[c.rows[1].golden];
  EXPECT_THAT((std::array{t.counts->nan, t.counts->pos_inf, t.counts->neg_inf}),
              ElementsAre(2, 1, 1));
  EXPECT_THAT((std::array{g.counts->nan, g.counts->pos_inf, g.counts->neg_inf}),
              ElementsAre(1, 2, 0));
}

// For the thread sanitizer: no thread may read counts while the thread of another row writes them.
TEST_F(MeasureTensorsTest, RowsMayShareALeaf) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Write("target/x.npy", {nan, 2, 3, 4});
  Write("golden/x.npy", {nan, 2, 3, nan});
  Comparison c;
  c.mode = Mode::kTensor;
  c.target = MakeDump("target", "x.npy");
  c.golden = MakeDump("golden", "x.npy");
  constexpr uint32_t kRows = 64;
  c.rows.assign(kRows, {.target = 1, .golden = 1});
  c.measures.resize(kRows);
  c.pairs = {{.target = 1, .golden = 1, .row_count = kRows}};
  ThreadPool pool(4);
  MeasureTensors({}, pool, &c);
  EXPECT_EQ(c.diffs.size(), kRows);
  EXPECT_EQ(c.target.leaves[1].counts->nan, 1);
  EXPECT_EQ(c.golden.leaves[1].counts->nan, 2);
}

TEST_F(MeasureTensorsTest, PackedElementsAgainstWholeOnes) {
  const std::vector<uint8_t> packed{0x10, 0x32};  // 0, 0.5, 1, 1.5
  const std::array<int64_t, 1> shape{2};
  const TensorView view{
      .data = packed.data(), .dtype = DType::kFloat4E2M1X2, .ndim = 1, .shape = shape.data()};
  ASSERT_TRUE(formats::WritePt(folder_ / "target/x.npy", view).ok());
  for (const std::vector<float>& golden :
       {std::vector<float>{0, 0.5, 1, 1.5}, std::vector<float>{0, 1}}) {
    Write("golden/x.npy", golden);
    const Comparison c = Run();
    EXPECT_EQ(c.measures[1].verdict, RowVerdict::kUnknown);
    EXPECT_EQ(ReasonText(c.measures[1].reason),
              "each element holds two values on one side only: not compared");
    EXPECT_TRUE(c.notes.empty());
  }
}

TEST_F(MeasureTensorsTest, AMissingFileCostsItsRowOnly) {
  Write("golden/x.npy", {1, 2, 3, 4});
  const Comparison c = Run();
  EXPECT_EQ(c.measures[0].verdict, RowVerdict::kEqual);
  EXPECT_EQ(c.measures[1].verdict, RowVerdict::kUnknown);
  EXPECT_EQ(c.measures[1].reason, Reason::kNoFile);
  EXPECT_THAT(c.notes[1].English(), HasSubstr("target/x.npy"));
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kUnknown);
}

TEST_F(MeasureTensorsTest, ADamagedFileCostsItsRowOnly) {
  Write("target/x.npy", {1, 2, 3, 4});
  Write("golden/x.npy", {1, 2, 3, 4});
  std::filesystem::resize_file(folder_ / "golden/x.npy",
                               std::filesystem::file_size(folder_ / "golden/x.npy") - 3);
  const Comparison c = Run();
  EXPECT_EQ(c.measures[1].verdict, RowVerdict::kUnknown);
  EXPECT_EQ(c.measures[1].reason, Reason::kBadFile);
  EXPECT_THAT(c.notes[1].English(), HasSubstr("golden/x.npy"));
}

TEST_F(MeasureTensorsTest, AFlippedBitIsNoDifferenceOfNumbers) {
  for (const std::string side : {"target", "golden"}) {
    SCOPED_TRACE(side);
    const float values[] = {1, 2, 3, 4};
    const int64_t shape = 4;
    for (const char* file : {"target/x.pt", "golden/x.pt"})
      ASSERT_TRUE(
          formats::WritePt(folder_ / file, {.data = values, .ndim = 1, .shape = &shape}).ok());
    const Comparison whole = Run("x.pt", "x.pt");
    EXPECT_EQ(whole.measures[1].verdict, RowVerdict::kEqual);
    std::fstream file(folder_ / side / "x.pt", std::ios::in | std::ios::out | std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), {});
    const size_t place =
        bytes.find(std::string_view(reinterpret_cast<const char*>(values), sizeof(values)));
    ASSERT_NE(place, bytes.npos);
    file.seekp(static_cast<std::streamoff>(place) + 1);
    file.put('\x01');
    file.close();
    const Comparison c = Run("x.pt", "x.pt");
    EXPECT_EQ(c.measures[1].reason, Reason::kBadFile);
    EXPECT_THAT(c.notes[1].English(), HasSubstr(side + "/x.pt"));
    EXPECT_THAT(c.notes[1].English(), HasSubstr("the file is damaged"));
    EXPECT_EQ(c.measures[0].verdict, RowVerdict::kEqual);
  }
}

TEST_F(MeasureTensorsTest, ANameCannotLeaveTheFolder) {
  Write("golden/x.npy", {1, 2, 3, 4});
  const Comparison c = Run("../golden/x.npy");
  EXPECT_EQ(c.measures[1].verdict, RowVerdict::kUnknown);
  EXPECT_THAT(c.notes[1].English(), HasSubstr("leads out of it"));
}

TEST_F(MeasureTensorsTest, FilesThatWereNeverWritten) {
  Write("golden/x.npy", {1, 2, 3, 4});
  const Comparison c = Run("-1");
  EXPECT_EQ(c.measures[1].reason, Reason::kNoFile);
  EXPECT_THAT(c.notes[1].English(), HasSubstr("the target has no tensor file"));
}

TEST_F(MeasureTensorsTest, ShapesInTheFilesCompareSqueezed) {
  Write("target/x.npy", {1, 2, 3, 4}, {1, 4});
  Write("golden/x.npy", {1, 2, 3, 4}, {4, 1});
  EXPECT_EQ(Run().measures[1].verdict, RowVerdict::kEqual);
  Write("golden/x.npy", {1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(Run().measures[1].verdict, RowVerdict::kDiffers);
}

TEST_F(MeasureTensorsTest, NaNInTheSamePlaceIsUnknown) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Write("target/x.npy", {1, nan, 3, 4});
  Write("golden/x.npy", {1, nan, 3, 4});
  EXPECT_EQ(Run().measures[1].reason, Reason::kBothNaN);
  Write("golden/x.npy", {1, 2, 3, 4});
  EXPECT_EQ(Run().measures[1].verdict, RowVerdict::kDiffers);
}

}  // namespace
}  // namespace msprobe::compare
