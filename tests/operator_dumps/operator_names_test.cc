#include "engine/operator_dumps/operator_names.h"

#include <gtest/gtest.h>

namespace msprobe::operator_dumps {
namespace {

TEST(OperatorName, TaskStreamAndTimeDoNotMatter) {
  const struct {
    const char *path, *key, *op, *time;
  } cases[] = {
      {"Conv2D.conv1.3.7.1697617551412398.output.0.npy", "Conv2D.conv1.output.0", "Conv2D.conv1",
       "1697617551412398"},
      {"a/b/Conv2D.conv1.3.7.1697617551412398.input.12", "a/b/Conv2D.conv1.input.12",
       "Conv2D.conv1", "1697617551412398"},
      {"Conv2D.conv1.3.7.1697617551412398", "Conv2D.conv1", "Conv2D.conv1", "1697617551412398"},
      {"Add.add_1.1697617551412398.pt", "Add.add_1", "Add.add_1", "1697617551412398"},
      {"1697617551412398/Add.x.output.0.npy", "Add.x.output.0", "Add.x", "1697617551412398"},
      // Numbers that are no time belong to the name.
      {"Torch.add.3.forward.input.0.npy", "Torch.add.3.forward.input.0", "Torch.add.3.forward", ""},
      {"weights.1.2.3.npy", "weights.1.2.3", "weights.1.2.3", ""},
      {"1697617551412398", "1697617551412398", "1697617551412398", ""},
      {"npy", "npy", "npy", ""},
      {"", "", "", ""},
  };
  for (const auto& c : cases) {
    const OperatorName name(c.path);
    EXPECT_EQ(name.key, c.key) << c.path;
    EXPECT_EQ(name.op, c.op) << c.path;
    EXPECT_EQ(name.time, c.time) << c.path;
  }
}

TEST(OperatorName, TheOlderExecutionIsFirst) {
  const OperatorName early("Add.x.90.7.999999999999.output.0"),
      late("Add.x.3.7.1000000000000.output.0"), none("Add.x.output.0");
  EXPECT_TRUE(OperatorName::Before(early, late));
  EXPECT_FALSE(OperatorName::Before(late, early));
  EXPECT_TRUE(OperatorName::Before(none, early));
  EXPECT_TRUE(OperatorName::Before(OperatorName("x2"), OperatorName("x10")));
}

}  // namespace
}  // namespace msprobe::operator_dumps
