#include "engine/compare/measure/unwritten.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <utility>

#include "engine/compare/explain/summary.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

using ::testing::HasSubstr;

// A dump whose leaves that are marked show unwritten memory. What that memory holds depends on the
// side.
class Buffers {
 public:
  explicit Buffers(double junk, std::string bits = "")
      : junk_(junk), bits_(bits.empty() ? std::to_string(junk) : std::move(bits)) {}
  Buffers& Call(const char* name) { return b_.Call(name), *this; }
  Buffers& In(const Tensor& t) { return b_.In(t), *this; }
  Buffers& Out(const Tensor& t) { return b_.Out(t), *this; }
  Buffers& JunkIn(int which) { return b_.In(Junk(which)), Mark(); }
  Buffers& ZerosIn() { return b_.In(Numbers(0, 0, 0, 0).Print("0").DType("torch.int64")), Mark(); }
  Buffers& CountsIn() {
    return b_.In(Numbers(9e13, 0, 2e13, 9e13).Print("9").DType("torch.int64")), Mark();
  }
  Buffers& JunkOut(int which) { return b_.Out(Junk(which)), Mark(); }
  // Unwritten memory, copied by a call: the copy is a tensor like any other.
  Buffers& CopyOut(int which) { return b_.Out(Junk(which)), *this; }
  Buffers& CopyIn(int which) { return b_.In(Junk(which)), *this; }
  Buffers& Length(const char* value) { return b_.Value("length", "int", value), *this; }
  Buffers& At(int line) { return b_.At("train.py", line, "x"), *this; }
  Dump Take() { return b_.Take(); }

 private:
  Tensor Junk(int which) {
    return Scaled(Value(20 + which), junk_).Print(bits_ + std::to_string(which));
  }
  Buffers& Mark() {
    Dump& dump = b_.dump();
    dump.unwritten.push_back(
        {static_cast<uint32_t>(dump.leaves.size() - 1), "torch.empty: train.py:3"});
    return *this;
  }

  DumpBuilder b_;
  double junk_;
  std::string bits_;
};

Buffers Begin(double junk, std::string bits = "") {
  Buffers b(junk, std::move(bits));
  b.Call("Torch.empty.0.forward").At(3).CopyOut(0);
  return b;
}

// pack_padded_sequence writes all of an empty tensor by scatter_: it may have held zeros in one
// run.
TEST(UnwrittenTest, MemoryThatIsOverwrittenMayHaveHeldZeros) {
  const auto run = [](bool zeros) {
    Buffers b(0);
    const Tensor order = Numbers(4, 0, 2, 5.5).DType("torch.int64");
    b.Call("Tensor.scatter_.0.forward");
    zeros ? b.ZerosIn() : b.CountsIn();
    b.In(Tensor(order).Print("1")).In(Tensor(order).Print("2")).Out(Tensor(order).Print("3"));
    b.Call("Tensor.index_select.0.forward").In(Value(1).Print("4")).In(Tensor(order).Print("3"));
    return b.Out(Value(2).Print("5")).Take();
  };
  for (const bool target : {false, true}) {
    const Comparison c = MustCompare(run(target), run(!target));
    EXPECT_EQ(First(c), "none");
    EXPECT_EQ(c.measures[0].reason, Reason::kOverwritten);
  }
}

TEST(UnwrittenTest, AViewAndACopyOfUnwrittenMemoryDoNotCount) {
  const auto run = [](double junk) {
    return Begin(junk)
        .Call("Tensor.__getitem__.0.forward")
        .JunkIn(0)
        .JunkOut(1)
        .Call("Tensor.clone.0.forward")
        .JunkIn(0)
        .CopyOut(2)
        .Call("Tensor.flatten.0.forward")
        .CopyIn(2)
        .CopyOut(3)
        .Call("Functional.relu.0.forward")
        .In(Value(1))
        .Out(Value(2))
        .Take();
  };
  const Comparison c = MustCompare(run(0.5), run(0));
  EXPECT_EQ(First(c), "none");
  EXPECT_EQ(c.measures[1].reason, Reason::kUninitialised);
  EXPECT_EQ(c.measures[4].reason, Reason::kUninitialised) << "of the copy";
}

// Memory that earlier tensors of both runs left: nearly all of it is the same.
TEST(UnwrittenTest, MemoryThatNobodyWroteIsNoValueAlsoWhereItNearlyAgrees) {
  const auto run = [](const char* bits) {
    return Begin(0.5, bits)
        .Call("Torch.split.0.forward")
        .JunkIn(0)
        .JunkOut(1)
        .Call("Functional.relu.0.forward")
        .In(Value(1))
        .Out(Value(2))
        .Take();
  };
  const Comparison c = MustCompare(run("a"), run("b"));
  EXPECT_EQ(First(c), "none");
  EXPECT_EQ(c.measures[1].reason, Reason::kUninitialised);
  EXPECT_EQ(c.measures[2].reason, Reason::kUninitialised);
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kEqual);
}

