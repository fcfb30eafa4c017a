// Complex numbers beside the pairs of real ones with which another run computes
// (engine/compare/relations/forms.cc).
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <string>

#include "tests/compare/matrix_runs.h"

namespace msprobe::compare::relations {
namespace {

using test::Elements;
using test::Map;

constexpr int kPairs = kColumns / 2;

// The complex numbers whose parts stand side by side in the rows of a matrix, as a recorder has
// them.
test::Tensor Complex(const Matrix& parts) {
  Elements moduli;
  for (size_t i = 0; i < parts.x.size(); i += 2)
    moduli.push_back(std::hypot(parts.x[i], parts.x[i + 1]));
  test::Tensor t = test::Recorded(
      moduli, "[" + std::to_string(parts.rows()) + ", " + std::to_string(kPairs) + "]");
  t.DType("torch.complex64").Print("c" + parts.Recorded().fingerprint);
  return t;
}

// Records the sketch of the last value, too.
void SketchComplex(DumpBuilder& b, const Matrix& parts) {
  const int64_t extents[] = {parts.rows(), kPairs};
  const TensorView view{
      .data = parts.x.data(), .dtype = DType::kComplex64, .ndim = 2, .shape = extents};
  std::string text;
  AppendSketch(&text, kernels::ComputeSketch(view).value());
  const auto leaf = static_cast<uint32_t>(b.dump().leaves.size() - 1);
  b.dump().sketches.push_back({leaf, b.dump().arena.emplace_back(text)});
}

void OutComplex(DumpBuilder& b, const Matrix& parts) {
  b.Out(Complex(parts));
  SketchComplex(b, parts);
}

// A call makes a value that stands elsewhere in the golden: in complex numbers, or in pairs.
Dump MakesPairs(const char* call, const Matrix& parts, bool is_complex) {
  DumpBuilder b;
  b.Call("Torch.f.0.forward");
  In(b, Matrix::Random(kRows, 1));
  Out(b, Matrix::Random(kRows, 50));
  b.Call(call);
  In(b, Matrix::Random(kRows, 50));
  if (is_complex)
    OutComplex(b, parts);
  else
    Out(b, parts);
  return b.Take();
}

Matrix PartsSwapped(Matrix m) {  // the parts of one number
  std::swap(m.x[2], m.x[3]);
  return m;
}

TEST(ComplexPairs, AreRelatedInBothDirections) {
  const Matrix x = Matrix::Random(kRows, 2);
  for (const bool complex_here : {true, false}) {
    const char *mine = complex_here ? "Tensor.__mul__.0.forward" : "Torch.stack.0.forward",
               *other = complex_here ? "Torch.stack.0.forward" : "Tensor.__mul__.0.forward";
    const Runs runs(MakesPairs(mine, x, complex_here), MakesPairs(other, x, !complex_here));
    EXPECT_EQ(runs.Result(1).strength, Strength::kNear);
    EXPECT_EQ(runs.Result(1).proof, Proof::kPairs);
    EXPECT_TRUE(runs.Result(1).proven);
    EXPECT_FALSE(runs.Result(1).doubtful);
  }
}

// Its moduli are the same, and so is the norm of all parts.
TEST(ComplexPairs, NumbersWithOtherPartsAreOtherNumbers) {
  const Matrix x = Matrix::Random(kRows, 2);
  Matrix conjugate = x;
  for (size_t i = 1; i < x.x.size(); i += 2) conjugate.x[i] = -x.x[i];
  for (const Matrix& wrong : {PartsSwapped(x), conjugate, x.Take(Reversed())}) {
    for (const bool complex_here : {true, false}) {
      const Runs runs(MakesPairs("Torch.g.0.forward", wrong, complex_here),
                      MakesPairs("Torch.g.0.forward", x, !complex_here));
      EXPECT_EQ(runs.Result(1).strength, Strength::kNone);
    }
  }
}

TEST(ComplexPairs, MayBeOffByRoundingAlone) {
  const Matrix x = Matrix::Random(kRows, 2);
  const auto strength = [&x](float by) {
    const Matrix off = x.Map([by](float v) { return v * (1 + by); });
    return Runs(MakesPairs("Torch.g.0.forward", off, true),
                MakesPairs("Torch.g.0.forward", x, false))
        .Result(1)
        .strength;
  };
  EXPECT_EQ(strength(2e-7F), Strength::kNear);
  EXPECT_EQ(strength(1e-3F), Strength::kNone);
}

TEST(ComplexPairs, AreNotRelatedWhereBitsDecide) {
  const Matrix x = Matrix::Random(kRows, 2);
  const CompareOptions exact{.exactness = Exactness::kExact};
  const Runs pairs(MakesPairs("Torch.g.0.forward", x, true),
                   MakesPairs("Torch.g.0.forward", x, false), {}, exact);
  EXPECT_EQ(pairs.Result(1).strength, Strength::kNone);
}

// What is made of pairs that are the golden's, in a dump without sketches of these rows.
Dump Viewed(const char* name, const Matrix& pairs, const Matrix& made, bool viewed) {
  DumpBuilder b;
  b.Call("Torch.f.0.forward");
  In(b, Matrix::Random(kRows, 1));
  Out(b, pairs);
  if (!viewed) return b.Take();
  b.Call(name);
  In(b, pairs);
  b.Out(Complex(made));
  return b.Take();
}

TEST(ComplexPairs, WithoutSketchesAViewHasThePairsOfItsArgument) {
  const Matrix x = Matrix::Random(kRows, 2);
  const auto made = [&](const char* name, const Matrix& pairs) {
    const Runs runs(Viewed(name, x, pairs, true), Viewed(name, x, x, false));
    return runs.Result(1);
  };
  const Relation view = made("Torch.view_as_complex.0.forward", x);
  EXPECT_EQ(view.strength, Strength::kNear);
  EXPECT_EQ(view.proof, Proof::kPairs);
  EXPECT_FALSE(view.proven);
  EXPECT_FALSE(view.doubtful);
  // Another operation may have made other numbers of these moduli.
  EXPECT_EQ(made("Torch.g.0.forward", x).strength, Strength::kNone);
  const Matrix twice = x.Map([](float v) { return 2 * v; });
  EXPECT_EQ(made("Torch.view_as_complex.0.forward", twice).strength, Strength::kNone);
}

// The view is made by code without records, and taken.
TEST(ComplexPairs, AreFoundWhereNobodyRecordedTheView) {
  const Matrix x = Matrix::Random(kRows, 2);
  const auto moved_from = [&x](const Matrix& viewed) {
    const auto run = [&] {
      DumpBuilder b;
      b.Call("Torch.f.0.forward");
      In(b, Matrix::Random(kRows, 1));
      Out(b, x);
      b.Call("Tensor.__mul__.0.forward").In(Complex(viewed));
      SketchComplex(b, viewed);
      return b.Take();
    };
    const Runs runs(run(), run());
    const Graph& t = runs.target;
    return t.MovedFrom(t.Takes(1)[0].value) == t.Makes(0)[0].value;
  };
  EXPECT_TRUE(moved_from(x));
  EXPECT_FALSE(moved_from(PartsSwapped(x)));
}

// An angle, and what a run makes of it: complex numbers, or their cosines and sines.
Dump Turns(const Matrix& angle, bool is_complex, float modulus = 1, float shift = 0) {
  DumpBuilder b;
  b.Call("Torch.outer.0.forward");
  In(b, Matrix::Random(kRows, 1));
  Out(b, angle);
  const Matrix cosine = angle.Map([=](float v) { return modulus * std::cos(v + shift); }),
               sine = angle.Map([=](float v) { return modulus * std::sin(v + shift); });
  if (is_complex) {
    const Elements moduli(angle.x.size(), modulus);
    b.Call("Torch.polar.0.forward").In(test::Recorded(moduli, "[8, 8]"));
    In(b, angle);
    b.Out(test::Recorded(moduli, "[8, 8]").DType("torch.complex64").Print("polar"));
    return b.Take();
  }
  b.Call("Torch.cos.0.forward");
  In(b, angle);
  Out(b, cosine);
  b.Call("Torch.sin.0.forward");
  In(b, angle);
  Out(b, sine);
  return b.Take();
}

TEST(Polar, HasTheCosinesAndSinesOfTheSameAngle) {
  const Matrix angle = Matrix::Random(kRows, 2);
  const Runs here(Turns(angle, true), Turns(angle, false));
  EXPECT_EQ(here.Result(1).proof, Proof::kPolar);
  EXPECT_EQ(here.Result(1).strength, Strength::kNear);
  const Runs there(Turns(angle, false), Turns(angle, true));
  for (const CallId call : {1, 2}) EXPECT_EQ(there.Result(call).proof, Proof::kPolar);
}

TEST(Polar, OfAnotherAngleOrModulusIsNotRelated) {
  const Matrix angle = Matrix::Random(kRows, 2), other = Matrix::Random(kRows, 3);
  const auto none = [](const Runs& runs, CallId call) {
    EXPECT_NE(runs.Result(call).proof, Proof::kPolar);
    EXPECT_EQ(runs.Result(call).strength, Strength::kNone);
  };
  none(Runs(Turns(other, true), Turns(angle, false)), 1);
  none(Runs(Turns(angle, true, 2), Turns(angle, false)), 1);
  const Runs back(Turns(angle, false, 2), Turns(angle, true));
  for (const CallId call : {1, 2}) none(back, call);
}

// As many squares, of moduli that are none of them 1.
TEST(Polar, OfModuliThatAreNotOneIsNotRelated) {
  const Matrix angle = Matrix::Random(kRows, 2);
  DumpBuilder b;
  b.Call("Torch.outer.0.forward");
  In(b, Matrix::Random(kRows, 1));
  Out(b, angle);
  Elements moduli(angle.x.size(), std::sqrt(0.5F));
  for (size_t i = 0; i < moduli.size(); i += 2) moduli[i] = std::sqrt(1.5F);
  b.Call("Torch.polar.0.forward").In(test::Recorded(moduli, "[8, 8]"));
  In(b, angle);
  b.Out(test::Recorded(moduli, "[8, 8]").DType("torch.complex64").Print("polar"));
  const Runs runs(b.Take(), Turns(angle, false));
  EXPECT_EQ(runs.Result(1).strength, Strength::kNone);
}

// All have the modulus 1: that does not make them a constant.
TEST(Polar, IsNoConstant) {
  const Runs runs(Turns(Matrix::Random(kRows, 2), true), Turns(Matrix::Random(kRows, 3), true));
  EXPECT_FALSE(runs.target.values[runs.target.Makes(1)[0].value].plain);
}

}  // namespace
}  // namespace msprobe::compare::relations
