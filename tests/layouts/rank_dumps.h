// Dumps of ranks that hold parts of tensors, and of the process that has them whole.
//
//   const Array whole = Array::Random({4, 6}, /*seed=*/1);
//   DumpBuilder rank;
//   rank.Call("Torch.relu.0.forward");
//   In(rank, whole.Part(/*dimension=*/1, 0, 3));
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/compare/layouts/join_ranks.h"
#include "engine/compare/layouts/value_layout.h"
#include "engine/kernels/sketch.h"
#include "engine/model/sketch_text.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare::layouts {

using test::DumpBuilder;

// Elements of any shape.
struct Array {
  std::vector<int64_t> shape;
  std::vector<float> x;

  static Array Random(std::vector<int64_t> shape, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Array a{std::move(shape), {}};
    int64_t n = 1;
    for (const int64_t extent : a.shape) n *= extent;
    a.x.resize(static_cast<size_t>(n));
    for (float& each : a.x) each = normal(random);
    return a;
  }
  // What has the indices from `begin` to `end` of a dimension.
  Array Part(size_t dimension, int64_t begin, int64_t end) const {
    int64_t outer = 1, inner = 1;
    for (size_t d = 0; d < shape.size(); ++d)
      (d < dimension ? outer : inner) *= d == dimension ? 1 : shape[d];
    Array part{shape, {}};
    part.shape[dimension] = end - begin;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t k = begin; k < end; ++k) {
        const auto from = x.begin() + (o * shape[dimension] + k) * inner;
        part.x.insert(part.x.end(), from, from + inner);
      }
    }
    return part;
  }
  Array Plus(const Array& other, float times = 1) const {
    Array sum = *this;
    for (size_t i = 0; i < x.size(); ++i) sum.x[i] += times * other.x[i];
    return sum;
  }
  Array Times(float factor) const {
    return Array{shape, std::vector<float>(x.size(), 0)}.Plus(*this, factor);
  }

  test::Tensor Recorded() const {
    test::Tensor t;
    t.max = -std::numeric_limits<double>::infinity(), t.min = -t.max;
    double sum = 0, squares = 0;
    uint64_t hash = 0xcbf29ce484222325;
    for (const float each : x) {
      t.max = std::max<double>(t.max, each), t.min = std::min<double>(t.min, each);
      sum += each, squares += static_cast<double>(each) * each;
      hash = (hash ^ static_cast<uint64_t>(std::llround(each * 0x1p20))) * 0x100000001b3;
    }
    t.mean = sum / static_cast<double>(x.size()), t.norm = std::sqrt(squares);
    t.shape = "[";
    for (size_t d = 0; d < shape.size(); ++d)
      t.shape += (d > 0 ? ", " : "") + std::to_string(shape[d]);
    t.shape += "]";
    std::string print;
    AppendHex(&print, hash, 16);
    if (x.empty()) t.NoStats();
    return t.Print(print);
  }
  TensorView View() const {
    return {.data = x.data(),
            .dtype = DType::kFloat32,
            .ndim = static_cast<int>(shape.size()),
            .shape = shape.data()};
  }
};

// Records the sketch of the last value, too.
inline void Sketched(DumpBuilder& b, const Array& a) {
  if (a.x.empty()) return;
  std::string text;
  AppendSketch(&text, kernels::ComputeSketch(a.View()).value());
  b.dump().sketches.push_back(
      {static_cast<uint32_t>(b.dump().leaves.size() - 1), b.dump().arena.emplace_back(text)});
}
inline void In(DumpBuilder& b, const Array& a) { b.In(a.Recorded()), Sketched(b, a); }
inline void Out(DumpBuilder& b, const Array& a) { b.Out(a.Recorded()), Sketched(b, a); }
inline void Parameter(DumpBuilder& b, const std::string& name, const Array& a) {
  b.Parameter(name, a.Recorded()), Sketched(b, a);
}
// An exchange of all ranks: it takes a value and makes another one.
inline void Reduce(DumpBuilder& b, const std::string& name, const Array& given, const Array& made) {
  b.Call(name);
  In(b, given), Out(b, made);
  b.dump().records.back().group = static_cast<int32_t>(b.dump().groups.size());
  b.dump().groups.push_back({.ranks = "[0, 1]", .place = 0});
}

// Runs of which each has one value, the part.
inline std::vector<RankRun> RunsOf(const std::vector<Array>& parts) {
  std::vector<RankRun> runs;
  for (size_t i = 0; i < parts.size(); ++i) {
    DumpBuilder b;
    b.Call("Torch.relu.0.forward");
    Out(b, parts[i]);
    runs.push_back(
        {.rank = static_cast<int32_t>(i), .dump = std::make_shared<const Dump>(b.Take())});
  }
  return runs;
}
inline std::vector<ValuePart> PartsOf(const std::vector<RankRun>& runs) {
  std::vector<ValuePart> parts;
  for (size_t i = 0; i < runs.size(); ++i) parts.push_back({static_cast<int32_t>(i), 0});
  return parts;
}

}  // namespace msprobe::compare::layouts
