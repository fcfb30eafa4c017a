#include "engine/compare/align/sequence_diff.h"

#include <algorithm>

namespace msprobe::compare {
namespace {

// A stretch of each sequence, as positions in the two index lists of the Differ.
struct Box {
  int a0, a1, b0, b1;
  int depth;
};

class Differ {
 public:
  Differ(std::span<const uint32_t> a, std::span<const uint32_t> b, uint32_t id_count, int max_cost)
      : a_(a),
        b_(b),
        count_a_(id_count),
        count_b_(id_count),
        where_b_(id_count),
        max_cost_(max_cost) {}

  std::vector<IndexPair> Run() {
    // An explicit stack instead of recursion: hostile input must not overflow the thread's stack.
    std::vector<Box> stack{{0, static_cast<int>(a_.size()), 0, static_cast<int>(b_.size()), 0}};
    while (!stack.empty()) {
      const Box box = stack.back();
      stack.pop_back();
      Solve(box, &stack);
    }
    std::sort(matches_.begin(), matches_.end());
    return std::move(matches_);
  }

 private:
  // Levels of division by unique elements. Deeper down the search for them costs more than it
  // saves.
  static constexpr int kMaxPatienceDepth = 24;

  void Match(int i, int j) { matches_.emplace_back(i, j); }

  void Solve(Box box, std::vector<Box>* stack) {
    while (box.a0 < box.a1 && box.b0 < box.b1 && a_[box.a0] == b_[box.b0])
      Match(box.a0++, box.b0++);
    while (box.a0 < box.a1 && box.b0 < box.b1 && a_[box.a1 - 1] == b_[box.b1 - 1]) {
      Match(--box.a1, --box.b1);
    }
    if (box.a0 == box.a1 || box.b0 == box.b1) return;
    if (box.depth < kMaxPatienceDepth && SplitAtUnique(box, stack)) return;
    SolveByMyers(box);
  }

  // Matches elements that occur once on each side (the longest chain of them that is in order on
  // both sides), and pushes the stretches between them. false: there is no such element.
  bool SplitAtUnique(const Box& box, std::vector<Box>* stack) {
    for (int i = box.a0; i < box.a1; ++i) ++count_a_[a_[i]];
    for (int j = box.b0; j < box.b1; ++j) {
      ++count_b_[b_[j]];
      where_b_[b_[j]] = j;
    }
    std::vector<std::pair<int, int>> unique;
    for (int i = box.a0; i < box.a1; ++i) {
      if (count_a_[a_[i]] == 1 && count_b_[a_[i]] == 1) unique.emplace_back(i, where_b_[a_[i]]);
    }
    // The longest increasing subsequence of the positions in `b`, by patience sorting.
    std::vector<int> top, before(unique.size(), -1);
    for (int k = 0; k < static_cast<int>(unique.size()); ++k) {
      const auto pile = std::lower_bound(top.begin(), top.end(), unique[k].second,
                                         [&](int t, int v) { return unique[t].second < v; });
      if (pile != top.begin()) before[k] = *(pile - 1);
      if (pile == top.end()) {
        top.push_back(k);
      } else {
        *pile = k;
      }
    }
    std::vector<std::pair<int, int>> chain;
    for (int k = top.empty() ? -1 : top.back(); k >= 0; k = before[k]) chain.push_back(unique[k]);
    std::reverse(chain.begin(), chain.end());

    const bool lone = Lone(box);
    for (int i = box.a0; i < box.a1; ++i) count_a_[a_[i]] = 0;
    for (int j = box.b0; j < box.b1; ++j) count_b_[b_[j]] = 0;
    if (chain.empty()) return lone;
    int i = box.a0, j = box.b0;
    for (const auto& [ci, cj] : chain) {
      stack->push_back({i, ci, j, cj, box.depth + 1});
      Match(ci, cj);
      i = ci + 1, j = cj + 1;
    }
    stack->push_back({i, box.a1, j, box.b1, box.depth + 1});
    return true;
  }

  // Whether the two stretches have no element in common: the usual case of a replaced stretch, and
  // the most expensive one for Myers' algorithm.
  bool Lone(const Box& box) const {
    for (int i = box.a0; i < box.a1; ++i) {
      if (count_b_[a_[i]] > 0) return false;
    }
    return true;
  }

  // Myers' divide and conquer: the shortest edit path is searched from both ends, and divided where
  // the two searches meet.
  void SolveByMyers(const Box& box) {
    // Elements that the other side does not have in this box are left out: they only make the
    // search longer.
    for (int i = box.a0; i < box.a1; ++i) ++count_a_[a_[i]];
    for (int j = box.b0; j < box.b1; ++j) ++count_b_[b_[j]];
    std::vector<int> ia, ib;
    for (int i = box.a0; i < box.a1; ++i) {
      if (count_b_[a_[i]] > 0) ia.push_back(i);
    }
    for (int j = box.b0; j < box.b1; ++j) {
      if (count_a_[b_[j]] > 0) ib.push_back(j);
    }
    for (int i = box.a0; i < box.a1; ++i) count_a_[a_[i]] = 0;
    for (int j = box.b0; j < box.b1; ++j) count_b_[b_[j]] = 0;
    std::vector<Box> inner{{0, static_cast<int>(ia.size()), 0, static_cast<int>(ib.size()), 0}};
    const auto same = [&](int i, int j) { return a_[ia[i]] == b_[ib[j]]; };
    while (!inner.empty()) {
      Box in = inner.back();
      inner.pop_back();
      while (in.a0 < in.a1 && in.b0 < in.b1 && same(in.a0, in.b0)) Match(ia[in.a0++], ib[in.b0++]);
      while (in.a0 < in.a1 && in.b0 < in.b1 && same(in.a1 - 1, in.b1 - 1)) {
        Match(ia[--in.a1], ib[--in.b1]);
      }
      if (in.a0 == in.a1 || in.b0 == in.b1) continue;
      const auto [x, y] = Middle(in, same);
      inner.push_back({in.a0, in.a0 + x, in.b0, in.b0 + y, 0});
      inner.push_back({in.a0 + x, in.a1, in.b0 + y, in.b1, 0});
    }
  }

