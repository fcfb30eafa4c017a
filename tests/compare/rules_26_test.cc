#include <gtest/gtest.h>

#include <string>

#include "engine/compare/model/value_text.h"
#include "engine/compare/table/table26_rules.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::kInf;
using test::kNaN;
using test::MustCompare;
using test::Numbers;
using test::OneInput;
using test::Tensor;

Tensor Norm(double norm) { return Numbers(1, -1, 0, norm); }

// A call with inputs and outputs of these norms, judged. Golden norms are 1.
std::vector<Verdict26> JudgeNorms(const std::string& call, std::vector<double> inputs,
                                  std::vector<double> outputs) {
  DumpBuilder t, g;
  t.Call(call), g.Call(call);
  for (double norm : inputs) t.In(Norm(norm)), g.In(Norm(1));
  for (double norm : outputs) t.Out(Norm(norm)), g.Out(Norm(1));
  return JudgeByRules26(MustCompare(t.Take(), g.Take()));
}

Verdict26 JudgeOne(const Tensor& target, const Tensor& golden) {
  return JudgeByRules26(MustCompare(OneInput(target), OneInput(golden)))[0];
}

TEST(Rules26, OutputBeyondHalfWhileInputsAgree) {
  const auto v = JudgeNorms("Torch.f.0.forward", {1.02}, {1.55, 1.12});
  EXPECT_EQ(v[0].result, Result26::kPass);
  EXPECT_TRUE(v[1].Has(Rule26::kNormRelative));
  EXPECT_TRUE(v[1].Has(Rule26::kTenTimes)) << "55 > 10 x 2";
  EXPECT_EQ(v[1].result, Result26::kError);
  EXPECT_EQ(v[2].result, Result26::kPass) << "only the worst output is ten times worse";
}

TEST(Rules26, InputsThatDisagreeExcuseTheOutput) {
  for (const Verdict26& v : JudgeNorms("Torch.f.0.forward", {1.11}, {2.0})) {
    EXPECT_EQ(v.result, Result26::kPass);
  }
}

TEST(Rules26, TenTimesNeedsTenPercentWhereInputsAreEqual) {
  EXPECT_EQ(JudgeNorms("Torch.f.0.forward", {1}, {1.09})[1].result, Result26::kPass);
  EXPECT_EQ(JudgeNorms("Torch.f.0.forward", {1}, {1.11})[1].result, Result26::kWarning);
}

TEST(Rules26, NonFiniteOutputWhereGoldenIsFinite) {
  EXPECT_TRUE(JudgeOne(Numbers(kNaN, 0, 0, 1), Numbers(1, 0, 0, 1)).Has(Rule26::kNonFinite));
  EXPECT_TRUE(JudgeOne(Numbers(1, -kInf, 0, 1), Numbers(1, 0, 0, 1)).Has(Rule26::kNonFinite));
  EXPECT_FALSE(JudgeOne(Numbers(kInf, 0, 0, 1), Numbers(kInf, 0, 0, 1)).Has(Rule26::kNonFinite));
}

TEST(Rules26, DtypesOfDifferentKindAreErrorsOfDifferentPrecisionWarnings) {
  const Tensor f32 = Numbers(1, 0, 0, 1);
  Tensor i32 = f32, f16 = f32, ms = f32;
  i32.dtype = "torch.int32", f16.dtype = "torch.float16", ms.dtype = "Float32";
  EXPECT_TRUE(JudgeOne(i32, f32).Has(Rule26::kDtype));
  EXPECT_EQ(JudgeOne(f16, f32).result, Result26::kWarning);
  EXPECT_EQ(JudgeOne(ms, f32).rules, 0) << "the same dtype, spelled by another framework";
}

TEST(Rules26, ShapeAndRequiresGrad) {
  const Tensor t = Numbers(1, 0, 0, 1);
  Tensor other = t;
  other.shape = "[3, 2]";
  EXPECT_TRUE(JudgeOne(t, other).Has(Rule26::kShape));
  DumpBuilder a, b;
  a.Call("Torch.f.0.forward").In(t).In(t);
  b.Call("Torch.f.0.forward").In(t).In(t);
  a.dump().leaves[0].requires_grad = "False";
  a.dump().leaves[1].requires_grad = "";
  const auto verdicts = JudgeByRules26(MustCompare(a.Take(), b.Take()));
  EXPECT_TRUE(verdicts[0].Has(Rule26::kRequiresGrad));
  EXPECT_FALSE(verdicts[1].Has(Rule26::kRequiresGrad)) << "one side does not say";
}

TEST(Rules26, MemoryThatNobodyWroteIsNotJudged) {
  for (const char* call :
       {"Torch.empty.0.forward", "Tensor.to.3.forward", "Tensor.__setitem__.0.forward"}) {
    EXPECT_EQ(JudgeNorms(call, {1}, {9})[1].result, Result26::kPass) << call;
  }
  EXPECT_EQ(JudgeNorms("Module.empty.Linear.forward.0", {1}, {9})[1].result, Result26::kError)
      << "a module of that name is no such API";
}

TEST(Rules26, OutputsPassedInAreNotHeldAgainstTheInputs) {
  EXPECT_EQ(JudgeNorms("Distributed.all_to_all_single.0.forward", {1}, {9})[1].result,
            Result26::kPass);
}

