#include "engine/kernels/sketch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "engine/base/threads.h"
#include "engine/kernels/phase.h"
#include "engine/kernels/rest_stats.h"
#include "engine/kernels/sketch_scalar.h"
#include "engine/kernels/stats.h"
#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
namespace {

using Complex = std::complex<double>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A contiguous tensor of float64.
struct Doubles {
  std::vector<int64_t> shape;
  std::vector<double> values;

  explicit Doubles(std::vector<int64_t> extents) : shape(std::move(extents)) {
    values.resize(static_cast<size_t>(
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())));
  }
  Doubles(std::vector<int64_t> extents, Random& random) : Doubles(std::move(extents)) {
    std::normal_distribution<double> normal;
    for (double& v : values) v = normal(random);
  }
  TensorView view() const {
    return {.data = values.data(),
            .dtype = DType::kFloat64,
            .ndim = static_cast<int>(shape.size()),
            .shape = shape.data()};
  }
  double norm() const {
    return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
  }
  Sketch sketch() const { return ComputeSketch(view()).value(); }
  std::string Text() const { return ShapeText(shape); }
};

void ExpectNear(Complex a, Complex b, double error, const std::string& what) {
  EXPECT_LE(std::abs(a - b), error) << what << ": " << a << " " << b;
}

void ExpectSameSketch(const std::optional<Sketch>& a, const std::optional<Sketch>& b,
                      const std::string& what) {
  ASSERT_EQ(a.has_value(), b.has_value()) << what;
  if (!a) return;
  const auto same = [&](Complex x, Complex y, const char* name) {
    EXPECT_EQ(Bits(x.real()), Bits(y.real())) << what << ": " << name << " " << x << " " << y;
    EXPECT_EQ(Bits(x.imag()), Bits(y.imag())) << what << ": " << name << " " << x << " " << y;
  };
  same(a->rows, b->rows, "rows");
  same(a->wave, b->wave, "wave");
  EXPECT_EQ(Bits(a->squares), Bits(b->squares)) << what << ": " << a->squares << " " << b->squares;
  ASSERT_EQ(a->grid.has_value(), b->grid.has_value()) << what;
  if (a->grid) same(*a->grid, *b->grid, "grid");
}

// The formulas of sketch.h in long double, with the library's sine: shares no code with the engine.
struct Oracle {
  std::complex<long double> rows, wave, grid;
  long double squares = 0, absolute = 0;
};
Oracle OracleOf(const std::vector<int64_t>& shape, const std::vector<double>& values) {
  const long double golden = (std::sqrt(5.0L) - 1) / 2;
  const auto frac = [](long double x) { return x - std::floor(x); };
  const long double turns[] = {golden,
                               frac(std::sqrt(2.0L)),
                               frac(std::sqrt(3.0L)),
                               frac(std::sqrt(7.0L)),
                               frac(std::sqrt(11.0L)),
                               frac(std::sqrt(13.0L)),
                               frac(std::sqrt(17.0L)),
                               frac(std::sqrt(19.0L))};
  const auto phase = [&](long double t) {
    return std::polar(1.0L, 2 * std::numbers::pi_v<long double> * frac(t));
  };
  const auto n = static_cast<int64_t>(values.size());
  const int64_t columns = shape.size() > 1 ? shape.back() : 1;
  Oracle oracle;
  for (int64_t i = 0; i < n / columns; ++i) {
    std::complex<long double> row;
    for (int64_t j = 0; j < columns; ++j) {
      const long double x = values[static_cast<size_t>(i * columns + j)];
      row += x * phase(turns[0] * static_cast<long double>(j));
      oracle.absolute += std::fabs(x);
      long double angle = turns[0] * static_cast<long double>(j);
      int64_t rest = i;
      for (size_t d = 1; d < shape.size() && d < 8; ++d) {
        const int64_t extent = shape[shape.size() - 1 - d];
        angle += frac(turns[d] * static_cast<long double>(rest % extent));
        rest /= extent;
      }
      oracle.grid += x * phase(angle);
    }
    oracle.rows += row;
    oracle.squares += std::norm(row);
    oracle.wave += row * phase(turns[1] * static_cast<long double>(i));
  }
  return oracle;
}
void ExpectOracle(const Sketch& s, const std::vector<int64_t>& shape,
                  const std::vector<double>& values, const std::string& what) {
  const Oracle o = OracleOf(shape, values);
  // Phases are multiples of 2^-29.
  const double error = static_cast<double>(o.absolute) * 0x1p-28 + 1e-300;
  const auto near = [&](Complex a, std::complex<long double> b, const char* name) {
    ExpectNear(a, Complex(b), error, what + " " + name);
  };
  near(s.rows, o.rows, "rows");
  near(s.wave, o.wave, "wave");
  if (s.grid) near(*s.grid, o.grid, "grid");
  const double columns = shape.size() > 1 ? static_cast<double>(shape.back()) : 1;
  EXPECT_NEAR(s.squares, static_cast<double>(o.squares),
              static_cast<double>(o.squares) * 0x1p-26 * std::sqrt(columns) + 1e-300)
      << what;
}

