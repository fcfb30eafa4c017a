#include "engine/compare/align/sequence_diff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace msprobe::compare {
namespace {

using Ids = std::vector<uint32_t>;

// Length of the longest common subsequence, the slow way.
size_t LongestCommon(const Ids& a, const Ids& b) {
  std::vector<size_t> row(b.size() + 1, 0);
  for (const uint32_t x : a) {
    size_t diagonal = 0;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t here = x == b[j] ? diagonal + 1 : std::max(row[j], row[j + 1]);
      diagonal = row[j + 1];
      row[j + 1] = here;
    }
  }
  return row[b.size()];
}

void CheckIsCommon(const Ids& a, const Ids& b, const std::vector<IndexPair>& matches) {
  for (size_t k = 0; k < matches.size(); ++k) {
    ASSERT_LT(matches[k].first, a.size());
    ASSERT_LT(matches[k].second, b.size());
    EXPECT_EQ(a[matches[k].first], b[matches[k].second]);
    if (k == 0) continue;
    EXPECT_LT(matches[k - 1].first, matches[k].first);
    EXPECT_LT(matches[k - 1].second, matches[k].second);
  }
}

Ids RandomIds(std::mt19937& random, size_t n, uint32_t kinds) {
  Ids out(n);
  for (uint32_t& x : out) x = random() % kinds;
  return out;
}

TEST(SequenceDiffTest, EmptyAndEqual) {
  EXPECT_TRUE(DiffSequences({}, {}, 0).empty());
  const Ids a{3, 1, 2};
  EXPECT_TRUE(DiffSequences(a, {}, 4).empty());
  EXPECT_EQ(DiffSequences(a, a, 4), (std::vector<IndexPair>{{0, 0}, {1, 1}, {2, 2}}));
}

TEST(SequenceDiffTest, OneInsertedElementShiftsTheRest) {
  const Ids a{0, 1, 9, 2, 3}, b{0, 1, 2, 3};
  EXPECT_EQ(DiffSequences(a, b, 10), (std::vector<IndexPair>{{0, 0}, {1, 1}, {3, 2}, {4, 3}}));
}

// With few distinct elements almost none is unique, so Myers' algorithm is used: it must find a
// longest common subsequence. (After equal ends are trimmed, an element can become unique and so an
// anchor; that may cost a match.)
TEST(SequenceDiffTest, IsLongestWithoutUniqueElements) {
  std::mt19937 random(7);
  int shorter = 0;
  for (int round = 0; round < 2000; ++round) {
    const uint32_t kinds = 2 + random() % 3;
    Ids a = RandomIds(random, random() % 40, kinds), b = RandomIds(random, random() % 40, kinds);
    for (uint32_t x = 0; x < kinds; ++x) {  // each occurs twice: no anchors
      for (Ids* s : {&a, &b}) s->insert(s->begin() + random() % (s->size() + 1), {x, x});
    }
    const auto matches = DiffSequences(a, b, kinds);
    CheckIsCommon(a, b, matches);
    const size_t longest = LongestCommon(a, b);
    EXPECT_GE(matches.size() + 1, longest) << "round " << round;
    shorter += matches.size() < longest;
  }
  EXPECT_LE(shorter, 10);
}

TEST(SequenceDiffTest, AnyTwoSequencesGiveACommonSubsequence) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    const Ids a = RandomIds(random, random() % 300, 100),
              b = RandomIds(random, random() % 300, 100);
    CheckIsCommon(a, b, DiffSequences(a, b, 100));
  }
}

// Beyond the cost limit it must still end, and pair most common elements in order.
TEST(SequenceDiffTest, CostLimitKeepsItCommon) {
  std::mt19937 random(13);
  const Ids a = RandomIds(random, 4000, 8), b = RandomIds(random, 4000, 8);
  const auto matches = DiffSequences(a, b, 8, /*max_cost=*/16);
  CheckIsCommon(a, b, matches);
  EXPECT_GT(matches.size(), 1500u);
}

TEST(SequenceDiffTest, EditsOfALongSequenceAreFoundExactly) {
  std::mt19937 random(17);
  Ids a(30000);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<uint32_t>(i % 500);
  Ids b = a;
  size_t removed = 0;
  for (size_t i = 0; i < b.size(); i += 1000, ++removed) b.erase(b.begin() + i);
  const auto matches = DiffSequences(a, b, 500);
  CheckIsCommon(a, b, matches);
  EXPECT_EQ(matches.size(), b.size());
}

}  // namespace
}  // namespace msprobe::compare