TEST(Rules26, Checksums) {
  DumpBuilder t, g;
  const Tensor x = Numbers(1, 0, 0, 1);
  Tensor a = x, b = x;
  a.checksum = "0011aabb", b.checksum = "ccddeeff";
  t.Call("Torch.f.0.forward").In(a).In(a).In(a);
  g.Call("Torch.f.0.forward").In(a).In(b).In(x);
  const Comparison c = MustCompare(t.Take(), g.Take());
  ASSERT_EQ(c.mode, Mode::kChecksum);
  const auto v = JudgeByRules26(c);
  EXPECT_EQ(v[0].result, Result26::kPass);
  EXPECT_TRUE(v[1].Has(Rule26::kChecksum));
  EXPECT_EQ(v[2].result, Result26::kWarning);
}

// Expected values: zlib.crc32(str(value).encode()) in Python.
TEST(Rules26, ChecksumOfAPlainValueIsThatOfItsPythonText) {
  const auto checksum = [](std::string_view dtype, std::string_view value) {
    Leaf leaf;
    leaf.kind = LeafKind::kScalar;
    leaf.dtype = dtype;
    leaf.value = leaf.max = value;
    return ChecksumText(leaf);
  };
  EXPECT_EQ(checksum("<class 'int'>", "1"), "83dcefb7");
  EXPECT_EQ(checksum("<class 'bool'>", "True"), "5dcee3b3");
  EXPECT_EQ(checksum("<class 'float'>", "NaN"), "6be42981") << "nan";
  EXPECT_EQ(checksum("<class 'float'>", "Infinity"), "e7e8abf9") << "inf";
  EXPECT_EQ(checksum("<class 'float'>", "-Infinity"), "6bb5da14") << "-inf";
  EXPECT_EQ(checksum("<class 'float'>", "-0.0"), "7aa974ef");
  EXPECT_EQ(checksum("<class 'str'>", "NaN"), "68c74fa9") << "a text stays as it is";
  EXPECT_EQ(checksum("<class 'str'>", ""), "00000000");
  EXPECT_EQ(checksum("<class 'NoneType'>", "None"), "dfa2aff1");
  EXPECT_EQ(checksum("<class 'NoneType'>", "preserve_format"), "00000000") << "no value recorded";
  EXPECT_EQ(checksum("slice", "[1, None, 3]"), "1995a997");
  EXPECT_EQ(checksum("torch.Size", "[2, 3]"), "3f72ac6e");
}

TEST(Rules26, ChecksumOfAProcessGroupIsTheListOfItsRanks) {
  Leaf leaf;
  leaf.kind = LeafKind::kScalar;
  leaf.type = leaf.dtype = "torch.ProcessGroup";
  leaf.value = leaf.max = "[0, 1]";
  EXPECT_EQ(ChecksumText(leaf), "[0, 1]");
}

TEST(Rules26, ErrMessageIsAJsonListInOrder) {
  DumpBuilder t, g;
  Tensor wrong = Numbers(kNaN, 0, 0, 9);
  wrong.shape = "[6]";
  t.Call("Torch.f.0.forward").In(Norm(1)).Out(wrong);
  g.Call("Torch.f.0.forward").In(Norm(1)).Out(Norm(1));
  const Comparison c = MustCompare(t.Take(), g.Take());
  const auto v = JudgeByRules26(c);
  std::string cell, empty;
  AppendErrMessage(&cell, c, 1, v[1]);
  AppendErrMessage(&empty, c, 0, v[0]);
  EXPECT_EQ(empty, "[]");
  EXPECT_EQ(cell,
            "[\"error: There is nan/inf/-inf in the maximum or minimum value of NPU.\", "
            "\"error: The NormRelativeErr of output is greater than 0.5.\", "
            "\"error: The shape of NPU and Bench are inconsistent.\", "
            "\"warning: The norm relative error of output is 10 times that of input.\"]");
}

TEST(CompareStatistic, Kinds) {
  using Kind = StatisticPair::Kind;
  EXPECT_EQ(CompareStatistic("1.0", "1.0").kind, Kind::kSame);
  EXPECT_EQ(CompareStatistic("NaN", "NaN").kind, Kind::kNan);
  EXPECT_EQ(CompareStatistic("NaN", "").kind, Kind::kAbsent);
  EXPECT_EQ(CompareStatistic("Infinity", "1.0").kind, Kind::kPosInf);
  EXPECT_EQ(CompareStatistic("1.0", "Infinity").kind, Kind::kNegInf);
  EXPECT_EQ(CompareStatistic("1.0", "null").kind, Kind::kText);
  EXPECT_EQ(CompareStatistic("cuda:0", "npu:1").kind, Kind::kAbsent);
  EXPECT_EQ(CompareStatistic("True", "False").kind, Kind::kText);
  const StatisticPair p = CompareStatistic("3", "-2.0");
  EXPECT_EQ(p.diff, 5);
  EXPECT_EQ(p.relative, 2.5);
  EXPECT_EQ(CompareStatistic("1e-30", "0.0").relative, kInf);
  EXPECT_EQ(CompareStatistic("-0.0", "0.0").relative, 0);
}

}  // namespace
}  // namespace msprobe::compare
