// Differences between calls that had no effect, because all gradients of the step agree.

#include <gmock/gmock.h>

#include "engine/compare/explain/summary.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

// Elements in the order `order`, which statistics do not show.
Tensor Edges(const std::string& order) {
  return Numbers(9, 0, 4.5, 17).DType("torch.int64").Print("edges" + order);
}
Tensor Messages(int id, const std::string& order) {
  return Value(id).Print("messages" + std::to_string(id) + order);
}

struct Graph {
  bool sorted = false;         // the target of the edges is sorted; a call more
  double gradient_error = 0;   // of the gradient that the optimizer takes
  double statistic_error = 0;  // of a running statistic that a call changes
  double sum_error = 0;        // of the sum
  double messages_error = 0;   // of the messages, and of the sum
  double update_error = 0;     // of the weight that the optimizer makes
  bool optimizer = true;
  const char* rate = "0.1";  // of the optimizer
};

// Messages along edges are added up. The order of the edges is seen in the messages only: they are
// taken by indexing, which is not recorded.
Dump AddUp(const Graph& graph) {
  const std::string order = graph.sorted ? "sorted" : "";
  const double by = graph.messages_error, sum_by = graph.sum_error + by;
  DumpBuilder b;
  if (graph.sorted) b.Call("Tensor.argsort.0.forward").In(Edges("")).Out(Edges("order"));
  b.Call("Tensor.__mul__.0.forward").In(Scaled(Messages(1, order), by)).In(Value(2));
  b.Out(Scaled(Messages(3, order), by));
  b.Call("Tensor.expand_as.0.forward").In(Edges("row" + order)).In(Scaled(Messages(3, order), by));
  b.Out(Edges("rows" + order));
  b.Call("Tensor.scatter_add.0.forward").In(Value(4)).In(Edges("rows" + order));
  b.In(Scaled(Messages(3, order), by)).Out(Value(5, sum_by));
  b.Call("Functional.batch_norm.0.forward").In(Value(5, sum_by));
  b.Out(Value(6, sum_by));
  b.Changed("input.1", Value(7, graph.statistic_error));
  b.Call("Functional.batch_norm.0.backward").In(Value(8)).Out(Value(9));
  b.Call("Tensor.scatter_add.0.backward").In(Value(9)).Out(Value(10)).Out(Messages(11, order));
  b.Call("Tensor.__mul__.0.backward").In(Messages(11, order)).Out(Messages(12, order));
  if (!graph.optimizer) return b.Take();
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.weight", Value(13, graph.gradient_error));
  b.Value("param_groups.0.lr", "float", graph.rate);
  b.Kwarg("weights.weight", Value(2))
      .OutAt("0.weights.weight", Value(14, graph.gradient_error + graph.update_error));
  return b.Take();
}

TEST(AgreeingGradients, AnotherOrderThatASumTakesBackIsNoFault) {
  for (const bool swap : {false, true}) {
    const Comparison c = MustCompare(AddUp({.sorted = !swap}), AddUp({.sorted = swap}));
    EXPECT_EQ(First(c), "none") << c.first.why.English();
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
  }
}

}  // namespace
}  // namespace msprobe::compare::test
