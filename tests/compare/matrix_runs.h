// Runs of matrices with their sketches, and what relates them.
//
//   DumpBuilder t, g;
//   t.Call("Torch.f.0.forward"); In(t, Matrix::Random(kRows, 1)); ...
//   const Runs runs(t.Take(), g.Take());
//   EXPECT_EQ(runs.Result(0).strength, Strength::kSame);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/compare/model/content_ids.h"
#include "engine/compare/proofs/check.h"
#include "engine/compare/relations/carried.h"
#include "engine/compare/relations/relate.h"
#include "engine/compare/relations/values/graph.h"
#include "engine/kernels/sketch.h"
#include "engine/model/sketch_text.h"
#include "tests/compare/dump_builder.h"
#include "tests/compare/recorded.h"

namespace msprobe::compare::relations {

using test::DumpBuilder;

inline constexpr int kRows = 8, kColumns = 8;

// Rows of eight elements.
struct Matrix {
  std::vector<float> x;

  static Matrix Random(int rows, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Matrix m{std::vector<float>(static_cast<size_t>(rows * kColumns))};
    for (float& each : m.x) each = normal(random);
    return m;
  }
  int rows() const { return static_cast<int>(x.size()) / kColumns; }
  Matrix Take(const std::vector<int>& which) const {
    Matrix m;
    for (const int row : which)
      m.x.insert(m.x.end(), x.begin() + row * kColumns, x.begin() + (row + 1) * kColumns);
    return m;
  }
  Matrix Map(const std::function<float(float)>& f) const {
    Matrix m = *this;
    std::transform(x.begin(), x.end(), m.x.begin(), f);
    return m;
  }
  test::Tensor Recorded() const {
    return test::Recorded(x, "[" + std::to_string(rows()) + ", " + std::to_string(kColumns) + "]");
  }
};

// Records the sketch of the last value, too.
inline void Sketch(DumpBuilder& b, const Matrix& m) {
  const int64_t extents[] = {m.rows(), kColumns};
  const TensorView view{.data = m.x.data(), .dtype = DType::kFloat32, .ndim = 2, .shape = extents};
  std::string text;
  AppendSketch(&text, kernels::ComputeSketch(view).value());
  const auto leaf = static_cast<uint32_t>(b.dump().leaves.size() - 1);
  b.dump().sketches.push_back({leaf, b.dump().arena.emplace_back(text)});
}

inline void In(DumpBuilder& b, const Matrix& m) {
  b.In(m.Recorded());
  Sketch(b, m);
}

inline void Out(DumpBuilder& b, const Matrix& m) {
  b.Out(m.Recorded());
  Sketch(b, m);
}

inline Matrix Transposed(const Matrix& m) {
  Matrix out = m;
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) out.x[j * kColumns + i] = m.x[i * kColumns + j];
  }
  return out;
}

// All proofs must hold.
struct Runs {
  Comparison c;
  std::shared_ptr<const ContentIds> content;
  Paths paths;
  Graph target, golden;
  Carried before;
  Proofs proofs;
  Relations relations;
  Runs(Dump t, Dump g, Carried left = {}, const CompareOptions& options = {})
      : c(test::MustCompare(std::move(t), std::move(g), options)),
        content(ContentOf(c)),
        target(c, Side::kTarget, *content, &paths),
        golden(c, Side::kGolden, *content, &paths),
        before(std::move(left)),
        relations(c, target, golden, before, &proofs) {
    CheckProofs(c, target, golden, before, &proofs);
    EXPECT_TRUE(proofs.refused.empty())
        << proofs.refused.front().defect << ", step " << proofs.refused.front().step;
  }
  const Relation& Result(CallId call) const { return relations.of(target.Makes(call)[0].value); }
};

inline std::vector<int> Reversed() { return {7, 6, 5, 4, 3, 2, 1, 0}; }

}  // namespace msprobe::compare::relations
