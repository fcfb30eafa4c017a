#include "engine/dump/write/entry_builder.h"

#include <gtest/gtest.h>

#include <limits>

namespace msprobe::dump {
namespace {

kernels::Stats SomeStats() {
  kernels::Stats s;
  s.count = 6;
  s.max = 1.5;
  s.min = -0.5;
  s.mean = 0.25;
  s.norm = 2;
  s.int_max = 3;
  s.int_min = -1;
  s.fingerprint = 0x0123456789abcdefu;
  return s;
}

std::string TensorText(const TensorFields& fields) {
  std::string text;
  AppendTensor(&text, fields);
  return text;
}

TEST(EntryBuilder, ComposesAnEntryInTheEarlierToolsOrderOfKeys) {
  const int64_t shape[] = {2, 3};
  const kernels::Stats stats = SomeStats();
  EntryBuilder b;
  b.Begin("Functional.relu.0.forward");
  b.BeginSlot("input_args", "input", '[');
  b.Tensor({.dtype = "torch.float32", .shape = shape, .stats = &stats, .requires_grad = 1});
  b.Int("int", 3);
  b.EndSlot(']');
  b.BeginSlot("input_kwargs", "kwargs", '{');
  b.Key("inplace");
  b.Bool(false);
  b.EndSlot('}');
  b.Field("stack", "7");
  EXPECT_EQ(
      b.Finish(),
      R"("Functional.relu.0.forward": {"input_args":[{"type":"torch.Tensor","dtype":"torch.float32","shape":[2, 3],)"
      R"("Max":1.5,"Min":-0.5,"Mean":0.25,"Norm":2.0,"requires_grad":true,"fp":"ASNFZ4mrze8"},)"
      R"({"type":"int","value":3}],"input_kwargs":{"inplace":{"type":"bool","value":false}},"stack":"7"})");
}

TEST(EntryBuilder, NumbersOfNarrowFloatsHaveTheDigitsOfAFloat32) {
  kernels::Stats stats = SomeStats();
  stats.max = 4.562695503234863, stats.min = -std::numeric_limits<double>::infinity();
  stats.mean = -0.0011109666459075337, stats.norm = 1e300;
  TensorFields fields{.dtype = "torch.float16", .stats = &stats};
  EXPECT_NE(TensorText(fields).find(R"("Max":4.562695503234863,"Min":-Infinity,)"
                                    R"("Mean":-0.0011109666459075337,"Norm":1e+300,)"),
            std::string::npos);
  fields.is_narrow_float = true;
  EXPECT_NE(TensorText(fields).find(R"("Max":4.5626955,"Min":-Infinity,)"
                                    R"("Mean":-0.0011109667,"Norm":1e+300,)"),
            std::string::npos);
}

TEST(EntryBuilder, SpellsExtremaByKindOfDtype) {
  const kernels::Stats stats = SomeStats();
  EXPECT_NE(TensorText({.dtype = "torch.int64", .kind = DTypeKind::kSigned, .stats = &stats})
                .find(R"("Max":3,"Min":-1,)"),
            std::string::npos);
  EXPECT_NE(TensorText({.dtype = "torch.bool", .kind = DTypeKind::kBool, .stats = &stats})
                .find(R"("Max":true,"Min":true,)"),
            std::string::npos);
  kernels::Stats huge = stats;
  huge.int_max = -1;  // the bit pattern of 2^64 - 1
  EXPECT_NE(TensorText({.dtype = "torch.uint64",
                        .kind = DTypeKind::kUnsigned,
                        .is_unsigned64 = true,
                        .stats = &huge})
                .find("\"Max\":18446744073709551615,"),
            std::string::npos);
}

TEST(EntryBuilder, AChecksumStandsWhereTheEarlierToolPutsIt) {
  kernels::Stats stats = SomeStats();
  stats.checksum = 0x00abcdef;
  const int64_t shape[] = {2};
  TensorFields fields{.dtype = "torch.int8", .shape = shape, .requires_grad = 0};
  fields.stats = &stats;
  fields.checksum = kernels::Checksum::kCrc32;
  EXPECT_NE(TensorText(fields).find(R"("requires_grad":false,"md5":"00abcdef","fp":"ASN)"),
            std::string::npos);
  stats.checksum = 0x81560d85042591cd;
  fields.checksum = kernels::Checksum::kXor;
  EXPECT_NE(TensorText(fields).find(R"(false,"md5":"0x81560d85042591cd","fp":"ASN)"),
            std::string::npos);
  fields.statistics = false;
  EXPECT_EQ(TensorText(fields), R"({"type":"torch.Tensor","dtype":"torch.int8","shape":[2],)"
                                R"("md5":"0x81560d85042591cd","requires_grad":false,)"
                                R"("fp":"ASNFZ4mrze8"})");
}

TEST(EntryBuilder, WhereNumbersAreNotWantedAPlaceMayBe) {
  kernels::Stats stats = SomeStats();
  stats.nan = 2;
  TensorFields fields{.dtype = "torch.int8", .stats = &stats, .requires_grad = 1};
  fields.statistics = fields.fingerprint = false;
  const std::string head =
      R"({"type":"torch.Tensor","dtype":"torch.int8","shape":[],"requires_grad":true)";
  EXPECT_EQ(TensorText(fields), head + "}");
  fields.counts = true;
  fields.first_nonfinite = 4;
  EXPECT_EQ(TensorText(fields), head + R"(,"nan":2,"first_nonfinite":4})");
}

TEST(EntryBuilder, ForgetsAFile) {
  EntryBuilder b;
  b.Begin("a");
  b.BeginSlot("input", "input", '[');
  b.Tensor(
      {.dtype = "torch.int8", .fingerprint = false, .statistics = false, .data_name = "x\".pt"});
  b.Tensor({.dtype = "torch.int8", .fingerprint = false, .statistics = false, .data_name = "y.pt"});
  b.EndSlot(']');
  b.ForgetFile("x\".pt");
  b.ForgetFile("z.pt");
  const std::string tensor = R"({"type":"torch.Tensor","dtype":"torch.int8","shape":[],)";
  EXPECT_EQ(b.Finish(), R"("a": {"input":[)" + tensor + R"("data_name":"-1"},)" + tensor +
                            R"("data_name":"y.pt"}]})");
}

TEST(EntryBuilder, AnUnreadableOrEmptyTensorHasNullsNotNumbers) {
  const kernels::Stats empty;
  const std::string nulls = R"("Max":null,"Min":null,"Mean":null,"Norm":null)";
  EXPECT_NE(TensorText({.dtype = "torch.float32", .stats = nullptr}).find(nulls),
            std::string::npos);
  EXPECT_NE(TensorText({.dtype = "torch.float32", .stats = &empty}).find(nulls), std::string::npos);
}

TEST(EntryBuilder, WritesNonFiniteValuesAndTheirCounts) {
  kernels::Stats stats = SomeStats();
  stats.max = stats.mean = std::numeric_limits<double>::infinity();
  stats.min = stats.norm = std::numeric_limits<double>::quiet_NaN();
  stats.nan = 2;
  stats.neg_inf = 1;
  const std::string text =
      TensorText({.dtype = "torch.float32", .stats = &stats, .fingerprint = false});
  EXPECT_NE(
      text.find(R"("Max":Infinity,"Min":NaN,"Mean":Infinity,"Norm":NaN,"nan":2,"neg_inf":1})"),
      std::string::npos)
      << text;
}

TEST(EntryBuilder, NamesTensorFilesByPlace) {
  EntryBuilder b;
  b.Begin("Torch.cat.0.forward");
  b.BeginSlot("input_args", "input", '[');
  EXPECT_EQ(b.TensorFileName(), "Torch.cat.0.forward.input.0.pt");
  b.BeginList();
  b.Null();
  EXPECT_EQ(b.TensorFileName(), "Torch.cat.0.forward.input.0.1.pt");
  b.BeginObject();
  b.Key("logits");
  EXPECT_EQ(b.TensorFileName(), "Torch.cat.0.forward.input.0.1.logits.pt");
  b.Null();
  b.EndObject();
  b.EndList();
  EXPECT_EQ(b.TensorFileName(), "Torch.cat.0.forward.input.1.pt");
  b.EndSlot(']');
  b.BeginSlot("input_kwargs", "kwargs", '{');
  b.Key("out");
  EXPECT_EQ(b.TensorFileName(), "Torch.cat.0.forward.kwargs.out.pt");
}

TEST(EntryBuilder, EscapesHostileNames) {
  EntryBuilder b;
  b.Begin("a\"b\n");
  EXPECT_EQ(b.Finish(), R"("a\"b\n": {})");
}

TEST(SafeFileName, StaysInsideTheFolderAndBelowTheLimit) {
  EXPECT_EQ(SafeFileName("a_b", ".pt"), "a_b.pt");
  EXPECT_EQ(SafeFileName("../../etc/passwd", ".pt"), "2bef2c0bbbdefdfa_.._.._etc_passwd.pt");
  EXPECT_NE(SafeFileName("a/b", ".pt"), SafeFileName("a\nb", ".pt"));
  const std::string a = SafeFileName(std::string(400, 'a') + "x", ".pt"),
                    b = SafeFileName(std::string(401, 'a') + "x", ".pt");
  EXPECT_EQ(a.size(), 220u);  // and a temporary file beside it has room for its ending
  EXPECT_NE(a, b);
  EXPECT_TRUE(a.ends_with("x.pt"));
  std::string letters;
  for (int i = 0; i < 200; ++i) letters += "\xE5\xB1\x82";
  for (const char* tail : {"", "x", "xx"}) {
    const std::string name = SafeFileName(letters + tail, ".pt");
    EXPECT_EQ(name.substr(16, 2), "_\xE5") << "begins with a whole character";
  }
}

}  // namespace
}  // namespace msprobe::dump
