// Weights whose elements stand in another order: named with their order, and near misses are not.
#include "engine/checkpoint/reordered.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

#include "engine/base/messages/language.h"
#include "engine/checkpoint/compare_checkpoints.h"
#include "engine/checkpoint/slice_order.h"
#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/values.h"
#include "tests/checkpoint/written_tensors.h"

namespace msprobe::checkpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A tensor of any dtype, its elements as bytes.
struct Elements {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<char> bytes;
  TensorView view() const {
    return {.data = bytes.data(),
            .dtype = dtype,
            .ndim = static_cast<int>(shape.size()),
            .shape = shape.data()};
  }
  int64_t numel() const { return view().numel(); }
  char* at(int64_t i) { return bytes.data() + static_cast<size_t>(i) * DTypeSize(dtype); }
};

Elements Random(std::mt19937& random, DType dtype, std::vector<int64_t> shape) {
  Elements made{dtype, std::move(shape), {}};
  made.bytes.resize(static_cast<size_t>(made.numel()) * DTypeSize(dtype));
  for (char& byte : made.bytes) byte = static_cast<char>(random());
  return made;
}

// The elements of `golden` in another shape, element i taken from from(i).
Elements Moved(const Elements& golden, std::vector<int64_t> shape,
               const std::function<int64_t(int64_t)>& from) {
  Elements made{golden.dtype, std::move(shape), golden.bytes};
  const size_t size = DTypeSize(golden.dtype);
  for (int64_t i = 0; i < made.numel(); ++i)
    std::memcpy(made.at(i), golden.bytes.data() + static_cast<size_t>(from(i)) * size, size);
  return made;
}
// Row i is the golden's row order[i]; or column.
Elements WithRows(const Elements& golden, const std::vector<int64_t>& order, bool columns = false) {
  const int64_t width = golden.shape.size() == 1 ? 1 : golden.shape[1];
  return Moved(golden, golden.shape, [&](int64_t i) {
    return columns ? i / width * width + order[i % width] : order[i / width] * width + i % width;
  });
}
// The order in which `parts` parts are interleaved, `block` rows at a time.
std::vector<int64_t> Interleaved(int64_t parts, int64_t groups, int64_t block) {
  std::vector<int64_t> order;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t p = 0; p < parts; ++p) {
      for (int64_t c = 0; c < block; ++c) order.push_back((p * groups + g) * block + c);
    }
  }
  return order;
}
std::vector<int64_t> Inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return inverse;
}

std::string Say(const Elements& target, const Elements& golden,
                std::string_view name = "fc.weight") {
  return DescribeReordering(target.view(), golden.view(), name).English();
}

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16,     DType::kFloat64,   DType::kInt8,
                             DType::kInt64,   DType::kFloat8E4M3FN, DType::kComplex128};

