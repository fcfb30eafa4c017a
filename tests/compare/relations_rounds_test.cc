// Random pairs of runs, in which later calls decide what is known of earlier values: a round that
// leaves out what cannot have changed must relate all values as one that looks at everything
// (settled.h).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/compare/by_relations.h"

namespace msprobe::compare::relations {
namespace {

using test::DumpBuilder;
using test::Elements;
using test::Recorded;
using test::Sum;
using test::Times;

// What the target has of a value of the golden.
enum ValueChange : int { kSameBits, kRounded, kOther, kTurned, kManyTimes, kValueChanges };

Elements Changed(ValueChange kind, const Elements& x, unsigned seed) {
  switch (kind) {
    case kRounded:
      return Sum(x, test::Random(static_cast<int>(x.size()), seed), 1e-6F);
    case kOther:
      return Sum(x, test::Random(static_cast<int>(x.size()), seed), 0.2F);
    case kTurned: {
      Elements turned = x;
      std::reverse(turned.begin(), turned.end());
      return turned;
    }
    case kManyTimes:
      return Times(x, 3);
    default:
      return x;
  }
}

// Two runs of one random program of forward calls, modules, backward calls and a step, whose values
// are drawn from few: nothing that a call makes follows from what it takes.
struct RandomRuns {
  explicit RandomRuns(unsigned seed) : random(seed), most(8 + Below(17)) {
    for (int i = 0; i < most; ++i) {
      const Elements x = test::Random(4 * (1 + Below(3)), seed * 100 + static_cast<unsigned>(i));
      golden.push_back(x);
      target.push_back(Changed(static_cast<ValueChange>(Below(kValueChanges)), x, seed + 7));
    }
    for (int call = 0; call < kCalls; ++call) Forward(call);
    for (int call = kCalls; call-- > 0;) Backward(call);
    Name(Below(2) == 0 ? "Optimizer.AdamW.step.0.forward" : "Optimizer.Lamb.step.0.forward");
    for (const char* name : {"a", "b"}) {
      const int weight = Below(most), gradient = Below(most), next = Below(most);
      Each([&](DumpBuilder& b, const auto& values) {
        b.Kwarg(fmt::format("gradients.{}", name), Recorded(values[gradient]));
        b.Kwarg(fmt::format("weights.{}", name), Recorded(values[weight]));
        b.OutAt(fmt::format("0.weights.{}", name), Recorded(values[next]));
      });
    }
  }

  int Below(int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }

  template <typename Use>
  void Each(const Use& use) {
    use(mine, target);
    use(others, golden);
  }
  void Name(const std::string& name) {
    Each([&](DumpBuilder& b, const auto&) { b.Call(name); });
  }

  void Forward(int call) {
    static constexpr const char* kApis[] = {"Torch.mul",      "Torch.add",
                                            "Tensor.reshape", "Functional.softmax",
                                            "Torch.tanh",     "Functional.linear"};
    std::string api = kApis[Below(static_cast<int>(std::size(kApis)))];
    const bool module = Below(4) == 0;
    if (module) api = fmt::format("Module.m{}.Block", Below(3));
    const int number = numbers[api]++;
    names.push_back(module ? fmt::format("{}.{{}}.{}", api, number)
                           : fmt::format("{}.{}.{{}}", api, number));
    takes.push_back({Below(most), Below(most)});
    makes.push_back(Below(most));
    const bool twice = Below(3) == 0;
    const int second = Below(most);
    Name(fmt::format(fmt::runtime(names[call]), "forward"));
    Each([&](DumpBuilder& b, const auto& values) {
      for (const int value : takes[call]) b.In(Recorded(values[value]));
      b.Out(Recorded(values[makes[call]]));
      if (twice) b.Out(Recorded(values[second]));
    });
  }

  void Backward(int call) {
    if (Below(4) == 0) return;
    const int arriving = Below(most), first = Below(most), second = Below(most);
    Name(fmt::format(fmt::runtime(names[call]), "backward"));
    Each([&](DumpBuilder& b, const auto& values) {
      b.In(Recorded(values[arriving])).Out(Recorded(values[first])).Out(Recorded(values[second]));
    });
  }

  static constexpr int kCalls = 20;
  std::mt19937 random;
  const int most;  // values
  DumpBuilder mine, others;
  std::vector<Elements> target, golden;
  std::map<std::string, int> numbers;
  std::vector<std::string> names;
  std::vector<std::array<int, 2>> takes;
  std::vector<int> makes;
};

TEST(Rounds, LeaveOutWhatCannotHaveChanged) {
  for (unsigned seed = 1; seed <= 1000; ++seed) {
    RandomRuns runs(seed);
    const Result<Comparison> c = Compare(runs.mine.Take(), runs.others.Take(), {});
    ASSERT_TRUE(c.ok()) << c.status().ToString();
    ASSERT_EQ(test::UnsettledOf(*c), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace msprobe::compare::relations