TEST(Phase, AgreesWithLongDouble) {
  Random random(1);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t angle = i < 16 ? uint64_t(i) << 60 : random();
    const long double x =
        static_cast<long double>(angle) * 0x1p-64L * 2 * std::numbers::pi_v<long double>;
    const Complex z = PhaseOf(angle);
    EXPECT_NEAR(z.real(), static_cast<double>(std::cos(x)), 2e-16);
    EXPECT_NEAR(z.imag(), static_cast<double>(std::sin(x)), 2e-16);
    const Complex r = RoundedPhaseOf(angle);
    EXPECT_LE(std::abs(r - z), 0x1p-29);
    EXPECT_EQ(r.real() * 0x1p29, std::floor(r.real() * 0x1p29));
  }
}

// Every dtype x 120 layouts x every SIMD target, against the scalar definition, bit for bit.
class SketchOfDType : public testing::TestWithParam<int> {};
TEST_P(SketchOfDType, EqualsScalarOnEveryTarget) {
  const DType dtype = static_cast<DType>(GetParam());
  Random random(300 + GetParam());
  for (int i = 0; i < 120; ++i) {
    const Values values = static_cast<Values>(i % 3);
    const RandomTensor t = MakeRandomTensor(random, dtype, values, i % 40 == 0 ? 150000 : 3000);
    const SketchOf of = i % 4 == 3 ? SketchOf::kRest : SketchOf::kFinite;
    const std::optional<Sketch> expected = ComputeSketchScalar(t.view(), of);
    const Stats plain = ComputeStats(t.view());
    ForEachTarget([&](const char* target) {
      ExpectSameSketch(ComputeSketch(t.view(), nullptr, of), expected, t.Text() + " on " + target);
      std::optional<Sketch> with_stats;
      const Stats stats = ComputeStats(t.view(), nullptr, Checksum::kNone, &with_stats);
      EXPECT_EQ(stats.fingerprint, plain.fingerprint);
      EXPECT_EQ(Bits(stats.norm), Bits(plain.norm));
      // Where extremes stand, ComputeStats gives none.
      const bool extremes = DTypeKindOf(dtype) == DTypeKind::kFloat &&
                            !(stats.max < kExtreme && stats.min > -kExtreme);
      if (extremes) {
        EXPECT_FALSE(with_stats) << t.Text();
      } else if (of == SketchOf::kFinite) {
        ExpectSameSketch(with_stats, expected, t.Text() + " with stats");
      }
    });
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(All, SketchOfDType, testing::Range(0, kDTypeCount), DTypeOfInstance);

// Widths and heights around every boundary: lanes, pieces of a row, chunks, groups, runs of rows.
TEST(Sketch, BoundaryShapes) {
  Random random(2);
  ThreadPool three(3);
  const int64_t widths[] = {1,    2,    3,    5,    7,    8,    9,    15,    16,    31,    63,
                            64,   65,   100,  127,  128,  129,  144,  255,   768,   1023,  1024,
                            1025, 2047, 2048, 3000, 4095, 4097, 9000, 65535, 65537, 140000};
  for (const int64_t width : widths) {
    for (const int64_t heights : {1, 2, 7, 65, 700, 1025}) {
      const int64_t height = std::min(heights, 140000 / width + 1);
      // Rows of whole steps are read in another loop than the others, and each dtype in its own.
      const bool all = width % 16 == 0 && height < 700;
      for (const DType dtype :
           {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64, DType::kInt8}) {
        if (!all && dtype != (height % 2 == 0 ? DType::kFloat32 : DType::kInt8)) continue;
        std::vector<uint8_t> bytes(static_cast<size_t>(width * height) * DTypeSize(dtype));
        Fill(random, dtype, Values::kOrdinary, bytes.data(), width * height);
        const int64_t shape[] = {height, width};
        const TensorView view{.data = bytes.data(), .dtype = dtype, .ndim = 2, .shape = shape};
        const auto expected = ComputeSketchScalar(view);
        const std::string what = std::string(DTypeTorchName(dtype)) + " " + ShapeText(view.dims());
        ForEachTarget([&](const char* target) {
          std::optional<Sketch> sketch;
          ComputeStats(view, nullptr, Checksum::kNone, &sketch);
          ExpectSameSketch(sketch, expected, what + " on " + target);
        });
        std::optional<Sketch> sketch;
        ComputeStats(view, &three, Checksum::kNone, &sketch);
        ExpectSameSketch(sketch, expected, what + ", three threads");
        if (HasFailure()) return;
      }
    }
  }
}

// Rows up to a few vectors wide, which are summed several at a time. NaN stands before and behind
// the tensor: a vector that reaches over an end must not bring it into a sum.
TEST(Sketch, EveryShortWidth) {
  Random random(9);
  for (const DType dtype :
       {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64, DType::kInt32}) {
    const size_t size = DTypeSize(dtype);
    constexpr int64_t kAround = 16;  // elements
    for (int64_t width = 2; width <= 140; width += width < 70 ? 1 : 7) {
      // Fewer rows than a vector has, and so many that chunks end within rows.
      for (const int64_t height : {Uniform(random, 1, 20), 9000 / width + Uniform(random, 0, 20)}) {
        const int64_t shape[] = {2, height, width}, numel = 2 * height * width;
        std::vector<uint8_t> bytes(static_cast<size_t>(numel + 2 * kAround) * size);
        for (int64_t i = 0; i < numel + 2 * kAround; ++i)
          EncodeElement(dtype, kNaN, bytes.data() + static_cast<size_t>(i) * size);
        uint8_t* data = bytes.data() + kAround * size;
        Fill(random, dtype, Values::kOrdinary, data, numel);
        const TensorView view{.data = data, .dtype = dtype, .ndim = 3, .shape = shape};
        const auto expected = ComputeSketchScalar(view);
        ForEachTarget([&](const char* target) {
          const std::string what =
              std::string(DTypeTorchName(dtype)) + " " + ShapeText(view.dims()) + " on " + target;
          std::optional<Sketch> sketch;
          ComputeStats(view, nullptr, Checksum::kNone, &sketch);
          ExpectSameSketch(sketch, expected, what);
          ExpectSameSketch(ComputeSketch(view), expected, what + ", alone");
        });
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Sketch, BoundaryShapesOfManyDimensions) {
  Random random(3);
  const std::vector<int64_t> shapes[] = {{2, 3, 4},
                                         {3, 1024, 2},
                                         {3, 1025, 2},
                                         {2, 513, 3},
                                         {5, 600, 1},
                                         {70, 33, 1, 1},
                                         {64, 3, 3, 3},
                                         {2, 200, 7, 7},
                                         {2, 3000, 1, 5},
                                         {1, 1, 40, 9},
                                         {1, 1, 1},
                                         {2, 1, 5, 1, 3, 1, 4, 2},
                                         {2, 2, 2, 2, 2, 2, 2, 2, 2},
                                         {1200, 1, 1, 3},
                                         {4, 1500, 20}};
  for (const auto& shape : shapes) {
    const Doubles t(shape, random);
    const auto expected = ComputeSketchScalar(t.view());
    ForEachTarget([&](const char* target) {
      ExpectSameSketch(ComputeSketch(t.view()), expected, t.Text() + " on " + target);
    });
    EXPECT_EQ(expected->grid.has_value(), shape.size() >= 3 && shape.size() <= 8) << t.Text();
    ExpectOracle(*expected, t.shape, t.values, t.Text());
  }
}

TEST(Sketch, AgreesWithLongDouble) {
  Random random(4);
  for (int i = 0; i < 60; ++i) {
    std::vector<int64_t> shape;
    int64_t numel = 1;
    for (int64_t d = Uniform(random, 0, 5); d > 0; --d) {
      const int64_t most = std::max<int64_t>(1, 60000 / numel);
      shape.push_back(Uniform(random, 1, std::min(most, i % 3 == 0 ? int64_t{3000} : int64_t{20})));
      numel *= shape.back();
    }
    const Doubles t(shape, random);
    ExpectOracle(t.sketch(), t.shape, t.values, t.Text());
  }
}

// float32, whose rows are summed in float: each of them is as near as float32 has digits.
TEST(Sketch, OfFloatsAgreesWithLongDouble) {
  Random random(7);
  std::normal_distribution<float> normal(0.5);  // a mean, as activations have one
  for (const auto& shape : std::vector<std::vector<int64_t>>{
           {300, 2}, {70, 3, 8}, {40, 64}, {5, 33, 130}, {64, 1024}, {9, 5000}, {1, 100000}}) {
    Doubles t(shape);
    std::vector<float> floats(t.values.size());
    for (size_t i = 0; i < floats.size(); ++i) t.values[i] = floats[i] = normal(random);
    const TensorView view{.data = floats.data(),
                          .dtype = DType::kFloat32,
                          .ndim = static_cast<int>(shape.size()),
                          .shape = shape.data()};
    const Sketch s = ComputeSketch(view).value();
    const Oracle o = OracleOf(shape, t.values);
    const double error = 0x1p-21 * t.norm();
    ExpectNear(s.rows, Complex(o.rows), error, t.Text() + " rows");
    ExpectNear(s.wave, Complex(o.wave), error, t.Text() + " wave");
    if (s.grid) ExpectNear(*s.grid, Complex(o.grid), error, t.Text() + " grid");
    EXPECT_NEAR(std::sqrt(s.squares), std::sqrt(static_cast<double>(o.squares)), error) << t.Text();
  }
}

TEST(Sketch, EqualRowsOfFloatsHaveEqualSums) {
  Random random(8);
  std::normal_distribution<float> normal;
  for (const int64_t columns : {3, 8, 16, 40, 64, 256, 1500}) {
    const int64_t rows = 37;
    std::vector<float> x(static_cast<size_t>(rows * columns)), y = x;
    for (float& v : x) v = normal(random);
    for (int64_t i = 0; i < rows; ++i)
      std::copy_n(x.begin() + i * columns, columns, y.begin() + (rows - 1 - i) * columns);
    const int64_t shape[] = {rows, columns};
    const auto sketch = [&](const std::vector<float>& values) {
      return ComputeSketch(
                 {.data = values.data(), .dtype = DType::kFloat32, .ndim = 2, .shape = shape})
          .value();
    };
    const Sketch a = sketch(x), b = sketch(y);
    EXPECT_LE(std::abs(a.rows - b.rows), 1e-13 * std::sqrt(a.squares)) << columns;
    EXPECT_NEAR(a.squares, b.squares, 1e-13 * a.squares) << columns;
    EXPECT_GT(std::abs(a.wave - b.wave), 1e-3 * std::sqrt(a.squares)) << columns;
  }
}

TEST(Sketch, ElementsThatAreNotFiniteCountAsZero) {
  Random random(5);
  Doubles t({6, 50}, random);
  Doubles zeros = t;
  for (const size_t k : {size_t{0}, size_t{77}, size_t{299}}) {
    t.values[k] = k == 77 ? kInf : std::numeric_limits<double>::quiet_NaN();
    zeros.values[k] = 0;
  }
  ExpectSameSketch(ComputeSketch(t.view()), ComputeSketch(zeros.view()), "not finite");
  t.values[3] = -8192;
  zeros.values[3] = 0;
  ExpectSameSketch(ComputeSketch(t.view(), nullptr, SketchOf::kRest), ComputeSketch(zeros.view()),
                   "extremes");
  EXPECT_NE(t.sketch(), zeros.sketch());
}

TEST(Sketch, IsMissingWhereThereIsNoNumber) {
  EXPECT_FALSE(ComputeSketch(Doubles({0}).view()));
  EXPECT_FALSE(ComputeSketch(Doubles({3, 0, 2}).view()));
  Doubles large({4});
  large.values = {1e200, 1, 1, 1};  // its square is infinite
  EXPECT_FALSE(ComputeSketch(large.view()));
}

TEST(Sketch, ComplexNumbersAreTwoColumns) {
  const std::vector<double> parts = {1, -2, 3, 4, 0.5, 6, 7, -8, 9, 10, 11, 12};
  const int64_t shape[] = {2, 3}, vector[] = {6};
  const TensorView z{.data = parts.data(), .dtype = DType::kComplex128, .ndim = 2, .shape = shape};
  Doubles flat({2, 6});
  flat.values = parts;
  ExpectSameSketch(ComputeSketch(z), flat.sketch(), "matrix");
  const TensorView v{.data = parts.data(), .dtype = DType::kComplex128, .ndim = 1, .shape = vector};
  Doubles pairs({6, 2});
  pairs.values = parts;
  ExpectSameSketch(ComputeSketch(v), pairs.sketch(), "vector");
  EXPECT_EQ(SketchShapeOf(DType::kComplex64, std::vector<int64_t>{6}),
            (SketchShape{.rows = 6, .columns = 2}));
  EXPECT_EQ(SketchShapeOf(DType::kFloat32, std::vector<int64_t>{2, 3, 4}),
            (SketchShape{.rows = 6, .columns = 4, .has_grid = true}));
}

// What sketch.h promises, over random shapes.
class SketchProperty : public testing::TestWithParam<int> {
 protected:
  SketchProperty() : random_(static_cast<uint64_t>(GetParam()) + 1000) {}
  // Rows and columns; one in four has a column only.
  Doubles Matrix() {
    const int64_t columns = GetParam() % 4 == 0 ? 1 : Uniform(random_, 2, 2500);
    return Doubles({Uniform(random_, 2, 40), columns}, random_);
  }
  Random random_;
};

TEST_P(SketchProperty, IsLinear) {
  const Doubles a = Matrix();
  Doubles b(a.shape, random_), sum(a.shape);
  for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] = 2 * a.values[i] - b.values[i];
  const Sketch x = a.sketch(), y = b.sketch(), z = sum.sketch();
  const double error = 1e-14 * (a.norm() + b.norm()) * std::sqrt(double(a.values.size()));
  ExpectNear(z.rows, 2.0 * x.rows - y.rows, error, "rows");
  ExpectNear(z.wave, 2.0 * x.wave - y.wave, error, "wave");
}

TEST_P(SketchProperty, OrderOfRowsAndRowsOfZerosLeaveRowsAndSquares) {
  const Doubles a = Matrix();
  const int64_t rows = a.shape[0], columns = a.shape[1];
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  std::swap(order[0], order[order[0] == 0 ? 1 : 0]);  // never the order of `a`
  Doubles b({rows + 3, columns});
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(a.values.begin() + order[static_cast<size_t>(i)] * columns, columns,
                b.values.begin() + (i + 1) * columns);
  }
  const Sketch x = a.sketch(), y = b.sketch();
  const double error = 1e-14 * a.norm() * std::sqrt(double(rows * columns));
  ExpectNear(x.rows, y.rows, error, "rows");
  EXPECT_NEAR(x.squares, y.squares, 1e-12 * x.squares);
  EXPECT_GT(std::abs(x.wave - y.wave), 1e-6 * a.norm());
  // Another shape with the same last dimension.
  Doubles c = b;
  c.shape = {1, rows + 3, columns};
  EXPECT_EQ(c.sketch().rows, y.rows);
  EXPECT_EQ(c.sketch().squares, y.squares);
  EXPECT_EQ(c.sketch().wave, y.wave);
}

TEST_P(SketchProperty, PartsJoin) {
  const Doubles a = Matrix();
  const int64_t rows = a.shape[0], columns = a.shape[1], cut = Uniform(random_, 1, rows - 1);
  Doubles top({cut, columns}), bottom({rows - cut, columns});
  std::copy_n(a.values.begin(), cut * columns, top.values.begin());
  std::copy(a.values.begin() + cut * columns, a.values.end(), bottom.values.begin());
  const Sketch x = a.sketch(), t = top.sketch(), b = bottom.sketch();
  const double error = 0x1p-28 * a.norm();
  ExpectNear(x.rows, t.rows + b.rows, error * 1e-3, "rows");
  EXPECT_NEAR(x.squares, t.squares + b.squares, 1e-12 * x.squares);
  ExpectNear(x.wave, t.wave + PhaseOf(kRowStep * uint64_t(cut)) * b.wave, error, "wave of rows");
  if (columns == 1) return;
  const int64_t at = Uniform(random_, 1, columns - 1);
  Doubles left({rows, at}), right({rows, columns - at});
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(a.values.begin() + i * columns, at, left.values.begin() + i * at);
    std::copy_n(a.values.begin() + i * columns + at, columns - at,
                right.values.begin() + i * (columns - at));
  }
  const Complex turn = PhaseOf(kColumnStep * uint64_t(at));
  ExpectNear(x.rows, left.sketch().rows + turn * right.sketch().rows, error, "rows of columns");
  ExpectNear(x.wave, left.sketch().wave + turn * right.sketch().wave, error, "wave of columns");
}

TEST_P(SketchProperty, ShardsJoin) {
  std::vector<int64_t> shape;
  for (int64_t d = Uniform(random_, 3, 5); d > 0; --d) shape.push_back(Uniform(random_, 2, 14));
  const Doubles a(shape, random_);
  const auto d = static_cast<size_t>(Uniform(random_, 0, int64_t(shape.size()) - 1));
  const int64_t cut = Uniform(random_, 1, shape[d] - 1);
  Complex joined;
  for (const bool second : {false, true}) {
    const int64_t from = second ? cut : 0, to = second ? shape[d] : cut;
    std::vector<int64_t> extents = shape;
    extents[d] = to - from;
    Doubles part(extents);
    int64_t inner = 1;
    for (size_t k = d + 1; k < shape.size(); ++k) inner *= shape[k];
    const int64_t outer = static_cast<int64_t>(a.values.size()) / inner / shape[d];
    for (int64_t o = 0; o < outer; ++o) {
      std::copy_n(a.values.begin() + (o * shape[d] + from) * inner, (to - from) * inner,
                  part.values.begin() + o * (to - from) * inner);
    }
    const uint64_t step = kPhaseSteps[shape.size() - 1 - d];
    joined += PhaseOf(step * uint64_t(from)) * part.sketch().grid.value();
  }
  ExpectNear(a.sketch().grid.value(), joined, 0x1p-28 * a.norm(), a.Text());
}

// An error of float32 shows as no more than sketch.h says.
TEST_P(SketchProperty, RoundingShowsAsRounding) {
  Doubles a = Matrix();
  for (double& v : a.values) v = static_cast<float>(v);
  Doubles b = a;
  std::uniform_real_distribution<double> error(-0x1p-24, 0x1p-24);
  double squares = 0;
  for (size_t i = 0; i < b.values.size(); ++i) {
    b.values[i] *= 1 + error(random_);
    squares += (b.values[i] - a.values[i]) * (b.values[i] - a.values[i]);
  }
  const double moved = std::sqrt(squares);
  const Sketch x = a.sketch(), y = b.sketch();
  EXPECT_LE(std::abs(x.wave - y.wave), 4 * moved);
  EXPECT_LE(std::abs(x.rows - y.rows), 8 * moved);
  EXPECT_LE(std::abs(std::sqrt(x.squares) - std::sqrt(y.squares)), 4 * moved);
  // One element that is wrong shows in all three.
  b = a;
  const double wrong = 0.1 * a.norm();
  b.values[static_cast<size_t>(Uniform(random_, 0, int64_t(b.values.size()) - 1))] += wrong;
  const Sketch z = b.sketch();
  EXPECT_NEAR(std::abs(x.wave - z.wave), wrong, 1e-6 * wrong);
  EXPECT_NEAR(std::abs(x.rows - z.rows), wrong, 1e-6 * wrong);
}

INSTANTIATE_TEST_SUITE_P(Random, SketchProperty, testing::Range(0, 40));

}  // namespace
}  // namespace msprobe::kernels
