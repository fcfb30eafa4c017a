#include "engine/dump/write/late_stats.h"

#include <gtest/gtest.h>

namespace msprobe::dump {
namespace {

std::string Tensor(const TensorFields& fields) {
  std::string text;
  AppendTensor(&text, fields);
  return text;
}

kernels::Stats SomeStats() {
  kernels::Stats s;
  s.count = 4, s.nan = 1, s.zero = 2;
  s.max = 1.5, s.min = -0.5, s.mean = 0.1, s.norm = 2;
  s.int_max = 7, s.int_min = -7;
  return s;
}

std::vector<std::string> Drained(LateEntries* late, bool give_up) {
  std::vector<std::string> entries;
  late->Drain(give_up, [&](const LateEntry& e) { entries.push_back(e.entry); });
  return entries;
}

TEST(LateEntries, AreWhatTheyWouldHaveBeenAtOnce) {
  const kernels::Stats stats = SomeStats();
  for (const DTypeKind kind : {DTypeKind::kFloat, DTypeKind::kSigned, DTypeKind::kBool}) {
    TensorFields now{.dtype = "torch.x", .kind = kind, .stats = &stats, .requires_grad = 1};
    now.fingerprint = false;
    now.is_narrow_float = kind == DTypeKind::kFloat;
    TensorFields later = now;
    later.stats = nullptr;
    later.later = 12;
    LateEntries late;
    ASSERT_TRUE(HasMarks(Tensor(later)));
    late.Add({.entry = "a" + Tensor(later) + "b"});
    late.Know(12, stats);
    EXPECT_EQ(Drained(&late, false), std::vector<std::string>{"a" + Tensor(now) + "b"});
    EXPECT_FALSE(late.waiting());
  }
}

TEST(LateEntries, KeepTheirOrder) {
  TensorFields first{.dtype = "t"}, second{.dtype = "t"};
  first.later = 1, second.later = 2;
  LateEntries late;
  late.Add({.entry = "1" + Tensor(first)});
  late.Add({.entry = "plain"});
  late.Add({.entry = "2" + Tensor(second)});
  late.Know(2, SomeStats());
  EXPECT_TRUE(Drained(&late, false).empty());
  late.Know(1, SomeStats());
  const std::vector<std::string> entries = Drained(&late, false);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[1], "plain");
  EXPECT_EQ(entries[2][0], '2');
}

TEST(LateEntries, WhatNeverComesIsNull) {
  TensorFields fields{.dtype = "t"};
  fields.later = 1;
  LateEntries late;
  late.Add({.entry = Tensor(fields)});
  TensorFields unknown{.dtype = "t"};
  EXPECT_EQ(Drained(&late, true), std::vector<std::string>{Tensor(unknown)});
}

}  // namespace
}  // namespace msprobe::dump
