// Precision policies as facts: which differences of them are of one place, and which of a whole
// run.
#include "engine/compare/model/precision_policies.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "engine/compare/relations/left_gradients.h"
#include "tests/compare/recorded.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::Elements;
using test::Random;
using test::Recorded;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using PolicyKind = Policies::Kind;

constexpr char kOff[] = "float32", kOn[] = "float32, autocast cpu bfloat16",
               kHalf[] = "float32, autocast cpu float16", kDouble[] = "float64";

// Elements as a dtype holds them.
Elements RoundedTo(const Elements& x, std::string_view dtype) {
  const float steps = dtype == "bfloat16" ? 256.0F : dtype == "float16" ? 2048.0F : 0.0F;
  if (steps == 0) return x;
  return test::Map(x, [steps](float v) {
    int exponent = 0;
    const float mantissa = std::frexp(v, &exponent);
    return std::ldexp(std::round(mantissa * steps) / steps, exponent);
  });
}

// Products whose results have the dtype of the policy; calls of another policy than the header's
// say it.
Dump RunOf(const std::vector<std::string>& policies, const std::string& header = kOff) {
  DumpBuilder b;
  if (!header.empty()) b.dump().provenance = {{"precision", header}};
  for (size_t i = 0; i < policies.size(); ++i) {
    const std::string& policy = policies[i];
    const std::string dtype = policy == kOn       ? "bfloat16"
                              : policy == kHalf   ? "float16"
                              : policy == kDouble ? "float64"
                                                  : "float32";
    const auto seed = static_cast<unsigned>(i);
    b.Call("Torch.mm." + std::to_string(i) + ".forward");
    b.In(Recorded(Random(64, 10 + seed), "[8, 8]")).In(Recorded(Random(64, 90 + seed), "[8, 8]"));
    b.Out(Recorded(RoundedTo(Random(64, 50 + seed), dtype), "[8, 8]").DType("torch." + dtype));
    b.At("m.py", static_cast<int>(i), "y = a @ b");
    if (policy != header && !header.empty())
      b.dump().precisions.push_back(
          {static_cast<uint32_t>(i), b.dump().arena.emplace_back(policy)});
  }
  return b.Take();
}

Comparison ComparedPolicies(Dump target, Dump golden) {
  return std::move(Compare(std::move(target), std::move(golden), {})).value();
}

PolicyKind KindOf(const std::vector<std::string>& target, const std::vector<std::string>& golden) {
  return ComparePolicies(ComparedPolicies(RunOf(target), RunOf(golden))).kind;
}

TEST(PrecisionPolicies, AnotherPolicyOfAWholeRunIsNoneInPlaces) {
  EXPECT_EQ(KindOf({kOn, kOff, kOn}, {kOn, kOff, kOn}), PolicyKind::kSame);
  EXPECT_EQ(KindOf({kOn, kOn, kOff}, {kOff, kOff, kOff}), PolicyKind::kWhole);
  EXPECT_EQ(KindOf({kOff, kOff, kOff}, {kOff, kOn, kOn}), PolicyKind::kWhole);
  EXPECT_EQ(KindOf({kHalf, kOff, kHalf}, {kOn, kOff, kOn}), PolicyKind::kWhole);
  EXPECT_EQ(KindOf({kDouble, kDouble}, {kOff, kOff}), PolicyKind::kWhole);
  EXPECT_EQ(KindOf({kOn, kOff, kOn}, {kOn, kOn, kOn}), PolicyKind::kInPlaces);
  EXPECT_EQ(KindOf({kOn, kHalf, kOff}, {kOn, kOn, kOff}), PolicyKind::kInPlaces);
  EXPECT_EQ(KindOf({kOff, kDouble}, {kOff, kOff}), PolicyKind::kInPlaces);
}

TEST(PrecisionPolicies, OlderDumpsDoNotSay) {
  const Comparison c = ComparedPolicies(RunOf({kOn, kOff}, ""), RunOf({kOn, kOn}));
  EXPECT_EQ(ComparePolicies(c).kind, PolicyKind::kUnknown);
  EXPECT_EQ(ComparePolicies(c).first, -1);
  EXPECT_THAT(c.run_start.settings.English(), Not(HasSubstr("autocast")));
}

TEST(PrecisionPolicies, OneInPlacesIsNamedWithItsLineAndSaidOnce) {
  const Comparison c = ComparedPolicies(RunOf({kOn, kOff, kOff, kOn}), RunOf({kOn, kOn, kOn, kOn}));
  ASSERT_GE(c.first.pair, 0);
  EXPECT_EQ(c.target.records[c.pairs[c.first.pair].target].name, "Torch.mm.1.forward");
  constexpr char kSaid[] = "autocast is off in the target, on in the golden (cpu bfloat16)";
  EXPECT_THAT(c.first.why.English(), HasSubstr(kSaid));
  EXPECT_EQ(c.first.source_line, "m.py:1 in forward: y = a @ b");
  EXPECT_THAT(c.run_start.settings.English(),
              HasSubstr(std::string(kSaid) + "; this begins at Torch.mm.1.f"));
  EXPECT_EQ(c.run_start.settings.English().find("autocast"),
            c.run_start.settings.English().rfind("autocast"));
}

TEST(PrecisionPolicies, OneOfAWholeRunIsSaidAndBlamesNobody) {
  const Comparison c = ComparedPolicies(RunOf({kOff, kOff, kOff}), RunOf({kOn, kOn, kOff}));
  EXPECT_EQ(c.first.pair, -1);
  EXPECT_THAT(c.run_start.settings.English(),
              HasSubstr("autocast is off in the target, on in the golden (cpu bfloat16); this "
                        "begins at Torch.mm.0.forward: m.py:0 in forward: y = a @ b"));
}

TEST(PrecisionPolicies, NothingIsSaidWhereTheDTypesAreTheSame) {
  Dump target = RunOf({kOn, kOn});
  target.precisions.clear();  // cast by hand
  const Comparison c = ComparedPolicies(std::move(target), RunOf({kOn, kOn}));
  EXPECT_EQ(ComparePolicies(c).first, -1);
  EXPECT_THAT(c.run_start.settings.English(), Not(HasSubstr("autocast")));
}

// Entries of what lay in .grad are taken out of a dump: what belongs to the records after them
// stays so.
TEST(PrecisionPolicies, BelongToTheirCallsWhereRecordsAreTakenOut) {
  DumpBuilder b;
  b.dump().provenance = {{"precision", kOff}};
  b.Call("Torch.mm.0.forward").Out(Recorded(Random(8, 1)));
  b.Call("Optimizer.gradients_before.0.forward").OutAt("0.w", Recorded(Random(8, 2)));
  b.Call("Functional.dropout.0.forward").Out(Recorded(Random(8, 3)));
  b.dump().precisions.push_back({2, kOn});
  b.dump().random_draws.push_back({2, "state"});
  Dump dump = b.Take();
  DropGradientsBefore(&dump);
  ASSERT_EQ(dump.records.size(), 2U);
  EXPECT_EQ(dump.PrecisionOf(0), kOff);
  EXPECT_EQ(dump.PrecisionOf(1), kOn);
  EXPECT_EQ(dump.RandomStateOf(1), "state");
  EXPECT_THAT(dump.RandomStateOf(0), IsEmpty());
}

}  // namespace
}  // namespace msprobe::compare
