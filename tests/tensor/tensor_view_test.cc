#include "engine/tensor/tensor_view.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <utility>

namespace msprobe {
namespace {

using Numbers = std::vector<int64_t>;

TensorView View(const Numbers& shape, const Numbers& strides, const void* data = nullptr,
                DType dtype = DType::kUInt8) {
  return {.data = data,
          .dtype = dtype,
          .ndim = static_cast<int>(shape.size()),
          .shape = shape.data(),
          .strides = strides.data()};
}

// Offsets in logical order, from the definition: the last index changes fastest.
Numbers Offsets(const Numbers& shape, const Numbers& strides, size_t d = 0, int64_t offset = 0) {
  if (d == shape.size()) return {offset};
  Numbers all;
  for (int64_t i = 0; i < shape[d]; ++i) {
    const Numbers inner = Offsets(shape, strides, d + 1, offset + i * strides[d]);
    all.insert(all.end(), inner.begin(), inner.end());
  }
  return all;
}

Numbers OffsetsOfRuns(const StridedRuns& runs, int64_t first, int64_t last) {
  Numbers all;
  runs.ForEach(first, last, [&](int64_t offset) {
    for (int64_t i = 0; i < runs.run; ++i) all.push_back(offset + i * runs.run_stride);
  });
  return all;
}

Numbers RowMajor(const Numbers& shape) {
  Numbers strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) strides[d] = stride;
  return strides;
}

TEST(TensorView, NumelAndContiguity) {
  struct Case {
    Numbers shape, strides;
    int64_t numel;
    bool contiguous;
  };
  const Case cases[] = {
      {{}, {}, 1, true},                 // a scalar
      {{5}, {1}, 5, true},               //
      {{5}, {2}, 5, false},              //
      {{1}, {7}, 1, true},               // the stride of one element says nothing
      {{2, 3}, {3, 1}, 6, true},         //
      {{2, 3}, {1, 2}, 6, false},        // transposed
      {{2, 3}, {4, 1}, 6, false},        // a slice of a wider one
      {{2, 1, 3}, {3, 99, 1}, 6, true},  //
      {{1, 3}, {-5, 1}, 3, true},        //
      {{3}, {-1}, 3, false},             // flipped
      {{4, 3}, {0, 1}, 12, false},       // expanded
      {{4}, {0}, 4, false},              //
      {{3, 2}, {1, 1}, 6, false},        // overlapping
      {{0}, {5}, 0, true},               // empty
      {{3, 0, 2}, {9, 9, 9}, 0, true},   //
      {{0, 2, 3}, {9, 9, 9}, 0, true},   //
      {{2, 3, 0}, {9, 9, 9}, 0, true},   //
  };
  for (const Case& c : cases) {
    EXPECT_EQ(View(c.shape, c.strides).numel(), c.numel) << ShapeText(c.shape);
    EXPECT_EQ(View(c.shape, c.strides).IsContiguous(), c.contiguous)
        << ShapeText(c.shape) << ShapeText(c.strides);
    EXPECT_EQ(
        Numbers(View(c.shape, c.strides).dims().begin(), View(c.shape, c.strides).dims().end()),
        c.shape);
  }
}

TEST(TensorView, NullStridesAreContiguous) {
  const Numbers shape = {2, 3};
  const TensorView view{.ndim = 2, .shape = shape.data()};
  EXPECT_TRUE(view.IsContiguous());
  EXPECT_EQ(OffsetsOfRuns(MakeRuns(view), 0, 1), (Numbers{0, 1, 2, 3, 4, 5}));
}

// CheckedByteSize accepts such shapes, because they need no bytes. UndefinedBehaviorSanitizer would
// report an overflow in the product of the extents.
TEST(TensorView, EmptyWithHugeExtents) {
  const int64_t huge = int64_t{1} << 62;
  for (const Numbers& shape :
       {Numbers{huge, huge, 0}, Numbers{0, huge, huge}, Numbers{huge, 0, huge}}) {
    const TensorView view = View(shape, Numbers{1, 1, 1});
    EXPECT_EQ(*CheckedByteSize(DType::kFloat64, shape), 0);
    EXPECT_EQ(view.numel(), 0);
    EXPECT_TRUE(view.IsContiguous());
    EXPECT_EQ(MakeRuns(view).count, 0);
    CopyContiguous(view, nullptr);
  }
}

TEST(StridedRuns, AsLongAsPossible) {
  struct Case {
    Numbers shape, strides;
    int64_t run, run_stride;
    Numbers extent, stride;
  };
  const Case cases[] = {
      {{}, {}, 1, 1, {}, {}},
      {{2, 3, 4}, {12, 4, 1}, 24, 1, {}, {}},
      {{2, 1, 3}, {3, 50, 1}, 6, 1, {}, {}},
      {{2, 3, 4}, {24, 4, 1}, 12, 1, {2}, {24}},  // every other matrix
      {{2, 3, 4}, {24, 8, 2}, 24, 2, {}, {}},     // every other element
      {{2, 3, 4}, {1, 8, 2}, 12, 2, {2}, {1}},    //
      {{3, 4}, {1, 3}, 4, 3, {3}, {1}},           // transposed
      {{4, 3}, {0, 1}, 3, 1, {4}, {0}},           // expanded
      {{4, 3}, {0, 0}, 12, 0, {}, {}},            // one element everywhere
      {{4, 3}, {-3, -1}, 12, -1, {}, {}},         // flipped both ways
      {{4, 1, 3}, {7, 5, 1}, 3, 1, {4}, {7}},     //
      {{2, 3, 2, 2}, {100, 10, 2, 1}, 4, 1, {2, 3}, {100, 10}},
  };
  for (const Case& c : cases) {
    const StridedRuns runs = MakeRuns(View(c.shape, c.strides));
    const std::string what = ShapeText(c.shape) + " by " + ShapeText(c.strides);
    EXPECT_EQ(runs.run, c.run) << what;
    EXPECT_EQ(runs.run_stride, c.run_stride) << what;
    EXPECT_EQ(runs.extent, c.extent) << what;
    EXPECT_EQ(runs.stride, c.stride) << what;
    int64_t count = 1;
    for (const int64_t extent : c.extent) count *= extent;
    EXPECT_EQ(runs.count, count) << what;
  }
}

TEST(StridedRuns, EmptyHasNone) {
  const StridedRuns runs = MakeRuns(View({3, 0, 2}, {9, 9, 9}));
  EXPECT_EQ(runs.run, 0);
  EXPECT_EQ(runs.count, 0);
  EXPECT_EQ(OffsetsOfRuns(runs, 0, runs.count), Numbers{});
}

// Any layout: strides are random and independent of the shape, so they expand, flip and overlap.
TEST(StridedRuns, VisitInLogicalOrderWhateverTheLayout) {
  std::mt19937 random(1);
  const auto below = [&](int n) {
    return static_cast<int64_t>(random() % static_cast<unsigned>(n));
  };
  for (int i = 0; i < 5000; ++i) {
    Numbers shape(static_cast<size_t>(below(6)));
    for (int64_t& extent : shape) extent = below(i % 10 == 0 ? 4 : 3) + (i % 10 != 0);
    Numbers strides = RowMajor(shape);
    for (int64_t& stride : strides) {
      if (below(3) == 0) stride = below(9) - 4;
    }
    if (!shape.empty() && below(3) == 0) {
      const size_t a = static_cast<size_t>(below(static_cast<int>(shape.size())));
      std::swap(shape[a], shape[0]);
      std::swap(strides[a], strides[0]);
    }
    const Numbers want = Offsets(shape, strides);
    const StridedRuns runs = MakeRuns(View(shape, strides));
    ASSERT_EQ(runs.run * runs.count, static_cast<int64_t>(want.size()));
    ASSERT_EQ(OffsetsOfRuns(runs, 0, runs.count), want) << ShapeText(shape) << ShapeText(strides);
    // In two parts, as with two threads.
    const int64_t cut = below(static_cast<int>(runs.count) + 1);
    Numbers parts = OffsetsOfRuns(runs, 0, cut);
    const Numbers rest = OffsetsOfRuns(runs, cut, runs.count);
    parts.insert(parts.end(), rest.begin(), rest.end());
    ASSERT_EQ(parts, want);
  }
}

// The most loops that an int64 element count allows: 62 dimensions of extent 2 that cannot merge.
TEST(StridedRuns, AsManyDimensionsAsCanBe) {
  const Numbers shape(62, 2), strides(62, 1);
  const StridedRuns runs = MakeRuns(View(shape, strides));
  EXPECT_EQ(runs.extent.size(), 61u);
  Numbers offsets;
  runs.ForEach(runs.count - 2, runs.count, [&](int64_t offset) { offsets.push_back(offset); });
  EXPECT_EQ(offsets, (Numbers{60, 61}));
}

TEST(CopyContiguous, EveryElementSizeAndLayout) {
  std::vector<char> data(4096);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 31 + i / 251);
  const std::pair<Numbers, Numbers> layouts[] = {
      {{}, {}},         {{3, 5}, {5, 1}},   {{3, 5}, {1, 3}},       {{3, 5}, {8, 1}},
      {{3, 5}, {0, 1}}, {{3, 5}, {-1, -3}}, {{2, 3, 4}, {1, 1, 1}}, {{0, 5}, {5, 1}},
  };
  const DType dtypes[] = {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64,
                          DType::kComplex128};
  for (const DType dtype : dtypes) {
    const size_t size = DTypeSize(dtype);
    const char* origin = data.data() + 2048;
    for (const auto& [shape, strides] : layouts) {
      std::vector<char> want;
      for (const int64_t offset : Offsets(shape, strides)) {
        const char* p = origin + offset * static_cast<int64_t>(size);
        want.insert(want.end(), p, p + size);
      }
      std::vector<char> have(want.size() + 1, '!');
      CopyContiguous(View(shape, strides, origin, dtype), have.data());
      EXPECT_EQ(have.back(), '!');  // not a byte more
      have.pop_back();
      EXPECT_EQ(have, want) << ShapeText(shape) << ShapeText(strides) << size;
    }
  }
}

