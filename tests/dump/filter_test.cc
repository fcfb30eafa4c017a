#include "engine/dump/config/filter.h"

#include <gtest/gtest.h>

#include "engine/dump/config/config.h"

namespace msprobe::dump {
namespace {

TEST(Filter, StepsAndRanks) {
  Filter all;
  EXPECT_TRUE(all.WantsStep(0) && all.WantsRank(7) && all.WantsRank(-1) && all.wants_all_entries());
  EXPECT_FALSE(all.IsPastLastStep(1'000'000));
  Config config;
  config.step = {2, 5};
  config.rank = {1};
  const Filter some(config);
  EXPECT_TRUE(some.WantsStep(2) && some.WantsStep(5) && some.WantsRank(1) && some.WantsRank(-1));
  EXPECT_FALSE(some.WantsStep(0) || some.WantsStep(3) || some.WantsRank(0));
  EXPECT_FALSE(some.IsPastLastStep(5));
  EXPECT_TRUE(some.IsPastLastStep(6));
}

TEST(Filter, ListIsASubstringOfTheName) {
  Config config;
  config.list = {"relu", "layers.3."};
  Filter filter(config);
  EXPECT_FALSE(filter.wants_all_entries());
  EXPECT_TRUE(filter.WantsEntry("Functional.leaky_relu.0.forward"));
  EXPECT_TRUE(filter.EnterModule("Module.layers.3.fc.Linear.forward.0"));
  // At level L1 a matching module does not select the calls inside it.
  EXPECT_FALSE(filter.WantsEntry("Functional.linear.0.forward"));
  EXPECT_FALSE(filter.WantsEntry("Functional.RELU.0.forward"));
}

TEST(Filter, MixKeepsWhatRunsInsideAMatchingModule) {
  Config config;
  config.level = Level::kMix;
  config.list = {"layers.3."};
  Filter filter(config);
  EXPECT_FALSE(filter.WantsEntry("Functional.linear.0.forward"));
  EXPECT_TRUE(filter.EnterModule("Module.layers.3.Block.forward.0"));
  EXPECT_TRUE(filter.EnterModule("Module.layers.3.fc.Linear.forward.0"));
  EXPECT_TRUE(filter.WantsEntry("Functional.linear.1.forward"));
  filter.LeaveModule("Module.layers.3.fc.Linear.forward.0");
  EXPECT_TRUE(filter.WantsEntry("Functional.gelu.0.forward"));
  filter.LeaveModule("Module.layers.3.Block.forward.0");
  EXPECT_FALSE(filter.WantsEntry("Functional.linear.2.forward"));
  filter.EnterModule("Module.layers.3.Block.forward.1");
  filter.NewStep();  // an exception left the module open
  EXPECT_FALSE(filter.WantsEntry("Functional.linear.0.forward"));
}

TEST(Filter, ScopeIsAnInclusiveRange) {
  Config config;
  config.scope = {"Functional.b.0.forward", "Functional.d.0.forward"};
  Filter filter(config);
  EXPECT_FALSE(filter.WantsEntry("Functional.a.0.forward"));
  EXPECT_TRUE(filter.WantsEntry("Functional.b.0.forward"));
  EXPECT_TRUE(filter.WantsEntry("Functional.c.0.forward"));
  EXPECT_TRUE(filter.WantsEntry("Functional.d.0.forward"));
  EXPECT_FALSE(filter.WantsEntry("Functional.e.0.forward"));
}

TEST(Filter, AModuleAtTheEndOfAScopeIsWhollyInside) {
  Config config;
  config.level = Level::kMix;
  config.scope = {"Module.a.A.forward.0", "Module.b.B.forward.0"};
  Filter filter(config);
  EXPECT_TRUE(filter.EnterModule("Module.a.A.forward.0"));
  filter.LeaveModule("Module.a.A.forward.0");
  EXPECT_TRUE(filter.WantsEntry("Functional.between.0.forward"));
  EXPECT_TRUE(filter.EnterModule("Module.b.B.forward.0"));
  EXPECT_TRUE(filter.WantsEntry("Functional.inside.0.forward"));
  filter.LeaveModule("Module.b.B.forward.0");
  EXPECT_FALSE(filter.WantsEntry("Functional.after.0.forward"));
}

TEST(Filter, ScopeAndListBothMustAgree) {
  Config config;
  config.scope = {"Functional.a.0.forward", "Functional.c.0.forward"};
  config.list = {"b"};
  config.tensor_list = {"softmax"};
  Filter filter(config);
  EXPECT_FALSE(filter.WantsEntry("Functional.a.0.forward"));
  EXPECT_TRUE(filter.WantsEntry("Functional.b.0.forward"));
  EXPECT_FALSE(filter.WantsEntry("Functional.c.0.forward"));
  EXPECT_FALSE(filter.WantsEntry("Functional.b.1.forward"));
  EXPECT_TRUE(filter.WantsTensor("Functional.softmax.0.forward"));
  EXPECT_FALSE(filter.WantsTensor("Functional.relu.0.forward"));
}

}  // namespace
}  // namespace msprobe::dump
