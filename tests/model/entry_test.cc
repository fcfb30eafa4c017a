#include "engine/model/entry.h"

#include <gtest/gtest.h>

namespace msprobe {
namespace {

using Container = Entry::Container;

TEST(Entry, NamesTensorFilesByPlace) {
  Entry e;
  e.Begin("Torch.cat.0.forward");
  e.BeginSlot("input_args", "input", Container::kList);
  EXPECT_EQ(e.TensorFileName(), "Torch.cat.0.forward.input.0.pt");
  EXPECT_EQ(e.TensorFileName(".npy"), "Torch.cat.0.forward.input.0.npy");
  e.BeginList();
  e.Null();
  EXPECT_EQ(e.TensorFileName(), "Torch.cat.0.forward.input.0.1.pt");
  e.BeginDict();
  e.Key("logits");
  EXPECT_EQ(e.TensorFileName(), "Torch.cat.0.forward.input.0.1.logits.pt");
  e.BeginList();
  EXPECT_EQ(e.TensorFileName(), "Torch.cat.0.forward.input.0.1.logits.0.pt");
  e.EndContainer();
  e.EndContainer();
  e.EndContainer();
  EXPECT_EQ(e.TensorFileName(), "Torch.cat.0.forward.input.1.pt");
  e.EndSlot();
  e.BeginSlot("input_kwargs", "kwargs", Container::kDict);
  e.Key("out");
  EXPECT_EQ(e.TensorFileName(), "Torch.cat.0.forward.kwargs.out.pt");
  e.EndSlot();
  e.BeginSlot("output", "output", Container::kNone);
  EXPECT_EQ(e.TensorFileName(), "Torch.cat.0.forward.output.pt");
}

TEST(Entry, AValueOfItsOwnNamesFilesWithoutACategory) {
  Entry e;
  e.BeginValue("x.0.debug");
  EXPECT_EQ(e.TensorFileName(), "x.0.debug.pt");
  e.BeginDict();
  e.Key("a");
  e.BeginList();
  EXPECT_EQ(e.TensorFileName(), "x.0.debug.a.0.pt");
}

TEST(Entry, ContainersKnowWhereTheyEnd) {
  Entry e;
  e.Begin("a");
  e.BeginSlot("output", "output", Container::kList);
  e.BeginList();
  e.Int("int", 1);
  e.BeginList();
  e.EndContainer();
  e.EndContainer();
  e.Null();
  e.EndSlot();
  ASSERT_EQ(e.values().size(), 5u);  // list, list, 1, list, null
  EXPECT_EQ(e.values()[0].end, 5u);
  EXPECT_EQ(e.values()[1].end, 4u);
  EXPECT_EQ(e.values()[3].end, 4u);
}

TEST(Entry, ForgetsAFileByItsName) {
  Entry e;
  e.Begin("a");
  e.BeginSlot("input", "input", Container::kList);
  e.AddTensor().file = "x\".pt";
  e.AddTensor().file = "y.pt";
  e.EndSlot();
  e.ForgetFile("x\".pt");
  e.ForgetFile("z.pt");
  EXPECT_EQ(e.tensors()[0].file, "-1");
  EXPECT_EQ(e.tensors()[1].file, "y.pt");
}

TEST(Entry, ATensorOfAnEarlierEntryLeavesNothingBehind) {
  Entry e;
  e.Begin("a");
  e.BeginSlot("input", "input", Container::kList);
  TensorValue& tensor = e.AddTensor();
  tensor.dtype = "torch.int8";
  tensor.shape = {3};
  tensor.ticket = 4;
  tensor.numbers = TensorValue::Numbers::kDeferred;
  tensor.requires_grad = true;
  tensor.file = "f.pt";
  tensor.first_nonfinite = 1;
  tensor.with_counts = false;
  e.EndSlot();
  e.Begin("b");
  EXPECT_TRUE(e.tensors().empty());
  e.BeginSlot("input", "input", Container::kList);
  const TensorValue& next = e.AddTensor();
  EXPECT_TRUE(next.dtype.empty() && next.shape.empty() && next.file.empty());
  EXPECT_TRUE(next.with_counts && !next.measured() && !next.requires_grad);
  EXPECT_EQ(next.first_nonfinite, -1);
  EXPECT_EQ(next.ticket, -1);
}

TEST(Entry, ACopyHasTheTensorsOfThisCallOnly) {
  Entry entry;
  const auto fill = [&](int tensors) {
    entry.Begin("a");
    entry.BeginSlot("output", "output", Entry::Container::kList);
    for (int i = 0; i < tensors; ++i) entry.AddTensor().ticket = i;
    entry.EndSlot();
  };
  fill(3);
  Entry copy = entry;
  fill(1);
  copy = entry;
  EXPECT_EQ(copy.tensors().size(), 1u);
  EXPECT_EQ(Entry(entry).tensors().size(), 1u);
  fill(2);
  copy = entry;
  ASSERT_EQ(copy.tensors().size(), 2u);
  EXPECT_EQ(copy.tensors()[1].ticket, 1);
}

}  // namespace
}  // namespace msprobe
