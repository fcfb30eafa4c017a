#include "engine/compare/ranks/rank_origin.h"

#include <gmock/gmock.h>

namespace msprobe::compare {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ExchangeCall Call(std::string key, int32_t pair, bool gives, bool gets) {
  ExchangeCall call;
  call.name = key;
  call.key = std::move(key);
  call.pair = pair;
  call.gives_wrong = gives;
  call.gets_wrong = gets;
  return call;
}

// A rank that makes its first wrong number at `first` (-1: none) or gets it in exchange `received`.
RankTrace Rank(int32_t rank, int32_t first, int32_t received, std::vector<ExchangeCall> calls) {
  RankTrace trace;
  trace.rank = rank;
  trace.first = first;
  trace.received = received;
  trace.exchanges = std::move(calls);
  return trace;
}

TEST(RankOrigins, ANumberIsFollowedOverTwoExchanges) {
  const std::vector<RankTrace> traces = {
      Rank(0, 5, -1, {Call("0 to 1 #0", 6, true, false)}),
      Rank(1, 1, 0, {Call("0 to 1 #0", 1, false, true), Call("1 to 2 #0", 2, true, false)}),
      Rank(2, 0, 0, {Call("1 to 2 #0", 0, false, true)}),
      Rank(3, -1, -1, {}),
  };
  const RankOrigins found = FindOrigins(traces);
  ASSERT_EQ(found.origins.size(), 1u);
  EXPECT_EQ(found.origins[0].trace, 0u);
  EXPECT_THAT(found.origins[0].reached, ElementsAre(1, 2));
  ASSERT_EQ(found.hops.size(), 2u);
  EXPECT_THAT(found.hops[0].to, ElementsAre(1));
  EXPECT_THAT(found.hops[1].to, ElementsAre(2));
}

TEST(RankOrigins, AnExchangeOfRightNumbersIsThePlace) {
  const std::vector<RankTrace> traces = {
      Rank(0, 3, 0, {Call("all_reduce [0, 1] #0", 3, false, true)}),
      Rank(1, 3, 0, {Call("all_reduce [0, 1] #0", 3, false, true)}),
  };
  const RankOrigins found = FindOrigins(traces);
  ASSERT_EQ(found.origins.size(), 2u);
  EXPECT_TRUE(found.origins[0].in_exchange);
  EXPECT_THAT(found.origins[0].not_known, IsEmpty());
}

TEST(RankOrigins, RanksThatWereNotComparedAreNamed) {
  const std::vector<RankTrace> traces = {
      Rank(1, 3, 0, {Call("all_reduce [0, 1, 7] #0", 3, false, true)})};
  const RankOrigins found = FindOrigins(traces);
  ASSERT_EQ(found.origins.size(), 1u);
  EXPECT_THAT(found.origins[0].not_known, ElementsAre(0, 7));
}

TEST(RankOrigins, TheEarlierOneComesFirst) {
  const std::vector<RankTrace> traces = {
      Rank(0, 9, -1, {Call("all_reduce  #0", 1, false, false)}),
      Rank(1, 0, -1, {Call("all_reduce  #0", 1, false, false)}),
  };
  const RankOrigins found = FindOrigins(traces);
  ASSERT_EQ(found.origins.size(), 2u);
  EXPECT_EQ(found.origins[0].trace, 1u);
}

// In dumps cut short, rank 0 waits for 1 and 1 waits for 0: the search must end.
TEST(RankOrigins, RanksThatWaitForOneAnother) {
  const std::vector<RankTrace> traces = {
      Rank(0, 0, -1, {Call("a", 1, false, false), Call("b", 2, false, false)}),
      Rank(1, -1, -1, {Call("b", 1, false, false), Call("a", 2, false, false)}),
  };
  EXPECT_EQ(FindOrigins(traces).origins.size(), 1u);
}

TEST(RankOrigins, FromOutsideOnlyWhereNobodyMadeIt) {
  std::vector<RankTrace> traces = {Rank(0, 4, -1, {}), Rank(1, 4, -1, {})};
  traces[1].from_outside = true;
  EXPECT_EQ(FindOrigins(traces).origins.size(), 1u);
  EXPECT_EQ(FindOrigins(traces).from_outside.size(), 1u);
  traces[0].from_outside = true;
  EXPECT_EQ(FindOrigins(traces).origins.size(), 2u);
}

// DDP's exchange of gradients is not recorded: rank 0 gets the error of rank 1's data with it.
TEST(RankOrigins, TheEarliestCallIsTheSourceWhereAllCameFromOutside) {
  std::vector<RankTrace> traces = {Rank(0, 23, -1, {}), Rank(1, 0, -1, {})};
  for (RankTrace& trace : traces) trace.from_outside = true;
  const RankOrigins found = FindOrigins(traces);
  ASSERT_EQ(found.origins.size(), 2u);
  EXPECT_EQ(found.origins[0].trace, 1u);
}

TEST(RankList, Ranges) {
  EXPECT_EQ(RankList(std::vector<int32_t>{0, 1, 2, 5, 7, 8}), "0-2, 5, 7, 8");
  EXPECT_EQ(RankList(std::vector<int32_t>{3}), "3");
}

}  // namespace
}  // namespace msprobe::compare
