// Where the values of a rewrite may end: what tells that a call which only one run makes, or makes
// differently, changed nothing.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <string>

#include "engine/base/messages/message.h"
#include "engine/compare/explain/summary.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// "Torch.cos.0.forward Torch.sin.0.forward": the calls that are part of a rewrite.
std::string Rewritten(const Comparison& c) {
  std::string names;
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    if (!c.IsRewritten(static_cast<int32_t>(p))) continue;
    names += names.empty() ? "" : " ";
    names += EntryName(c, static_cast<int32_t>(p));
  }
  return names;
}

// x -> cos -> scaled, by one call or by two -> sin. `between`: more calls.
using CallsOfEnd = void (*)(DumpBuilder&);
Dump Scaling(bool two, CallsOfEnd between = nullptr, double error = 0) {
  DumpBuilder b;
  b.Call("Torch.cos.0.forward").In(Value(1)).Out(Value(2));
  if (two) {
    b.Call("Tensor.__mul__.0.forward").In(Value(2)).Value("1", "int", "4").Out(Value(3));
    b.Call("Tensor.__truediv__.0.forward").In(Value(3)).Value("1", "int", "8");
    b.Out(Value(4, error));
  } else {
    b.Call("Tensor.__truediv__.0.forward").In(Value(2)).Value("1", "int", "2");
    b.Out(Value(4, error));
  }
  if (between != nullptr) between(b);
  b.Call("Torch.sin.0.forward").In(Value(4, error)).Out(Value(5, error));
  return b.Take();
}

// A recomputation of torch.utils.checkpoint ends with an exception in each right run.
TEST(RewriteEnds, ExceptionsOfBothSidesAreNoNote) {
  const CallsOfEnd raises = [](DumpBuilder& b) {
    b.Call("Torch.tanh.0.forward").In(Value(3));
    b.dump().records.back().exception = "_StopRecomputationError";
  };
  const auto notes = [](const Comparison& c) {
    return Message::Joined(c.not_observed, "; ").English();
  };
  EXPECT_THAT(notes(MustCompare(Scaling(true, raises), Scaling(false, raises))),
              Not(HasSubstr("exception")));
  EXPECT_THAT(notes(MustCompare(Scaling(true, raises), Scaling(false))),
              HasSubstr("1 call of the target ended with an exception"));
}

// A number that this process gives to others: what they make of it is not in the recording.
Dump Exchanged(bool scaled) {
  DumpBuilder b;
  b.Call("Torch.cos.0.forward").In(Value(1)).Out(Value(2));
  if (scaled) b.Call("Tensor.__mul__.0.forward").In(Value(2)).In(Value(3)).Out(Value(4));
  b.Call("Distributed.all_reduce.0.forward").In(Value(scaled ? 4 : 2)).Out(Value(5));
  b.Call("Torch.sin.0.forward").In(Value(5)).Out(Value(6));
  return b.Take();
}

TEST(RewriteEnds, WhatOtherProcessesTakeIsNotKnown) {
  const Comparison c = MustCompare(Exchanged(true), Exchanged(false));
  EXPECT_EQ(Rewritten(c), "");
  EXPECT_EQ(First(c), "Tensor.__mul__.0.forward");
}

}  // namespace
}  // namespace msprobe::compare::test
