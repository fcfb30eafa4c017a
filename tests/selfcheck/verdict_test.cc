#include "engine/selfcheck/verdict.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/base/temporary_folder.h"

namespace msprobe::selfcheck {
namespace {

// A run of three steps. `disturbed` names a value of the second step that is different.
RunLog WriteAndRead(const std::string& path, const std::string& disturbed = "", int steps = 3) {
  Result<RunLogWriter> log = RunLogWriter::Create(path);
  EXPECT_TRUE(log.ok());
  const auto value = [&](int step, ValueKind kind, const std::string& name) {
    log->Value(kind, name, step == 1 && name == disturbed ? 99 : 7);
  };
  for (int step = 0; step < steps; ++step) {
    value(step, ValueKind::kLoss, "backward 0");
    value(step, ValueKind::kGradient, "layer\tbias");
    value(step, ValueKind::kGradient, "layer.weight");
    value(step, ValueKind::kWeight, "layer.weight");
    value(step, ValueKind::kRandom, "torch");
    EXPECT_TRUE(log->Note("in the middle").ok());
    EXPECT_TRUE(log->EndStep(1000 - step).ok());
  }
  log->Value(ValueKind::kWeight, "layer.weight", 8);
  EXPECT_TRUE(log->End().ok());
  Result<RunLog> read = ReadRunLog(path);
  EXPECT_TRUE(read.ok()) << read.status().message();
  return std::move(*read);
}

class VerdictTest : public ::testing::Test {
 protected:
  RunLog Get(const std::string& disturbed = "", int steps = 3) {
    return WriteAndRead(folder_.path() + "/log", disturbed, steps);
  }
  std::string Difference(const RunLog& a, const RunLog& b) {
    const std::optional<RunDifference> d = FirstDifference(a, b);
    return d ? d->Text().English() : "none";
  }
  const TemporaryFolder folder_;
};

TEST_F(VerdictTest, LogsComeBackAsWritten) {
  const RunLog log = Get();
  ASSERT_EQ(log.steps.size(), 4u);
  EXPECT_EQ(log.StepCount(), 3u);
  ASSERT_EQ(log.steps[0].values.size(), 5u);
  EXPECT_EQ(log.steps[0].values[1].name, "layer bias");
  EXPECT_EQ(log.steps[0].values[1].fingerprint, 7u);
  EXPECT_TRUE(log.steps[3].is_end);
  EXPECT_TRUE(log.HasNote("in the middle"));
  EXPECT_EQ(MedianStep(log), 999);
}

TEST_F(VerdictTest, TheFirstDifferenceIsNamed) {
  EXPECT_EQ(Difference(Get(), Get()), "none");
  EXPECT_EQ(Difference(Get(), Get("torch")),
            "step 1: random numbers of torch (in this step differ: 1 of 1 random generators)");
  EXPECT_EQ(Difference(Get(), Get("layer.weight")),
            "step 1: weight of layer.weight (in this step differ: 1 of 1 weights, 1 of 2 "
            "gradients)");
  EXPECT_EQ(Difference(Get(), Get("", 2)), "step 2: 3 steps in the first run, 2 in the second");
  RunLog less = Get();
  less.steps[0].values.pop_back();
  EXPECT_EQ(Difference(Get(), less),
            "step 0: random numbers of torch, which is missing in the second run (in this step "
            "differ: 1 of 1 random generators)");
  RunLog end = Get();
  end.steps[3].values[0].fingerprint = 1;
  EXPECT_EQ(Difference(Get(), end),
            "after the last step: weight of layer.weight (in this step differ: 1 of 1 weights)");
}

TEST_F(VerdictTest, DamageIsAnError) {
  EXPECT_EQ(ReadRunLog(folder_.Write("log", "step\tmany\n")).status().code(),
            ErrorCode::kInvalidDump);
  const Result<RunLog> cut = ReadRunLog(folder_.Write("log", "step\t5\nstep\t"));
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->steps.size(), 1u);
}

}  // namespace
}  // namespace msprobe::selfcheck
