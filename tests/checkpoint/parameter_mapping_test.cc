#include "engine/checkpoint/parameter_mapping.h"

#include <gmock/gmock.h>

#include "engine/base/messages/message.h"
#include "tests/base/english.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::checkpoint {
namespace {

using compare::MappingRequest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class ParameterMappingTest : public testing::Test {
 protected:
  ParameterMappingTest() {
    CheckpointBuilder builder(&target_);
    for (const char* name : {"net.fc.weight", "net.fc.bias", "net.out.weight", "step"})
      builder.Add({.name = name});
    EXPECT_TRUE(builder.Finish("a test"_t).ok());
  }

  ParameterMapping Build(const MappingRequest& request) const {
    Result<ParameterMapping> mapping = BuildParameterMapping(request, target_);
    EXPECT_TRUE(mapping.ok()) << mapping.status().ToString();
    return mapping.ok() ? *std::move(mapping) : ParameterMapping();
  }
  std::string File(const std::string& text) const { return folder_.Write("names.yaml", text); }

  Checkpoint target_;
  TemporaryFolder folder_;
};

TEST_F(ParameterMappingTest, ADataMappingNamesWholeParameters) {
  const ParameterMapping mapping = Build({.data_file = File("net.fc.weight: layer.w\nnet: no\n")});
  EXPECT_THAT(mapping.names, ElementsAre(Pair("net.fc.weight", "layer.w")));
  EXPECT_THAT(mapping.notes, IsEmpty());
}

TEST_F(ParameterMappingTest, ACellMappingNamesModules) {
  for (const char* text : {"net.fc: layer\n", "net.fc.Dense: layer.Linear\n"}) {
    const ParameterMapping mapping = Build({.cell_file = File(text)});
    EXPECT_THAT(mapping.names, ElementsAre(Pair("net.fc.bias", "layer.bias"),
                                           Pair("net.fc.weight", "layer.weight")))
        << text;
  }
}

TEST_F(ParameterMappingTest, APartOfANameIsReplacedWhereNoModuleFits) {
  const ParameterMapping mapping = Build({.cell_file = File("out: head\nnet.fc: layer\n")});
  EXPECT_THAT(mapping.names,
              ElementsAre(Pair("net.fc.bias", "layer.bias"), Pair("net.fc.weight", "layer.weight"),
                          Pair("net.out.weight", "net.head.weight")));
}

TEST_F(ParameterMappingTest, RenamesFollowOneAfterTheOther) {
  const ParameterMapping mapping = Build({.renames = {"s/^net\\.//", "s/^fc/linear/"}});
  EXPECT_THAT(mapping.names, ElementsAre(Pair("net.fc.bias", "linear.bias"),
                                         Pair("net.fc.weight", "linear.weight"),
                                         Pair("net.out.weight", "out.weight")));
}

TEST_F(ParameterMappingTest, ADataMappingWinsOverRenames) {
  const ParameterMapping mapping =
      Build({.data_file = File("step: count\n"), .renames = {"s/step/wrong/"}});
  EXPECT_THAT(mapping.names, ElementsAre(Pair("step", "count")));
  EXPECT_THAT(EnglishOf(mapping.notes), ElementsAre(HasSubstr("s/step/wrong/ changes no name")));
}

TEST_F(ParameterMappingTest, NamesThatMatchNothingAreReported) {
  const std::string file = File("other: name\n");
  EXPECT_THAT(EnglishOf(Build({.data_file = file}).notes),
              ElementsAre("the data mapping names nothing in the target"));
  EXPECT_THAT(EnglishOf(Build({.cell_file = file}).notes),
              ElementsAre("the cell mapping names nothing in the target"));
  EXPECT_THAT(EnglishOf(Build({.renames = {"s/zzz/y/"}}).notes),
              ElementsAre("--rename s/zzz/y/ changes no name of the target"));
}

TEST_F(ParameterMappingTest, MappingsOfCallsAreRefused) {
  for (const MappingRequest& request :
       {MappingRequest{.api_file = ""}, MappingRequest{.layer_file = ""}}) {
    const Result<ParameterMapping> mapping = BuildParameterMapping(request, target_);
    ASSERT_FALSE(mapping.ok());
    EXPECT_EQ(mapping.status().code(), ErrorCode::kUnsupported);
    EXPECT_THAT(mapping.status().hint(), HasSubstr("--rename"));
  }
}

TEST_F(ParameterMappingTest, ErrorsOfFilesAndExpressionsArePassedOn) {
  const auto code = [&](const MappingRequest& request) {
    const Result<ParameterMapping> mapping = BuildParameterMapping(request, target_);
    return mapping.ok() ? ErrorCode::kOk : mapping.status().code();
  };
  EXPECT_EQ(code({.data_file = folder_.path() + "/missing.yaml"}), ErrorCode::kNotFound);
  EXPECT_EQ(code({.cell_file = folder_.path() + "/missing.yaml"}), ErrorCode::kNotFound);
  EXPECT_EQ(code({.data_file = File("- a list\n")}), ErrorCode::kInvalidConfig);
  EXPECT_EQ(code({.renames = {"s/no end"}}), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace msprobe::checkpoint
