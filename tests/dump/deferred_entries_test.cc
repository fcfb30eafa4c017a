#include "engine/dump/write/deferred_entries.h"

#include <gtest/gtest.h>

#include "engine/dump/write/entry_json.h"

namespace msprobe::dump {
namespace {

kernels::Stats SomeStats() {
  kernels::Stats s;
  s.count = 4, s.nan = 1, s.zero = 2;
  s.max = 1.5, s.min = -0.5, s.mean = 0.1, s.norm = 2;
  s.int_max = 7, s.int_min = -7;
  return s;
}

// An entry with one tensor; without a ticket its statistics are already known.
DeferredEntry WithTensor(const std::string& name, int64_t ticket, DType dtype = DType::kFloat32) {
  DeferredEntry e{.name = name};
  e.entry.Begin(name);
  e.entry.BeginSlot("output", "output", Entry::Container::kList);
  TensorValue& tensor = e.entry.AddTensor();
  tensor.dtype = DTypeTorchName(dtype);
  tensor.element_type = dtype;
  tensor.requires_grad = true;
  tensor.ticket = ticket;
  tensor.numbers = ticket < 0 ? TensorValue::Numbers::kFromDevice : TensorValue::Numbers::kDeferred;
  tensor.stats = SomeStats();
  e.entry.EndSlot();
  return e;
}

std::vector<std::string> Drained(DeferredEntries* deferred, bool give_up) {
  std::vector<std::string> texts;
  deferred->Drain(give_up,
                  [&](const DeferredEntry& e) { AppendEntryJson(&texts.emplace_back(), e.entry); });
  return texts;
}

TEST(DeferredEntries, AreWhatTheyWouldHaveBeenAtOnce) {
  for (const DType dtype : {DType::kFloat32, DType::kInt64, DType::kBool, DType::kUInt64}) {
    DeferredEntries now, deferred;
    now.Add() = WithTensor("a", -1, dtype);
    DeferredEntry later = WithTensor("a", 12, dtype);
    ASSERT_TRUE(IsDeferred(later.entry));
    deferred.Add() = std::move(later);
    deferred.Resolve({.ticket = 12, .stats = SomeStats()});
    EXPECT_EQ(Drained(&deferred, false), Drained(&now, false));
    EXPECT_FALSE(deferred.waiting());
  }
}

TEST(DeferredEntries, KeepTheirOrder) {
  DeferredEntries deferred;
  deferred.Add() = WithTensor("first", 1);
  deferred.Add() = {.has_entry = false, .name = "plain"};
  deferred.Add() = WithTensor("last", 2);
  deferred.Resolve({.ticket = 2, .stats = SomeStats()});
  EXPECT_TRUE(Drained(&deferred, false).empty());
  deferred.Resolve({.ticket = 1, .stats = SomeStats()});
  std::vector<std::string> names;
  deferred.Drain(false, [&](const DeferredEntry& e) { names.push_back(e.name); });
  EXPECT_EQ(names, (std::vector<std::string>{"first", "plain", "last"}));
}

TEST(DeferredEntries, UseTheirMemoryAgain) {
  DeferredEntries deferred;
  Entry two = WithTensor("two", 1).entry;
  two.BeginSlot("more", "more", Entry::Container::kList);
  two.AddTensor().ticket = 2;
  two.EndSlot();
  const auto text_of = [&](const Entry& entry) {
    DeferredEntry& waiting = deferred.Add();
    waiting.has_entry = true;
    waiting.entry = entry;
    deferred.Resolve({.ticket = 1, .stats = SomeStats()});
    return Drained(&deferred, true).at(0);
  };
  const Entry one = WithTensor("one", 1).entry;
  const std::string first = text_of(one);
  EXPECT_NE(text_of(two), first);
  EXPECT_EQ(text_of(one), first);
}

TEST(DeferredEntries, WhatArrivesSaysWhatIsKnown) {
  const auto text = [](DeferredNumbers numbers) {
    DeferredEntries deferred;
    deferred.Add() = WithTensor("a", 3);
    numbers.ticket = 3, numbers.stats = SomeStats();
    deferred.Resolve(numbers);
    return Drained(&deferred, false).at(0);
  };
  const std::string bits = text({.has_fingerprint = true}), counted = text({}),
                    reduced = text({.has_counts = false});
  EXPECT_NE(bits.find("\"fp\""), std::string::npos) << bits;
  EXPECT_EQ(counted.find("\"fp\""), std::string::npos) << counted;
  EXPECT_NE(counted.find("\"zero\":2"), std::string::npos) << counted;
  EXPECT_EQ(reduced.find("zero"), std::string::npos) << reduced;
}

TEST(DeferredEntries, SayLaterWhetherACallMakesNaN) {
  const auto text = [](int64_t nan, const char* slot) {
    DeferredEntries deferred;
    DeferredEntry& waiting = deferred.Add() = WithTensor("a", 3);
    waiting.entry.Begin("a");
    waiting.entry.BeginSlot(slot, slot, Entry::Container::kList);
    TensorValue& tensor = waiting.entry.AddTensor();
    tensor.ticket = 3;
    tensor.numbers = TensorValue::Numbers::kDeferred;
    waiting.entry.EndSlot();
    waiting.entry.is_nan = false;
    kernels::Stats stats = SomeStats();
    stats.nan = nan;
    deferred.Resolve({.ticket = 3, .stats = stats});
    return Drained(&deferred, false).at(0);
  };
  EXPECT_NE(text(1, "output").find("\"is_nan\":1"), std::string::npos);
  EXPECT_NE(text(0, "output").find("\"is_nan\":0"), std::string::npos);
  EXPECT_NE(text(1, "input_args").find("\"is_nan\":0"), std::string::npos);
}

TEST(DeferredEntries, StatisticsThatNeverArriveAreNull) {
  DeferredEntries deferred;
  deferred.Add() = WithTensor("a", 1);
  const std::vector<std::string> texts = Drained(&deferred, true);
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_NE(texts[0].find(R"("Max":null,"Min":null,"Mean":null,"Norm":null,"requires_grad")"),
            std::string::npos)
      << texts[0];
}

}  // namespace
}  // namespace msprobe::dump