  // A point of the shortest path, relative to the box; never one of the box's two corners.
  //
  // A path is at (x, y) when it has used x elements of `a` and y of `b`; it is then on diagonal
  // k = x - y. forward_[zero + k] is the largest x that d edits reach on diagonal k from the start;
  // backward_[zero + k] is the same from the end, where x, y and k are counted from the end. The
  // shortest path is found when the two searches meet on one diagonal.
  //
  // Example: a = ABC, b = BCA, d = 1. From the start, one edit drops A of `a`, then B and C are
  // equal: x = 3, y = 2. From the end, one edit drops A of `b`, then C and B are equal: the search
  // ends at (1, 0), on the diagonal of the first one. The result (1, 0) divides the box into {A}
  // against {} and {BC} against {BCA}.
  template <typename Same>
  std::pair<int, int> Middle(const Box& box, const Same& same) {
    const int n = box.a1 - box.a0, m = box.b1 - box.b0, delta = n - m;
    const int most = std::min((n + m + 1) / 2, max_cost_);
    const int width = 2 * most + 3, zero = most + 1;
    forward_.assign(width, -1);
    backward_.assign(width, -1);
    forward_[zero + 1] = backward_[zero + 1] = 0;
    int best_x = 0, best_y = 0;
    for (int d = 0; d <= most; ++d) {
      for (int k = -d; k <= d; k += 2) {
        int x = Next(forward_.data() + zero, k, d);
        int y = x - k;
        if (x > n || y > m || y < 0) {
          forward_[zero + k] = std::min(x, n + 1);
          continue;
        }
        const int along = StepsWhileSame(
            n - x, m - y, [&](int i) { return same(box.a0 + x + i, box.b0 + y + i); });
        x += along, y += along;
        forward_[zero + k] = x;
        if (x + y > best_x + best_y) best_x = x, best_y = y;
        const int r = delta - k;  // the same diagonal, counted from the other end
        if ((delta & 1) && Meets(backward_.data() + zero, r, d - 1, x, n) && Inside(x, y, n, m))
          return {x, y};
      }
      for (int k = -d; k <= d; k += 2) {
        int x = Next(backward_.data() + zero, k, d);
        int y = x - k;
        if (x > n || y > m || y < 0) {
          backward_[zero + k] = std::min(x, n + 1);
          continue;
        }
        const int along = StepsWhileSame(
            n - x, m - y, [&](int i) { return same(box.a1 - 1 - x - i, box.b1 - 1 - y - i); });
        x += along, y += along;
        backward_[zero + k] = x;
        const int r = delta - k;
        if (!(delta & 1) && Meets(forward_.data() + zero, r, d, x, n) && Inside(n - x, m - y, n, m))
          return {n - x, m - y};
      }
    }
    // More than max_cost edits: the furthest point that was reached divides the box.
    if (!Inside(best_x, best_y, n, m)) return {(n + 1) / 2, m / 2};
    return {best_x, best_y};
  }
  // How many steps are possible along a diagonal, of which `left_a` and `left_b` are left.
  template <typename SameAt>
  static int StepsWhileSame(int left_a, int left_b, const SameAt& same) {
    const int most = std::min(left_a, left_b);
    int steps = 0;
    while (steps < most && same(steps)) ++steps;
    return steps;
  }
  // How far diagonal k gets with d edits: from the neighbour that got further. `reached`: of each
  // diagonal, from -d - 1 to d + 1.
  static int Next(const int* reached, int k, int d) {
    return k == -d || (k != d && reached[k - 1] < reached[k + 1]) ? reached[k + 1]
                                                                  : reached[k - 1] + 1;
  }
  // Whether x steps on a diagonal meet those that were made on it from the other end, where it is
  // diagonal r of at most d edits.
  static bool Meets(const int* reached, int r, int d, int x, int n) {
    return r >= -d && r <= d && reached[r] >= 0 && reached[r] <= n && x + reached[r] >= n;
  }
  static bool Inside(int x, int y, int n, int m) { return x + y > 0 && x + y < n + m; }

  std::span<const uint32_t> a_, b_;
  std::vector<int> count_a_, count_b_, where_b_;
  std::vector<int> forward_, backward_;
  std::vector<IndexPair> matches_;
  int max_cost_;
};

}  // namespace

std::vector<IndexPair> DiffSequences(std::span<const uint32_t> a, std::span<const uint32_t> b,
                                     uint32_t id_count, int max_cost) {
  return Differ(a, b, id_count, max_cost).Run();
}

}  // namespace msprobe::compare
