#include "engine/model/named_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace msprobe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<NamedCall>& Calls() {
  static const auto& calls = *new std::vector<NamedCall>{
      {.name = "Functional.conv2d.2.forward", .line = "/a/net.py:41 in forward: x = f(x)"},
      {.name = "Functional.conv2d.20.forward", .line = "/a/net.py:4 in forward: x = f(x)"},
      {.name = "Module.conv2d.2.Conv2d.forward.0", .line = ""},
      {.name = "Functional.mse.0.forward", .line = "train.py:9", .may_be_loss = true},
      {.name = "Functional.mse.0.backward", .line = "train.py:9"},
      {.name = "Functional.conv2d.20.backward", .line = ""},
      {.name = "Functional.conv2d.2.backward", .line = ""},
      {.name = "Tensor.add.12.forward", .line = ""}};
  return calls;
}

TEST(NamedCalls, ANumberIsWhole) {
  EXPECT_THAT(CallsNamed(Calls(), "conv2d.20"), ElementsAre(1));
  EXPECT_THAT(CallsNamed(Calls(), "Functional.conv2d.2"), ElementsAre(0));
  EXPECT_THAT(CallsNamed(Calls(), "conv2d.2"), ElementsAre(0, 2));
  EXPECT_THAT(CallsNamed(Calls(), "add.1"), IsEmpty());
  EXPECT_THAT(CallsNamed(Calls(), "2.forward"), ElementsAre(0));  // not the end of 12
  EXPECT_FALSE(NamesCall("conv2d.2", Calls()[1]));
}

TEST(NamedCalls, ALineIsWhole) {
  EXPECT_THAT(CallsNamed(Calls(), "net.py:4"), ElementsAre(1));
  EXPECT_THAT(CallsNamed(Calls(), "et.py:4"), IsEmpty());
  EXPECT_THAT(CallsNamed(Calls(), "train.py:9"), ElementsAre(3));
}

TEST(NamedCalls, TheDirectionMayBeLeftOutOnBothSides) {
  EXPECT_THAT(CallsNamed(Calls(), "Functional.mse.0"), ElementsAre(3));
  EXPECT_THAT(CallsNamed(Calls(), "Functional.mse.0.backward"), ElementsAre(4));
  const std::vector<NamedCall> calls = {{.name = "Functional.mse.0", .line = ""}};
  EXPECT_THAT(CallsNamed(calls, "Functional.mse.0.backward"), ElementsAre(0));
  EXPECT_THAT(CallsNamed(Calls(), "loss"), ElementsAre(3));
}

TEST(NamedCalls, BetweenDotsGoesBeforeAPart) {
  const std::vector<NamedCall> calls = {{.name = "Tensor.mul_.0.forward", .line = ""},
                                        {.name = "Tensor.mul.0.forward", .line = ""}};
  EXPECT_THAT(CallsNamed(calls, "mul"), ElementsAre(1));
  EXPECT_THAT(CallsNamed(calls, "ul_"), ElementsAre(0));
}

// Reports list the calls of a region without the underscores of operators.
TEST(NamedCalls, AnOperatorHasItsNameWithoutUnderscores) {
  const std::vector<NamedCall> calls = {{.name = "Tensor.__truediv__.0.forward", .line = ""},
                                        {.name = "Tensor.__mul__.0.forward", .line = ""},
                                        {.name = "Torch.mul.0.forward", .line = ""},
                                        {.name = "Torch.my__add.0.forward", .line = ""}};
  EXPECT_THAT(CallsNamed(calls, "truediv.0"), ElementsAre(0));
  EXPECT_THAT(CallsNamed(calls, "Tensor.truediv"), ElementsAre(0));
  EXPECT_THAT(CallsNamed(calls, "mul.0"), ElementsAre(2));
  EXPECT_THAT(CallsNamed(calls, "myadd.0"), IsEmpty());
  EXPECT_TRUE(NamesCall("truediv.0", calls[0]));
}

TEST(NamedCalls, NoneAndSeveralAreErrorsThatListWhatThereIs) {
  const Status none = OneCallNamed(Calls(), "nosuch", "runs/a").status();
  EXPECT_EQ(none.message(),
            "runs/a: expected a call, such as Functional.linear.3, model.py:41 or loss, found no "
            "\"nosuch\" among 8 calls");
  EXPECT_EQ(none.hint(), "msprobe show runs/a lists the calls");
  EXPECT_EQ(OneCallNamed(Calls(), "Functional.mze.0.forward", "runs/a").status().hint(),
            "did you mean Functional.mse.0.forward?");
  const Status several = OneCallNamed(Calls(), "conv2d", "runs/a").status();
  EXPECT_THAT(several.message(), HasSubstr("expected one call, found 3 calls"));
  EXPECT_EQ(several.hint(),
            "one of Functional.conv2d.2.forward (net.py:41), Functional.conv2d.20.forward "
            "(net.py:4), Module.conv2d.2.Conv2d.forward.0");
}

}  // namespace
}  // namespace msprobe
