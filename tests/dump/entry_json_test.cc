#include "engine/dump/write/entry_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <thread>

#include "engine/dump/read/dump_file.h"
#include "tests/model/entry_from_json.h"

namespace msprobe::dump {
namespace {

TensorValue SomeTensor(DType dtype = DType::kFloat64) {
  TensorValue t;
  t.dtype = DTypeTorchName(dtype);
  t.element_type = dtype;
  t.shape = {2, 3};
  t.numbers = TensorValue::Numbers::kHere;
  kernels::Stats& s = t.stats;
  s.count = 6;
  s.max = 1.5;
  s.min = -0.5;
  s.mean = 0.25;
  s.norm = 2;
  s.int_max = 3;
  s.int_min = -1;
  s.fingerprint = 0x0123456789abcdefu;
  return t;
}

std::string TensorText(const TensorValue& tensor) {
  std::string text;
  AppendTensorJson(&text, tensor);
  return text;
}

std::string EntryText(const Entry& entry) {
  std::string text;
  AppendEntryJson(&text, entry);
  return text;
}

bool HasPart(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(EntryJson, HasTheOlderToolsOrderOfKeys) {
  Entry e;
  for (int reused = 0; reused < 2; ++reused) {
    e.Begin("Functional.relu.0.forward");
    e.BeginSlot("input_args", "input", Entry::Container::kList);
    TensorValue tensor = SomeTensor(DType::kFloat32);
    tensor.requires_grad = true;
    e.AddTensor(std::move(tensor));
    e.Int("int", 3);
    e.EndSlot();
    e.BeginSlot("input_kwargs", "kwargs", Entry::Container::kDict);
    e.Key("inplace");
    e.Bool("bool", false);
    e.EndSlot();
    e.stack = 7;
    EXPECT_EQ(
        EntryText(e),
        R"("Functional.relu.0.forward": {"input_args":[{"type":"torch.Tensor","dtype":"torch.float32","shape":[2, 3],)"
        R"("Max":1.5,"Min":-0.5,"Mean":0.25,"Norm":2.0,"requires_grad":true,"fp":"ASNFZ4mrze8"},)"
        R"({"type":"int","value":3}],"input_kwargs":{"inplace":{"type":"bool","value":false}},"stack":"7"})");
  }
}

TEST(EntryJson, NumbersOfNarrowFloatsHaveTheDigitsOfAFloat32) {
  for (const bool narrow : {false, true}) {
    TensorValue t = SomeTensor(narrow ? DType::kFloat16 : DType::kFloat64);
    t.stats.max = 4.562695503234863, t.stats.min = -std::numeric_limits<double>::infinity();
    t.stats.mean = -0.0011109666459075337, t.stats.norm = 1e300;
    EXPECT_TRUE(HasPart(TensorText(t), narrow ? R"("Max":4.5626955,"Min":-Infinity,)"
                                                R"("Mean":-0.0011109667,"Norm":1e+300,)"
                                              : R"("Max":4.562695503234863,"Min":-Infinity,)"
                                                R"("Mean":-0.0011109666459075337,"Norm":1e+300,)"))
        << TensorText(t);
  }
}

TEST(EntryJson, SpellsExtremaByKindOfDtype) {
  EXPECT_TRUE(HasPart(TensorText(SomeTensor(DType::kInt64)), R"("Max":3,"Min":-1,)"));
  EXPECT_TRUE(HasPart(TensorText(SomeTensor(DType::kBool)), R"("Max":true,"Min":true,)"));
  TensorValue huge = SomeTensor(DType::kUInt64);
  huge.stats.int_max = -1;  // the bit pattern of 2^64 - 1
  EXPECT_TRUE(HasPart(TensorText(huge), "\"Max\":18446744073709551615,"));
}

// Whoever takes the number without its text judges as a reader of the file does.
TEST(EntryJson, AStatisticIsTheNumberThatAReaderHas) {
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    TensorValue t = SomeTensor(static_cast<DType>(dtype));
    for (const double value :
         {0.1, -1.0 / 3, 3.5799968, 0.0, -0.0, 7e-46, 1e-300, 3.4028236e38, 1e39,
          std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      t.stats.max = t.stats.min = t.stats.mean = t.stats.norm = value;
      const std::string text =
          R"({"tool": "msprobe 27.0.0", "framework": "pytorch", "data": {
"Torch.f.0.forward": {"output": [)" +
          TensorText(t) + "]}\n}}\n";
      Dump read;
      std::vector<std::string_view> stack_keys;
      DumpFileLayout layout;
      ASSERT_TRUE(ReadDumpFile("dump.json", text, &read, &stack_keys, &layout).ok()) << text;
      const Leaf& leaf = read.leaves.at(0);
      const auto check = [&](Statistic which, std::string_view spelled, double number) {
        const bool is_float = spelled.find_first_of("0123456789") != std::string_view::npos &&
                              spelled.find_first_of(".e") != std::string_view::npos;
        EXPECT_EQ(StatisticNumber(t, which), is_float ? std::optional(number) : std::nullopt)
            << t.dtype << " " << spelled;
      };
      check(Statistic::kMax, leaf.max, leaf.max_value);
      check(Statistic::kMin, leaf.min, leaf.min_value);
      check(Statistic::kMean, leaf.mean, leaf.mean_value);
      check(Statistic::kNorm, leaf.norm, leaf.norm_value);
    }
  }
  TensorValue empty = SomeTensor();
  empty.stats.count = 0;
  EXPECT_EQ(StatisticNumber(empty, Statistic::kMax), std::nullopt);
}

TEST(EntryJson, AChecksumStandsWhereTheOlderToolPutsIt) {
  TensorValue t = SomeTensor(DType::kInt8);
  t.shape = {2};
  t.requires_grad = false;
  t.stats.checksum = 0x00abcdef;
  t.checksum = kernels::Checksum::kCrc32;
  EXPECT_TRUE(HasPart(TensorText(t), R"("requires_grad":false,"md5":"00abcdef","fp":"ASN)"));
  t.stats.checksum = 0x81560d85042591cd;
  t.checksum = kernels::Checksum::kXor;
  EXPECT_TRUE(HasPart(TensorText(t), R"(false,"md5":"0x81560d85042591cd","fp":"ASN)"));
  t.with_statistics = t.with_counts = false;
  EXPECT_EQ(TensorText(t), R"({"type":"torch.Tensor","dtype":"torch.int8","shape":[2],)"
                           R"("md5":"0x81560d85042591cd","requires_grad":false,)"
                           R"("fp":"ASNFZ4mrze8"})");
}

// The numbers of a tensor are spelled once and kept, for each thread: another thread spells them
// anew.
TEST(EntryJson, NumbersThatWereSpelledBeforeAreSpelledAlike) {
  using Change = void (*)(TensorValue*);
  const Change changes[] = {
      [](TensorValue*) {},
      [](TensorValue* t) { t->shape = {6}; },
      [](TensorValue* t) { t->requires_grad = true; },
      [](TensorValue* t) {
        t->strides = {1, 2};
      },
      [](TensorValue* t) { t->file = "a.pt"; },
      [](TensorValue* t) { t->element_type = DType::kFloat32; },
      [](TensorValue* t) { t->stats.max = 1e300; },
      [](TensorValue* t) { t->stats.min = -0.0; },
      [](TensorValue* t) { t->stats.min = 0.0; },
      [](TensorValue* t) { t->stats.mean = std::numeric_limits<double>::quiet_NaN(); },
      [](TensorValue* t) { t->stats.zero = 3; },
      [](TensorValue* t) { t->rest = kernels::RestStats{.extremes = 1, .max = 2}; },
      [](TensorValue* t) { t->rest = kernels::RestStats{.extremes = 1, .max = 3}; },
      [](TensorValue* t) {
        t->sketch = kernels::Sketch{.rows = {1, 2}, .squares = 3};
      },
      [](TensorValue* t) {
        t->sketch = kernels::Sketch{.rows = {1, 4}, .squares = 3};
      },
      [](TensorValue* t) {
        t->sketch = kernels::Sketch{.rows = {1, 2}, .squares = 3, .grid = {{5, 6}}};
      },
      [](TensorValue* t) { t->first_nonfinite = 2; },
      [](TensorValue* t) { t->with_counts = false; },
      [](TensorValue* t) { t->with_fingerprint = false; },
      [](TensorValue* t) { t->numbers = TensorValue::Numbers::kFromDevice; },
      [](TensorValue* t) { t->checksum = kernels::Checksum::kCrc32; },
  };
  for (int round = 0; round < 2; ++round) {
    for (const Change change : changes) {
      TensorValue tensor = SomeTensor();
      change(&tensor);
      const std::string text = TensorText(tensor);
      std::string fresh;
      std::thread([&] { fresh = TensorText(tensor); }).join();
      EXPECT_EQ(text, fresh);
      EXPECT_EQ(text, TensorText(tensor));
    }
  }
}

TEST(EntryJson, WhereNumbersAreNotWantedAPlaceMayBe) {
  TensorValue t = SomeTensor(DType::kInt8);
  t.shape.clear();
  t.requires_grad = true;
  t.stats.nan = 2;
  t.with_statistics = t.with_counts = t.with_fingerprint = false;
  const std::string head = R"({"type":"torch.Tensor","dtype":"torch.int8","shape":[],)";
  EXPECT_EQ(TensorText(t),
            R"({"type":"torch.Tensor","dtype":"torch.int8","shape":[],"requires_grad":true})");
  t.with_counts = true;
  t.first_nonfinite = 4;
  EXPECT_EQ(TensorText(t), head + R"("requires_grad":true,"nan":2,"first_nonfinite":4})");
}

TEST(EntryJson, AnUnreadableOrEmptyTensorHasNullsNotNumbers) {
  const std::string nulls = R"("Max":null,"Min":null,"Mean":null,"Norm":null)";
  TensorValue t = SomeTensor();
  t.numbers = TensorValue::Numbers::kUnreadable;
  EXPECT_TRUE(HasPart(TensorText(t), nulls));
  EXPECT_FALSE(HasPart(TensorText(t), "fp"));
  t = SomeTensor();
  t.stats = kernels::Stats();
  EXPECT_TRUE(HasPart(TensorText(t), nulls));
}

TEST(EntryJson, WritesNonFiniteValuesAndTheirCounts) {
  TensorValue t = SomeTensor();
  t.stats.max = t.stats.mean = std::numeric_limits<double>::infinity();
  t.stats.min = t.stats.norm = std::numeric_limits<double>::quiet_NaN();
  t.stats.nan = 2;
  t.stats.neg_inf = 1;
  t.with_fingerprint = false;
  EXPECT_TRUE(HasPart(
      TensorText(t), R"("Max":Infinity,"Min":NaN,"Mean":Infinity,"Norm":NaN,"nan":2,"neg_inf":1})"))
      << TensorText(t);
}

TEST(EntryJson, FactsOfACallStandBehindItsValues) {
  Entry e;
  e.Begin("a");
  e.exception = "ValueError";
  e.is_nan = true;
  EXPECT_EQ(EntryText(e), R"("a": {"exception":"ValueError","is_nan":1})");
  e.Begin("Distributed.all_reduce.0.forward");
  e.BeginSlot("output", "output", Entry::Container::kList);
  e.EndSlot();
  e.completion = "waited for";
  e.group = {.ranks = {0, 2}, .id = "0a", .place = 1, .role = CollectiveGroup::Role::kSource};
  e.group.to = 0;
  EXPECT_EQ(EntryText(e),
            R"("Distributed.all_reduce.0.forward": {"output":[],"async":"waited for",)"
            R"("group":{"ranks": [0, 2], "id": "0a", "rank": 1, "role": "source", "to": 0}})");
}

TEST(EntryJson, EscapesHostileNames) {
  Entry e;
  e.Begin("a\"b\n");
  EXPECT_EQ(EntryText(e), R"("a\"b\n": {})");
}

TEST(EntryJson, ATextThatLooksLikeAFormulaGetsABackslash) {  // guarded_text.h
  Entry e;
  e.Begin("F.x.0.forward");
  e.BeginSlot("output", "output", Entry::Container::kList);
  e.String("complex", "-2j");
  e.EndSlot();
  EXPECT_EQ(EntryText(e), R"("F.x.0.forward": {"output":[{"type":"complex","value":"\\-2j"}]})");
}

TEST(EntryJson, ReadsBackAsItWasWritten) {
  const std::string text =
      R"("F.x.0.forward": {"input_args":[{"type":"torch.Size","value":[2, 3]},null,)"
      R"([{"type":"slice","value":[1, null, 2]}]],"input_kwargs":{"k":{"a":{"type":"str",)"
      R"("value":"a\u00e9"}}},"output":[{"type":"torch.Tensor","dtype":"torch.int16",)"
      R"("shape":[2],"Max":7,"Min":-7,"Mean":0.5,"Norm":2.5,"fp":"ASNFZ4mrze8"}],"stack":"3"})";
  EXPECT_EQ(EntryText(test::ParseEntry(text)), text);
}

TEST(EntryJson, FactsThatFewTensorsHave) {
  TensorValue tensor = SomeTensor();
  EXPECT_FALSE(HasPart(TensorText(tensor), "stride"));
  EXPECT_FALSE(HasPart(TensorText(tensor), "unwritten"));
  EXPECT_FALSE(HasPart(TensorText(tensor), "rest_"));
  tensor.strides = {1, 2};
  tensor.vmap = {1, 0};
  tensor.unreadable = "meta tensor";
  tensor.unwritten = "Torch.empty.0.forward";
  tensor.rest = {.extremes = 2, .max = 1.5, .min = -2, .norm = 2.5};
  EXPECT_FALSE(HasPart(TensorText(tensor), "\"sk\""));
  tensor.sketch = {.rows = {1, 2}, .wave = {3, 4}, .squares = 5};
  const std::string text = TensorText(tensor);
  EXPECT_TRUE(HasPart(text, R"("stride":[1, 2],"vmap":[1, 0],"unreadable":"meta tensor",)"
                            R"("unwritten":"Torch.empty.0.forward")"))
      << text;
  EXPECT_TRUE(HasPart(text, R"("extremes":2,"rest_max":1.5,"rest_min":-2.0,"rest_norm":2.5)"))
      << text;
  EXPECT_TRUE(HasPart(text, R"(,"sk":"P_AAAAAAAAAQAAAAAAAAAAQBQAAAAAAAAQAgAAAAAAAAQBAAAAAAAAA"})"))
      << text;
  tensor.with_statistics = false;
  EXPECT_FALSE(HasPart(TensorText(tensor), "\"sk\""));
  tensor.Clear();
  EXPECT_TRUE(tensor.strides.empty() && tensor.unwritten.empty() && !tensor.rest && !tensor.sketch);
  EXPECT_TRUE(tensor.vmap.empty() && tensor.unreadable.empty());
}

}  // namespace
}  // namespace msprobe::dump
