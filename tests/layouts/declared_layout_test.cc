// What a user says of layouts (engine/compare/layouts/declared_layout.h).
#include "engine/compare/layouts/declared_layout.h"

#include <gtest/gtest.h>

#include "engine/compare/layouts/module_names.h"
#include "engine/compare/layouts/name_pattern.h"
#include "tests/base/temporary_folder.h"
#include "tests/layouts/rank_dumps.h"

namespace msprobe::compare::layouts {
namespace {

using Kind = ValueLayout::Kind;
const Array kMatrix = Array::Random({4, 6}, 1);

Result<DeclaredLayout> Read(const std::string& text) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("layout.yaml", text);
  return DeclaredLayout::Read(path);
}

std::string ErrorOf(const std::string& text) {
  const Result<DeclaredLayout> declared = Read(text);
  return declared.ok() ? "" : declared.status().ToString();
}

// How the parts lie, of which the target's ranks have one each.
struct Laid {
  Result<ValueLayout> layout;
  std::vector<int64_t> whole;
};
Laid Lay(const std::string& text, const std::vector<Array>& parts) {
  const DeclaredLayout declared = Read(text).value();
  const DeclaredSide side(declared.target_mesh, declared);
  const std::vector<RankRun> runs = RunsOf(parts);
  ShapePool shapes;
  const Shape whole = shapes.Of("[4, 6]");
  const auto extents = side.WholeOf(declared.dims[0], PartsOf(runs), runs, "x");
  return {side.LayoutOf(declared.dims[0], PartsOf(runs), runs, whole, "x"),
          extents.ok() ? *extents : std::vector<int64_t>()};
}

TEST(DeclaredLayout, ADimensionIsDividedAlongAnAxis) {
  const Array a = kMatrix.Part(1, 0, 3), b = kMatrix.Part(1, 3, 6);
  Laid laid = Lay("target_mesh: {tp: 2}\ndims: {x: b (h/tp d)}", {a, b});
  EXPECT_EQ(laid.layout->kind, Kind::kShards);
  EXPECT_EQ(laid.layout->dimension, 1);
  EXPECT_EQ(laid.whole, std::vector<int64_t>({4, 6}));
  // Behind another factor each rank has pieces, and in a zigzag: nothing tells their order.
  laid = Lay("target_mesh: {tp: 2}\ndims: {x: b (3 h/tp d)}", {a, b});
  EXPECT_EQ(laid.layout->dimension, -1);
  laid = Lay("target_mesh: {tp: 2}\ndims: {x: b h/tp}\norder: {tp: zigzag}", {a, b});
  EXPECT_EQ(laid.layout->dimension, -1);
}

TEST(DeclaredLayout, TheLastAxisOfAMeshCountsFastest) {
  const Array a = kMatrix.Part(0, 0, 2), b = kMatrix.Part(0, 2, 4);
  Laid laid = Lay("target_mesh: {dp: 2, tp: 2}\ndims: {x: b/dp h}", {a, a, b, b});
  EXPECT_EQ(laid.layout->places, (std::vector<std::vector<int32_t>>{{0}, {2}}));
  laid = Lay("target_mesh: {dp: 2, tp: 2}\ndims: {x: b/tp h}", {a, b, a, b});
  EXPECT_EQ(laid.layout->places, (std::vector<std::vector<int32_t>>{{0}, {1}}));
  // The copy that is not as the others is compared.
  laid = Lay("target_mesh: {dp: 3, tp: 2}\ndims: {x: b/tp h}", {a, b, a, b.Times(2), a, b});
  EXPECT_EQ(laid.layout->places, (std::vector<std::vector<int32_t>>{{0}, {3}}));
}

TEST(DeclaredLayout, RanksMayHaveAddends) {
  const Laid laid = Lay("target_mesh: {tp: 2}\ndims: {x: b h +tp}", {kMatrix, kMatrix.Times(2)});
  EXPECT_EQ(laid.layout->kind, Kind::kSum);
  EXPECT_EQ(laid.layout->places, (std::vector<std::vector<int32_t>>{{0, 1}}));
}

TEST(DeclaredLayout, ShapesThatContradictAreAnError) {
  const Array a = kMatrix.Part(1, 0, 3), b = kMatrix.Part(1, 3, 6);
  Laid laid = Lay("target_mesh: {tp: 2}\ndims: {x: b/tp h}", {a, b});
  ASSERT_FALSE(laid.layout.ok());
  EXPECT_NE(laid.layout.status().ToString().find(
                "2: expected parts of [4, 6] along \"b/tp h\", found [4, 3] for x of rank 0"),
            std::string::npos)
      << laid.layout.status().ToString();
  EXPECT_FALSE(Lay("target_mesh: {tp: 2}\ndims: {x: b h/tp d}", {a, b}).layout.ok());
  EXPECT_FALSE(Lay("target_mesh: {tp: 2}\ndims: {x: b h}", {a, kMatrix}).layout.ok());
}

TEST(DeclaredLayout, WhatIsNotWrittenSoIsAnErrorWithItsLine) {
  EXPECT_NE(ErrorOf("target_mesh: {tp: 2}\ndim: {}").find("did you mean dims?"), std::string::npos);
  for (const std::string dims : {"", "(b", "b)", "b/", "b//tp", "b /tp", "b + tp", "+tp b",
                                 "b/tp c/tp", "b/ep", "(b (c))", "b-c", "b/tp +tp"}) {
    const std::string error = ErrorOf("target_mesh: {tp: 2}\ndims:\n  x: \"" + dims + "\"");
    EXPECT_NE(error.find("layout.yaml:3: expected"), std::string::npos) << dims << ": " << error;
  }
  for (const std::string text :
       {"- 1", "target_mesh: 4", "target_mesh: {tp: 0}", "target_mesh: {tp: -1}",
        "target_mesh: {tp: 2, tp: 2}", "target_mesh: {tp: 99999999999999999999}",
        "target_mesh: {a: 1048576, b: 1048576}", "gradient_factor: 0", "gradient_factor: nan",
        "gradient_factor: 2x", "order: {cp: zigzag}", "target_mesh: {cp: 2}\norder: {cp: zag}",
        "modules: {\"a.*\": b}", "ignore: x", "ignore: [\"\"]", "ignore: []\nignore: []"})
    EXPECT_NE(ErrorOf(text).find("layout.yaml:"), std::string::npos) << text;
  EXPECT_EQ(ErrorOf("target_mesh: {dp: 2, tp: 2}\ngolden_mesh: {}\ngradient_factor: 2.5\n"
                    "ignore: [\"*.drop.*\"]\nmodules: {\"a.*\": \"b.*\"}"),
            "");
}

TEST(DeclaredLayout, TheMeshHasAsManyRanksAsTheRun) {
  const DeclaredLayout declared = Read("target_mesh: {dp: 2, tp: 2}").value();
  EXPECT_TRUE(DeclaredSide(declared.target_mesh, declared).Check(4, "run").ok());
  EXPECT_FALSE(DeclaredSide(declared.target_mesh, declared).Check(8, "run").ok());
}

TEST(NamePattern, AStarStandsForAnyText) {
  std::vector<std::string> stars;
  EXPECT_TRUE(MatchesPattern("layers.*.fc*", "layers.0.attn.fc1", &stars));
  EXPECT_EQ(stars, std::vector<std::string>({"0.attn", "1"}));
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(MatchesPattern("a*b", "aXbY"));
  EXPECT_FALSE(MatchesPattern("", "a"));
}

TEST(ModuleNames, WhatIsDeclaredGoesFirst) {
  ModuleNames names;
  names.Declare({{"stage.layers.*", "decoder.*"}, {"head", "lm_head"}});
  EXPECT_EQ(names.Of("stage.layers.3.fc"), "decoder.3.fc");
  EXPECT_EQ(names.Of("head.weight"), "lm_head.weight");
  EXPECT_EQ(names.Of("heads.weight"), "heads.weight");
}

}  // namespace
}  // namespace msprobe::compare::layouts
