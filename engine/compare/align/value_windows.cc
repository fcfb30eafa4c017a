#include "engine/compare/align/value_windows.h"

#include <algorithm>

namespace msprobe::compare {
namespace {

// A gap of n calls is looked at together with up to 2 * n + kMargin calls on each side.
constexpr int kMargin = 8;
// Of a window: its calls on one side times those on the other.
constexpr int64_t kMostCells = 40000;

// Positions of a stretch on both sides.
struct Window {
  int a0, a1, b0, b1;
};

// `a` is the side with the gap.
class Windows {
 public:
  Windows(std::span<const uint32_t> a, std::span<const uint32_t> b, std::vector<int>* match_a,
          std::vector<int>* match_b, std::function<int(int, int)> agreement)
      : a_(a), b_(b), match_a_(*match_a), match_b_(*match_b), agreement_(std::move(agreement)) {}

  void Run() {
    const int size = static_cast<int>(a_.size());
    for (int begin = 0; begin < size;) {
      if (match_a_[begin] >= 0) {
        ++begin;
        continue;
      }
      int end = begin;
      while (end < size && match_a_[end] < 0) ++end;
      const Window window = Around(begin, end);
      if (CanGain(begin, end, window)) PairAgain(window);
      begin = end;
    }
  }

 private:
  // The gap and the calls around it; on the other side, from behind the partner of the last call
  // before the window to the partner of the first call behind it.
  Window Around(int begin, int end) const {
    const int more = 2 * (end - begin) + kMargin;
    Window w{std::max(0, begin - more), std::min(static_cast<int>(a_.size()), end + more), 0,
             static_cast<int>(b_.size())};
    for (int i = w.a0 - 1; i >= 0; --i) {
      if (match_a_[i] < 0) continue;
      w.b0 = match_a_[i] + 1;
      break;
    }
    for (int i = w.a1; i < static_cast<int>(a_.size()); ++i) {
      if (match_a_[i] < 0) continue;
      w.b1 = match_a_[i];
      break;
    }
    return w;
  }

  // Whether the values of a call in the gap agree better with a call than those of its partner.
  bool CanGain(int begin, int end, const Window& w) const {
    if (static_cast<int64_t>(w.a1 - w.a0) * (w.b1 - w.b0) > kMostCells) return false;
    for (int j = w.b0; j < w.b1; ++j) {
      if (match_b_[j] < 0) continue;
      int now = -1;
      for (int i = begin; i < end; ++i) {
        if (a_[i] != b_[j]) continue;
        if (now < 0) now = agreement_(match_b_[j], j);
        if (agreement_(i, j) > now) return true;
      }
    }
    return false;
  }

  // The largest sum over all pairings in order, by dynamic programming from the end.
  void PairAgain(const Window& w) {
    const int rows = w.a1 - w.a0, columns = w.b1 - w.b0;
    std::vector<int> weights(static_cast<size_t>(rows) * columns, 0);
    std::vector<int> sums(static_cast<size_t>(rows + 1) * (columns + 1), 0);
    const auto weight = [&](int i, int j) -> int& { return weights[i * columns + j]; };
    const auto best = [&](int i, int j) -> int& { return sums[i * (columns + 1) + j]; };
    for (int i = rows - 1; i >= 0; --i) {
      for (int j = columns - 1; j >= 0; --j) {
        const int a = w.a0 + i, b = w.b0 + j;
        best(i, j) = std::max(best(i + 1, j), best(i, j + 1));
        if (a_[a] != b_[b]) continue;
        // The pair that is there wins where nothing else decides.
        weight(i, j) = 1024 * (1 + 2 * agreement_(a, b)) + (match_a_[a] == b);
        best(i, j) = std::max(best(i, j), weight(i, j) + best(i + 1, j + 1));
      }
    }
    for (int i = w.a0; i < w.a1; ++i) match_a_[i] = -1;
    for (int j = w.b0; j < w.b1; ++j) match_b_[j] = -1;
    for (int i = 0, j = 0; i < rows && j < columns;) {
      if (weight(i, j) > 0 && best(i, j) == weight(i, j) + best(i + 1, j + 1)) {
        match_a_[w.a0 + i] = w.b0 + j;
        match_b_[w.b0 + j] = w.a0 + i;
        ++i, ++j;
      } else if (best(i, j) == best(i + 1, j)) {
        ++i;
      } else {
        ++j;
      }
    }
  }

  std::span<const uint32_t> a_, b_;
  std::vector<int>&match_a_, &match_b_;
  std::function<int(int, int)> agreement_;
};

}  // namespace

void PairByValues(const SequencePairs& pairs, const std::function<int(int, int)>& agreement) {
  Windows(pairs.target, pairs.golden, pairs.match_target, pairs.match_golden, agreement).Run();
  Windows(pairs.golden, pairs.target, pairs.match_golden, pairs.match_target,
          [&](int golden, int target) { return agreement(target, golden); })
      .Run();
}

}  // namespace msprobe::compare
