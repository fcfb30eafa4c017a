#include "engine/dump/write/parallel_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace msprobe::dump {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr std::string_view kWhole =
    R"({"groups": [{"ranks": [0, 1], "backend": "gloo", "name": "0"},
                   {"ranks": [1], "backend": "nccl", "name": "", "later": {"a": [1]}},
                   {"ranks": [1, 3], "backend": "nccl", "name": "7", "description": "mesh_tp"}],
        "meshes": [{"ranks": [[0, 1]], "names": ["dp", "tp"]}, {"ranks": [0, 1], "names": []}],
        "wrappers": [{"module": "", "kind": "FSDPModule"}, {"module": "a", "kind": "FSDPModule"}],
        "megatron": {"tensor_model_parallel": 2}, "of another version": [1, 2]})";

TEST(ParallelLayout, IsRead) {
  const Result<ParallelLayout> layout = ParseParallelLayout(kWhole, "dump.json");
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  ASSERT_EQ(layout->groups.size(), 3u);
  EXPECT_THAT(layout->groups[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(layout->groups[1].backend, "nccl");
  EXPECT_EQ(layout->groups[2].description, "mesh_tp");
  EXPECT_EQ(layout->meshes[0].ranks, "[[0, 1]]");
  EXPECT_THAT(layout->meshes[0].names, ElementsAre("dp", "tp"));
  EXPECT_EQ(layout->wrappers[1].module, "a");
  EXPECT_THAT(layout->megatron, ElementsAre(Pair("tensor_model_parallel", 2)));
  EXPECT_THAT(ParallelLines(*layout),
              ElementsAre("groups: [0, 1] gloo 0; [1] nccl; [1, 3] nccl mesh_tp",
                          "meshes: [[0, 1]] (dp, tp); [0, 1]", "wrappers: 2 FSDPModule",
                          "megatron: tensor_model_parallel 2"));
}

TEST(ParallelLayout, OfADumpThatDoesNotSayIt) {
  const Result<ParallelLayout> layout = ParallelLayoutOf(Dump());
  ASSERT_TRUE(layout.ok());
  EXPECT_TRUE(layout->empty());
  EXPECT_TRUE(ParallelLines(*layout).empty());
}

// Every beginning of the text, and texts of other types, are errors that name the file.
TEST(ParallelLayout, DamagedInputIsAnError) {
  for (size_t size = 0; size + 1 < kWhole.size(); ++size) {
    const Result<ParallelLayout> cut = ParseParallelLayout(kWhole.substr(0, size), "dump.json");
    ASSERT_FALSE(cut.ok()) << size;
    ASSERT_THAT(cut.status().ToString(), HasSubstr("dump.json")) << size;
  }
  for (const char* text :
       {"3", "[]", R"({"groups": {}})", R"({"groups": [3]})", R"({"groups": [{"ranks": 3}]})",
        R"({"groups": [{"ranks": [-1]}]})", R"({"groups": [{"ranks": [1e3]}]})",
        R"({"groups": [{"ranks": [99999999999999999999]}]})", R"({"groups": [{"name": 3}]})",
        R"({"groups": [{"description": 3}]})", R"({"meshes": [{"ranks": "[0]"}]})",
        R"({"meshes": [{"names": [1]}]})", R"({"wrappers": [[]]})",
        R"({"megatron": {"tensor": "2"}})"}) {
    EXPECT_FALSE(ParseParallelLayout(text, "dump.json").ok()) << text;
  }
  std::string deep = R"({"meshes": [{"ranks": )" + std::string(100000, '[');
  EXPECT_FALSE(ParseParallelLayout(deep, "dump.json").ok());
}

}  // namespace
}  // namespace msprobe::dump