TEST(CheckedByteSize, ProductOfExtentsAndElementSize) {
  EXPECT_EQ(*CheckedByteSize(DType::kFloat32, Numbers{}), 4);
  EXPECT_EQ(*CheckedByteSize(DType::kFloat32, Numbers{2, 3}), 24);
  EXPECT_EQ(*CheckedByteSize(DType::kComplex128, Numbers{2, 0}), 0);
  EXPECT_EQ(*CheckedByteSize(DType::kUInt8, Numbers{INT64_MAX}), INT64_MAX);
  EXPECT_EQ(*CheckedByteSize(DType::kFloat32, Numbers{(int64_t{1} << 61) - 1}), INT64_MAX - 3);
}

TEST(ContiguousStrides, RowMajorAndNeverOverflowing) {
  EXPECT_EQ(ContiguousStrides(Numbers{}), Numbers{});
  EXPECT_EQ(ContiguousStrides(Numbers{2, 3, 4}), (Numbers{12, 4, 1}));
  EXPECT_EQ(ContiguousStrides(Numbers{3, 0, 4}), (Numbers{4, 4, 1}));
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ(ContiguousStrides(Numbers{huge, huge, 0}).back(), 1);  // the others are undefined
}

TEST(CheckedByteSize, RefusesWhatNoMemoryHolds) {
  const int64_t two = int64_t{1} << 32;
  for (const Numbers& shape :
       {Numbers{int64_t{1} << 61}, Numbers{two, two}, Numbers{2, INT64_MAX}}) {
    const Result<int64_t> size = CheckedByteSize(DType::kFloat32, shape);
    ASSERT_FALSE(size.ok()) << ShapeText(shape);
    EXPECT_EQ(size.status().code(), ErrorCode::kInvalidDump);
    EXPECT_EQ(size.status().message(),
              "expected a tensor of less than 2^63 bytes, found shape " + ShapeText(shape));
  }
}

TEST(CheckedByteSize, RefusesNegativeExtentsEvenBesideZero) {
  for (const Numbers& shape :
       {Numbers{-1}, Numbers{2, -3}, Numbers{-2, -3}, Numbers{0, -1}, Numbers{INT64_MIN}}) {
    const Result<int64_t> size = CheckedByteSize(DType::kUInt8, shape);
    ASSERT_FALSE(size.ok()) << ShapeText(shape);
    EXPECT_EQ(size.status().message(),
              "expected a shape without negative extents, found " + ShapeText(shape));
  }
}

TEST(ShapeText, AsPythonPrintsAList) {
  EXPECT_EQ(ShapeText(Numbers{}), "[]");
  EXPECT_EQ(ShapeText(Numbers{7}), "[7]");
  EXPECT_EQ(ShapeText(Numbers{2, 3, -1}), "[2, 3, -1]");
}

}  // namespace
}  // namespace msprobe