TEST(UnwrittenTest, NaNThatNobodyWroteIsNoOpenQuestion) {
  const auto run = [](double junk) {
    return Begin(junk)
        .Call("Tensor.narrow.0.forward")
        .JunkIn(0)
        .JunkOut(1)
        .Call("Functional.relu.0.forward")
        .In(Value(1))
        .Out(Value(2))
        .Take();
  };
  const Comparison c = MustCompare(run(NAN), run(-NAN));
  EXPECT_EQ(c.measures[1].reason, Reason::kUninitialised);
  EXPECT_EQ(c.measures[2].reason, Reason::kUninitialised);
}

// Gathered shards of other sizes: each run takes another part of memory that nobody wrote.
TEST(UnwrittenTest, WhichPartOfUnwrittenMemoryIsTakenDoesNotCount) {
  const auto run = [](double junk, const char* length, double error) {
    return Begin(junk)
        .Call("Tensor.narrow.0.forward")
        .JunkIn(0)
        .Length(length)
        .JunkOut(1)
        .Call("Functional.relu.0.forward")
        .In(Value(1))
        .Out(Value(2, error))
        .Take();
  };
  const Comparison c = MustCompare(run(0.5, "68", 0), run(0, "34", 0));
  EXPECT_EQ(First(c), "none");
  EXPECT_EQ(Summarize(c).rows[static_cast<int>(RowVerdict::kDiffers)], 0);
  const Comparison wrong = MustCompare(run(0.5, "68", kWrong), run(0, "34", 0));
  EXPECT_EQ(First(wrong), "Functional.relu.0.forward");
}

TEST(UnwrittenTest, ACallWhoseResultDependsOnItReadsIt) {
  const auto run = [](double junk) {
    return Begin(junk).Call("Tensor.sum.0.forward").JunkIn(0).Out(Value(1, junk)).Take();
  };
  const Comparison c = MustCompare(run(0.5), run(0));
  EXPECT_EQ(First(c), "Tensor.sum.0.forward");
  EXPECT_EQ(c.classes[1], CallClass::kIntroduced);
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("it reads memory that nobody wrote: input.0, allocated by "
                        "torch.empty: train.py:3"));
}

TEST(UnwrittenTest, DataThatDifferAreNotExcusedByABufferThatHoldsThem) {
  const auto run = [](double junk) {
    return Begin(junk)
        .Call("Functional.relu.0.forward")
        .In(Value(1))
        .Out(Value(2, junk))
        .Call("Tensor.__getitem__.0.forward")
        .JunkIn(0)
        .JunkOut(1)
        .Take();
  };
  const Comparison c = MustCompare(run(0.5), run(0));
  EXPECT_EQ(First(c), "Functional.relu.0.forward");
  EXPECT_EQ(c.measures[3].verdict, RowVerdict::kDiffers);
}

TEST(UnwrittenTest, OneSideThatHadWrittenItDiffers) {
  const auto run = [](double junk, bool written) {
    Buffers b = Begin(junk);
    b.Call("Tensor.__getitem__.0.forward");
    written ? b.CopyIn(0) : b.JunkIn(0);
    return b.Out(Value(1, junk)).Take();
  };
  const Comparison c = MustCompare(run(0.5, false), run(0, true));
  EXPECT_EQ(c.measures[1].verdict, RowVerdict::kDiffers);
}

// MindSpore's BatchNorm: the call leaves a result as the memory was, and its dump has no numbers of
// it.
TEST(UnwrittenTest, AResultThatACallLeavesUnwrittenIsNoValue) {
  const auto run = [](bool knows, double junk) {
    DumpBuilder b;
    b.Call("Primitive.norm.BatchNorm.0.forward").In(Value(1)).Out(Value(2));
    b.Out(Scaled(Value(3), junk));
    Dump& dump = b.dump();
    if (knows) {
      Leaf& left = dump.leaves.back();
      left.has_stats = false;
      left.fingerprint = left.max = left.min = left.mean = left.norm = TextRef();
      left.max_value = left.min_value = left.mean_value = left.norm_value = NAN;
      dump.unwritten.push_back(
          {static_cast<uint32_t>(dump.leaves.size() - 1), "Primitive.norm.BatchNorm"});
    }
    b.Call("Functional.relu.0.forward").In(Value(2)).Out(Value(4));
    return b.Take();
  };
  for (const bool other_knows : {true, false}) {
    const Comparison c = MustCompare(run(true, 0), run(other_knows, 0.5));
    EXPECT_EQ(First(c), "none");
    EXPECT_EQ(c.measures[2].reason, Reason::kUninitialised);
    EXPECT_EQ(c.measures[2].verdict, RowVerdict::kUnknown);
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kEqual);
  }
}

}  // namespace
}  // namespace msprobe::compare::test
