
#include <gmock/gmock.h>

#include "engine/compare/explain/summary.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

// Two tokens are decoded. The target keeps what it knows of the tokens before, the golden computes
// it again: `error` of the last logits, which no record has as the call that takes them.
Dump Decoding(bool cached, double error = 0, bool ends = true) {
  DumpBuilder b;
  int made = 100;
  for (int step = 0; step < 2; ++step) {
    const std::string number = "." + std::to_string(step) + ".forward";
    const std::string rows = std::to_string(cached && step > 0 ? 1 : 5 + step);
    const auto all = [&](int id) {
      return Value(cached || step == 0 ? id : id + 50).Shape("[" + rows + ", 8]");
    };
    b.Call("Functional.embedding" + number).In(Value(step)).Out(all(made));
    b.Call("Functional.linear" + number).In(all(made)).Out(all(made + 1));
    made += 2;
    if (!ends && step > 0) break;
    b.Call("Tensor.argmax" + number).In(Value(10 + step, step > 0 ? error : 0).Shape("[2, 9]"));
    b.Out(Value(20 + step, step > 0 ? error : 0).Shape("[2, 1]"));
  }
  return b.Take();
}

TEST(OtherShapes, AValueOfEqualShapeThatDiffers) {
  EXPECT_NE(First(MustCompare(Decoding(true, kWrong), Decoding(false))), "none");
}

// What nobody takes is judged by nothing: its shape is the result.
TEST(OtherShapes, AStepThatEndsWithOtherShapes) {
  EXPECT_NE(First(MustCompare(Decoding(true, 0, false), Decoding(false, 0, false))), "none");
}

}  // namespace
}  // namespace msprobe::compare::test