class Reordered : public ::testing::Test {
 protected:
  int64_t Any(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  Elements Any(std::vector<int64_t> shape) {
    return Random(random_, kDTypes[Any(0, std::size(kDTypes) - 1)], std::move(shape));
  }
  std::mt19937 random_{20260731};
};

TEST_F(Reordered, QueriesKeysAndValues) {
  for (int i = 0; i < 40; ++i) {
    const int64_t heads = Any(4, 12), size = Any(2, 9), width = Any(5, 40);
    const std::vector<int64_t> order = Interleaved(3, heads, size);
    const Elements golden = Any({3 * heads * size, width});
    const Elements together = WithRows(golden, order);
    EXPECT_THAT(Say(together, golden, "h.0.attn.qkv.weight"),
                StartsWith("the rows are in another order: q, k, v of each head together in place "
                           "of all q, all k, all v ("))
        << heads << " heads of " << size;
    EXPECT_THAT(Say(golden, together, "h.0.attn.qkv.weight"),
                StartsWith("the rows are in another order: all q, all k, all v in place of q, k, v "
                           "of each head together ("));
    EXPECT_THAT(Say(together, golden), HasSubstr("3 parts interleaved"));
  }
}

TEST_F(Reordered, QueriesThatShareKeys) {
  for (int i = 0; i < 20; ++i) {
    const int64_t groups = Any(2, 6), queries = Any(2, 5), size = Any(2, 6);
    std::vector<int64_t> order;
    const auto add = [&](int64_t first, int64_t blocks) {
      for (int64_t c = 0; c < blocks * size; ++c) order.push_back(first * size + c);
    };
    for (int64_t g = 0; g < groups; ++g)
      add(g * queries, queries), add(groups * queries + g, 1), add(groups * (queries + 1) + g, 1);
    const Elements golden = Any({static_cast<int64_t>(order.size()), 7});
    EXPECT_THAT(Say(WithRows(golden, order), golden, "attention.query_key_value.weight"),
                HasSubstr(std::to_string(queries) +
                          " heads of q, then k, v of each group together in place of all q"))
        << groups << " groups of " << queries << " of " << size;
    EXPECT_THAT(Say(golden, WithRows(golden, order), "attention.query_key_value.weight"),
                HasSubstr("all q, all k, all v in place of"));
  }
}

TEST_F(Reordered, GateAndUpAndHalvesOfHeads) {
  const Elements golden = Any({2 * 5 * 3, 8});
  EXPECT_THAT(Say(WithRows(golden, Interleaved(2, 5, 3)), golden, "mlp.gate_up.weight"),
              HasSubstr("2 parts interleaved, 3 rows at a time in place of one part after the "
                        "other (24 of 30 moved)"));
  std::vector<int64_t> rope;
  for (int64_t head = 0; head < 6; ++head) {
    for (const int64_t i : Interleaved(2, 4, 1)) rope.push_back(8 * head + i);
  }
  const Elements q = Any({48, 8});
  EXPECT_THAT(Say(WithRows(q, rope), q),
              HasSubstr("in each of 6 groups of 8 rows: the two halves interleaved in place of one "
                        "half after the other (36 of 48 moved)"));
  EXPECT_THAT(Say(q, WithRows(q, rope)),
              HasSubstr("one half after the other in place of the two halves interleaved"));
}

TEST_F(Reordered, RowsColumnsAndElements) {
  for (int i = 0; i < 60; ++i) {
    const int64_t rows = Any(2, 60), columns = Any(2, 60);
    const Elements golden = Any({rows, columns});
    const bool of_columns = Any(0, 1) == 1;
    std::vector<int64_t> order(static_cast<size_t>(of_columns ? columns : rows));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    const Elements target = WithRows(golden, order, of_columns);
    if (target.bytes == golden.bytes) continue;
    const std::string said = Say(target, golden);
    EXPECT_THAT(said, HasSubstr("another order")) << rows << " x " << columns;
    if (rows > 8 && columns > 8) {
      EXPECT_THAT(said, StartsWith(of_columns ? "the columns are" : "the rows are"));
    }
  }
  const Elements bias = Random(random_, DType::kFloat32, {24});
  EXPECT_THAT(Say(WithRows(bias, Interleaved(3, 4, 2)), bias, "attn.qkv.bias"),
              StartsWith("the elements are in another order: q, k, v of each head together"));
}

TEST_F(Reordered, OrdersWithAName) {
  const Elements golden = Any({30, 6});
  std::vector<int64_t> order(30);
  const auto say = [&](const std::function<int64_t(int64_t)>& from) {
    for (int64_t i = 0; i < 30; ++i) order[i] = from(i);
    return Say(WithRows(golden, order), golden);
  };
  EXPECT_THAT(say([](int64_t i) { return 29 - i; }), HasSubstr("reversed (30 of 30 moved)"));
  EXPECT_THAT(say([](int64_t i) { return (i + 15) % 30; }),
              HasSubstr("the two halves are exchanged"));
  EXPECT_THAT(say([](int64_t i) { return (i + 7) % 30; }),
              HasSubstr("rolled, beginning with row 7"));
  const int64_t heads[] = {3, 1, 0, 4, 2};
  EXPECT_THAT(say([&](int64_t i) { return 6 * heads[i / 6] + i % 6; }),
              HasSubstr("blocks of 6 rows (such as heads) are moved (24 of 30 moved)"));
  EXPECT_THAT(say([](int64_t i) { return i == 4    ? 11
                                         : i == 11 ? 4
                                                   : i; }),
              HasSubstr("in no regular order (2 of 30 moved)"));
  EXPECT_EQ(say([](int64_t i) { return i; }), "");
}

TEST_F(Reordered, TransposedAndOtherShapes) {
  for (int i = 0; i < 30; ++i) {
    const int64_t a = Any(2, 30), b = Any(2, 30), other = Any(2, 5);
    const Elements golden = Any({a, b});
    const Elements transposed = Moved(golden, {b, a}, [&](int64_t n) { return n % a * b + n / a; });
    EXPECT_EQ(Say(transposed, golden), "the same elements, transposed");
    const Elements cube = Any({a, b, other});
    EXPECT_EQ(Say(Moved(cube, {a * b, other}, [](int64_t n) { return n; }), cube),
              "the same elements under another shape");
    const Elements permuted =
        Moved(cube, {other, a, b}, [&](int64_t n) { return n % (a * b) * other + n / (a * b); });
    EXPECT_EQ(Say(permuted, cube),
              "the same elements, with the golden's dimensions in the order 2, 0, 1");
  }
  // A Conv1D of GPT-2: transposed, and its columns are q, k, v of each head.
  const Elements golden = Any({24, 10});
  const Elements both = WithRows(golden, Interleaved(3, 4, 2));
  const Elements target = Moved(both, {10, 24}, [&](int64_t n) { return n % 24 * 10 + n / 24; });
  EXPECT_THAT(Say(target, golden, "attn.c_attn.weight"),
              StartsWith("transposed, and the columns are in another order: q, k, v of each head"));
}

TEST_F(Reordered, RowsAndColumnsAtOnce) {
  for (int i = 0; i < 20; ++i) {
    const Elements golden = Random(random_, DType::kFloat32, {Any(12, 40), Any(12, 40)});
    std::vector<int64_t> rows(static_cast<size_t>(golden.shape[0])),
        columns(static_cast<size_t>(golden.shape[1]));
    std::iota(rows.begin(), rows.end(), 0), std::iota(columns.begin(), columns.end(), 0);
    std::shuffle(rows.begin(), rows.end(), random_);
    std::rotate(columns.begin(), columns.begin() + 5, columns.end());
    EXPECT_THAT(Say(WithRows(WithRows(golden, rows), columns, true), golden),
                ::testing::AllOf(HasSubstr("the rows are in another order"),
                                 HasSubstr("; the columns are in another order: rolled, beginning "
                                           "with column 5")));
  }
}

// One element, one bit of it, really differs as well.
TEST_F(Reordered, NearMissesAreNoReorder) {
  for (int i = 0; i < 200; ++i) {
    const int64_t heads = Any(2, 6), size = Any(1, 4), width = Any(1, 12);
    const Elements golden = Any({3 * heads * size, width});
    Elements target =
        i % 3 == 0 ? WithRows(golden, Interleaved(3, heads, size))
        : i % 3 == 1
            ? Moved(golden, {width, golden.shape[0]},
                    [&](int64_t n) { return n % golden.shape[0] * width + n / golden.shape[0]; })
            : WithRows(golden, Inverse(Interleaved(3, heads, size)));
    char& byte = target.bytes[static_cast<size_t>(Any(0, target.bytes.size() - 1))];
    byte = static_cast<char>(byte ^ (1 << Any(0, 7)));
    // An element that now has the bits of another one may be in order again; the multiset of all
    // elements decides.
    const auto sorted = [](const Elements& e) {
      std::vector<std::string> all;
      for (size_t at = 0; at < e.bytes.size(); at += DTypeSize(e.dtype))
        all.emplace_back(e.bytes.data() + at, DTypeSize(e.dtype));
      std::sort(all.begin(), all.end());
      return all;
    };
    if (sorted(target) == sorted(golden)) continue;
    EXPECT_EQ(Say(target, golden, "attn.qkv"), "") << i;
  }
  // Other dtypes are no order, and neither are other elements.
  const Elements a = Random(random_, DType::kFloat32, {4, 4}),
                 b = Random(random_, DType::kInt32, {4, 4});
  EXPECT_EQ(Say(a, b), "");
  EXPECT_EQ(Say(Random(random_, DType::kFloat32, {4, 4}), a), "");
  EXPECT_EQ(Say(Random(random_, DType::kFloat32, {0, 4}), Random(random_, DType::kFloat32, {4, 0})),
            "");
}

// Rows that are there several times: the order that has a name counts, and time stays near linear.
TEST_F(Reordered, EqualSlices) {
  Elements golden = Random(random_, DType::kFloat32, {36, 4});
  std::fill(golden.bytes.begin() + 12 * 16, golden.bytes.begin() + 24 * 16, 0);  // k is zero
  EXPECT_THAT(Say(WithRows(golden, Interleaved(3, 6, 2)), golden, "qkv"),
              HasSubstr("q, k, v of each head together"));
  std::vector<uint64_t> zeros(1 << 16, 7), other = zeros;
  zeros[3] = other[60000] = 8;
  const std::optional<SliceOrder> order = OrderOf(zeros, other);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->from[3], 60000);
}

