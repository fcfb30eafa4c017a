#include "engine/isolation/error_chain.h"

#include <gmock/gmock.h>

#include "tests/compare/divergence_values.h"

namespace msprobe::isolation {
namespace {

using compare::Comparison;
using compare::test::DumpBuilder;
using compare::test::kWrong;
using compare::test::Numbers;
using compare::test::Value;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Comparison ComparedChain(DumpBuilder& target, DumpBuilder& golden) {
  Result<Comparison> c = compare::Compare(target.Take(), golden.Take(), {});
  EXPECT_TRUE(c.ok());
  return *std::move(c);
}

std::vector<std::string> Names(const ErrorChain& chain) {
  std::vector<std::string> names;
  for (const ErrorHop& hop : chain.hops) names.push_back(hop.name);
  return names;
}

// wrong -> (side: a call that does not have the error) -> add -> relu -> loss, and back.
void Network(DumpBuilder* b, double error) {
  b->Call("Functional.linear.0.forward").In(Value(1)).Out(Value(2));
  b->Call("Functional.wrong.0.forward").In(Value(2)).Out(Value(3, error));
  b->At("model.py", 12, "h = wrong(h)");
  b->Call("Functional.side.0.forward").In(Value(2)).Out(Value(4));
  b->Call("Tensor.add.0.forward").In(Value(4)).In(Value(3, error)).Out(Value(5, error));
  b->At("model.py", 14, "h = h + s");
  b->Call("Module.net.Net.forward.0").In(Value(1)).Out(Value(5, error));
  b->Call("Functional.mse_loss.0.forward")
      .In(Value(5, error))
      .Out(Numbers(3 + error, 3 + error, 3 + error, 3 + error).Shape("[]"));
  b->Call("Functional.mse_loss.0.backward")
      .In(Numbers(1, 1, 1, 1).Shape("[]"))
      .Out(Value(6, error));
}

TEST(ErrorChainTest, LeadsFromTheFirstDivergenceToTheLoss) {
  DumpBuilder t, g;
  Network(&t, kWrong), Network(&g, 0);
  const Comparison c = ComparedChain(t, g);
  const Result<int32_t> loss = FindCall(c, "loss");
  ASSERT_TRUE(loss.ok());
  const ErrorChain chain = ChainTo(c, *loss);
  EXPECT_TRUE(chain.from_first);
  EXPECT_EQ(chain.note, "");
  EXPECT_THAT(Names(chain), ElementsAre("Functional.wrong.0.forward", "Tensor.add.0.forward",
                                        "Functional.mse_loss.0.forward"));
  EXPECT_EQ(chain.hops[0].from, "");
  EXPECT_EQ(chain.hops[1].from, "input.1");
  EXPECT_EQ(chain.hops[1].source_line, "model.py:14 in forward: h = h + s");
  EXPECT_THAT(chain.hops[1].error.English(), HasSubstr("output.0 is off by 5%"));
}

TEST(ErrorChainTest, ABackwardCallReadsWhatItsForwardCallSaved) {
  DumpBuilder t, g;
  Network(&t, kWrong), Network(&g, 0);
  const Comparison c = ComparedChain(t, g);
  const Result<int32_t> back = FindCall(c, "Functional.mse_loss.0.backward");
  ASSERT_TRUE(back.ok());
  const ErrorChain chain = ChainTo(c, *back);
  EXPECT_TRUE(chain.from_first);
  EXPECT_EQ(chain.hops.size(), 4u);
  EXPECT_EQ(chain.hops.back().from, "");
}

TEST(ErrorChainTest, ALinkThatWasNotRecordedIsSaid) {
  DumpBuilder t, g;
  for (auto [b, error] : {std::pair{&t, kWrong}, std::pair{&g, 0.0}}) {
    b->Call("Functional.wrong.0.forward").In(Value(2)).Out(Value(3, error));
    b->Call("Functional.later.0.forward").In(Value(8, error)).Out(Value(9, error));
  }
  const Comparison c = ComparedChain(t, g);
  const ErrorChain chain = ChainTo(c, *FindCall(c, "later"));
  EXPECT_FALSE(chain.from_first);
  EXPECT_THAT(Names(chain), ElementsAre("Functional.later.0.forward"));
  EXPECT_THAT(chain.note.English(), HasSubstr("no recorded value links"));
}

TEST(ErrorChainTest, CallsAreFoundByPartsAndLines) {
  DumpBuilder t, g;
  Network(&t, kWrong), Network(&g, 0);
  const Comparison c = ComparedChain(t, g);
  EXPECT_EQ(*FindCall(c, "Tensor.add.0"), 3);
  EXPECT_EQ(*FindCall(c, "model.py:12"), 1);
  EXPECT_FALSE(FindCall(c, "Functional").ok());
  EXPECT_THAT(FindCall(c, "nosuch").status().message(), HasSubstr("no \"nosuch\""));
  EXPECT_THAT(ChainTo(c, *FindCall(c, "linear")).note.English(), HasSubstr("agrees in both runs"));
}

}  // namespace
}  // namespace msprobe::isolation
