// Gradients that lay in .grad when a backward pass began, and that the pass added its own to: of a
// zero_grad that was not called, of another optimizer's loss, of the pass before. Where they are
// not the same in both runs, they are the first wrong number, and no call of the pass is to blame.
//
//   LeftGradients left(&target, &golden);   // before the alignment: takes their entries out
//   left.Differences(comparison);           // what the runs do not agree on
//   left.Put(pass, shown, 0.95, &comparison);  // puts back the one that is the first divergence
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// What lay in .grad of one parameter when a backward pass began, if the runs do not agree on it.
struct LeftGradient {
  int64_t pass = 0;       // number of the backward pass in the step
  std::string parameter;  // "fc.weight"
  // Null: nothing lay there.
  const Leaf *target = nullptr, *golden = nullptr;
  // Number of records before the pass; -1: the run has no entry of it.
  int32_t target_behind = -1, golden_behind = -1;
};

// "fc.weight" of a gradient that an optimizer takes, or that is listed with those of a module; ""
// of another value.
std::string ParameterOfGradient(const Record& record, std::string_view path_of_leaf);

// Takes the entries of gradients_before.h out of a dump, and from its provenance that it has them.
void DropGradientsBefore(Dump* dump);

class LeftGradients {
 public:
  LeftGradients(Dump* target, Dump* golden);

  // Of all passes that both dumps tell of, in their order. Valid as long as this object.
  std::vector<LeftGradient> Differences(const Comparison& comparison) const;
  // Puts the entry of a pass before pair `shown`, which shows the gradient first, and makes it the
  // first divergence.
  void Put(int64_t pass, int32_t shown, double confidence, Comparison* comparison) const;

 private:
  struct Pass {
    Record record;
    std::vector<Leaf> leaves;  // one for each parameter; names as in the file
    int32_t behind = 0;        // number of records before it
  };
  struct Side {
    bool tells = false;
    std::vector<Pass> passes;
    const Pass* Find(int64_t number) const;
  };
  // Of one parameter; null: nothing lay there.
  struct Difference {
    std::string_view parameter;
    const Leaf *target, *golden;
    Measure measure;
  };
  static Side Take(Dump* dump);
  std::vector<Difference> DifferencesOf(const Comparison& c, int64_t number) const;
  static int32_t BeginOf(const Comparison& c, const Pass* target, const Pass* golden, int32_t last);
  static Message Describe(const Comparison& c, int32_t pair,
                          const std::vector<Difference>& differences, int64_t number);
  void Insert(const std::vector<Difference>& differences, int64_t number, int32_t at,
              Comparison* c) const;

  Side target_, golden_;
};

}  // namespace msprobe::compare