// In files, with shards, through the comparison.
TEST_F(Reordered, InTheComparisonOfCheckpoints) {
  const int64_t heads = 4, size = 3, width = 5;
  std::vector<float> golden(static_cast<size_t>(3 * heads * size * width));
  std::iota(golden.begin(), golden.end(), 1.0f);
  const std::vector<int64_t> order = Interleaved(3, heads, size);
  std::vector<float> target = golden, transposed = golden;
  for (size_t i = 0; i < target.size(); ++i) {
    target[i] = golden[order[i / width] * width + i % width];
    transposed[i] = golden[i % 36 * width + i / 36];
  }
  std::vector<float> wrong = target;
  wrong[7] += 0.5f;
  TemporaryFolder folder;
  folder.Write("t/model-00001-of-00002.safetensors",
               test::Safetensors({{"attn.qkv.weight", {36, 5}, target}, {"other", {2}, {1, 2}}}));
  folder.Write("t/model-00002-of-00002.safetensors",
               test::Safetensors({{"attn.qkv2.weight", {36, 5}, wrong},
                                  {"fc.weight", {5, 36}, transposed},
                                  {"norm", {2}, {3, 4}}}));
  folder.Write("g.safetensors", test::Safetensors({{"attn.qkv.weight", {36, 5}, golden},
                                                   {"attn.qkv2.weight", {36, 5}, golden},
                                                   {"fc.weight", {36, 5}, golden},
                                                   {"norm", {2}, {3, 4}},
                                                   {"other", {2}, {1, 3}}}));
  const compare::Comparison c = CompareCheckpoints(
      test::MustOpen(folder.path() + "/t"), test::MustOpen(folder.path() + "/g.safetensors"));
  const std::string report = CheckpointReport(c);
  EXPECT_THAT(report, HasSubstr("2 of 4 that differ have the golden's elements in another order"));
  EXPECT_THAT(report, HasSubstr("elements differ; the rows are in another order: q, k, v of each "
                                "head together in place of all q, all k, all v (30 of 36 moved)"));
  EXPECT_THAT(report, HasSubstr("shape [5, 36] against [36, 5]; the same elements, transposed"));
  SetLanguage(Language::kChinese);
  std::string chinese = CheckpointReport(c);
  SetLanguage(Language::kEnglish);
  EXPECT_THAT(chinese, HasSubstr("行的顺序不同：每个 head 的 q、k、v 相邻，而标杆侧为先全部 q"));
  for (const char* english : {"verdict", "differ", "worst", "against", "another order",
                              "transposed", " tensors", "relative", "elements"})
    EXPECT_THAT(chinese, Not(HasSubstr(english)));
  for (size_t i = 0; i < c.rows.size(); ++i) {
    const std::string name(c.golden.leaves[c.rows[i].golden].name.view());
    EXPECT_EQ(c.notes.at(i).empty(), name != "attn.qkv.weight" && name != "fc.weight") << name;
  }
}

}  // namespace
}  // namespace msprobe::checkpoint
