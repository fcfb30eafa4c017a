#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/messages/message.h"
#include "engine/exports/exporter.h"
#include "engine/exports/protobuf_writer.h"
#include "engine/formats/text/json.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::exports {
namespace {

using compare::Comparison;
using compare::StepState;
using compare::test::DumpBuilder;
using compare::test::MustCompare;
using compare::test::Numbers;
using compare::test::Scaled;
using testing::HasSubstr;

Dump SmallDump(double by) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Numbers(1, -1, 0.1, 5)).Out(Numbers(2, -2, 0.2, 7));
  b.Call("Functional.\"\xff.0.forward")
      .In(Numbers(2, -2, 0.2, 7))
      .Out(Scaled(Numbers(3, -1, 0.4, 6), by));
  return b.Take();
}

TEST(ProtobufWriter, IsTheWireFormatOfTheSpecification) {
  // The examples of https://protobuf.dev/programming-guides/encoding
  EXPECT_EQ(ProtobufWriter().Integer(1, 150).bytes(), "\x08\x96\x01");
  EXPECT_EQ(ProtobufWriter().Text(2, "testing").bytes(), "\x12\x07testing");
  EXPECT_EQ(ProtobufWriter().Message(3, ProtobufWriter().Integer(1, 150)).bytes(),
            "\x1a\x03\x08\x96\x01");
  EXPECT_EQ(ProtobufWriter().Double(1, 1).bytes(), std::string("\x09\0\0\0\0\0\0\xf0\x3f", 9));
  EXPECT_EQ(ProtobufWriter().Text(2, "\xff").bytes(), "\x12\x03\xef\xbf\xbd");
}

TEST(Exports, AGraphIsJsonWithTheWayOfTheValues) {
  const Comparison c = MustCompare(SmallDump(0.1), SmallDump(0));
  const auto exporter = MakeExporter(ExportFormat::kModelExplorer);
  std::vector<std::string> parts = {
      exporter->Part(c, {}).In(StepState::kOwn), "",
      exporter->Part(c, {.index = 2, .step = 1, .rank = 3}).In(StepState::kOwn)};
  const Result<formats::JsonValue> json = formats::ParseJson(exporter->File(parts), "graph");
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  const auto& graphs = json->Find("graphs")->items;
  ASSERT_EQ(graphs.size(), 2u);
  EXPECT_EQ(graphs[1].Find("id")->text, "step 1, rank 3");
  const auto& nodes = graphs[0].Find("nodes")->items;
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].Find("style"), nullptr);
  EXPECT_EQ(nodes[1].Find("style")->Find("backgroundColor")->text, "#d7263d");
  EXPECT_EQ(nodes[1].Find("incomingEdges")->items[0].Find("sourceNodeId")->text, "0");
}

TEST(Exports, AnOptimizerIsBehindTheTwoHalvesOfAGraph) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Numbers(1, -1, 0.1, 5)).Out(Numbers(2, -2, 0.2, 7));
  b.Call("Functional.linear.0.backward").In(Numbers(3, -3, 0.1, 5)).Out(Numbers(4, -4, 0.2, 7));
  b.Call("Optimizer.SGD.step.0.forward").Kwarg("gradients.w", Numbers(4, -4, 0.2, 7));
  const Comparison c = MustCompare(b.Take(), SmallDump(0));
  std::vector<std::string> parts = {
      MakeExporter(ExportFormat::kModelExplorer)->Part(c, {}).In(StepState::kOwn)};
  const auto json =
      formats::ParseJson(MakeExporter(ExportFormat::kModelExplorer)->File(parts), "graph");
  ASSERT_TRUE(json.ok());
  std::vector<std::string> spaces;
  for (const auto& node : json->Find("graphs")->items[0].Find("nodes")->items) {
    if (node.Find("label")->text != "Functional.\"\xef\xbf\xbd.0.forward")
      spaces.emplace_back(node.Find("namespace")->text);
  }
  EXPECT_THAT(spaces, testing::ElementsAre("forward", "backward", "optimizer"));
}

TEST(Exports, PartsOfATraceAreATrace) {
  const Comparison c = MustCompare(SmallDump(0.1), SmallDump(0));
  const auto exporter = MakeExporter(ExportFormat::kPerfetto);
  const std::string first = exporter->Part(c, {}).In(StepState::kOwn),
                    second = exporter->Part(c, {.index = 1}).In(StepState::kOwn);
  std::vector<std::string> parts = {first, "", second};
  EXPECT_EQ(exporter->File(parts), first + second);
  EXPECT_THAT(first, HasSubstr("introduced"));
}

TEST(Exports, AStepIsWhatTheStepsBeforeItMakeOfIt) {
  const Comparison c = MustCompare(SmallDump(0.1), SmallDump(0));
  for (const ExportFormat format : {ExportFormat::kPerfetto, ExportFormat::kModelExplorer}) {
    const auto exporter = MakeExporter(format);
    const std::string own = exporter->Part(c, {}).In(StepState::kOwn),
                      inherited = exporter->Part(c, {}).In(StepState::kInherited),
                      rounding = exporter->Part(c, {}).In(StepState::kRounding);
    EXPECT_THAT(own, AllOf(HasSubstr("introduced"), HasSubstr("first divergence")));
    EXPECT_THAT(own, Not(HasSubstr("inherited")));
    EXPECT_THAT(inherited, HasSubstr("inherited"));
    EXPECT_THAT(rounding, HasSubstr("noise"));
    for (const std::string& later : {inherited, rounding}) {
      EXPECT_THAT(later, Not(HasSubstr("introduced")));
      EXPECT_THAT(later, Not(HasSubstr("first divergence")));
      EXPECT_THAT(later, Not(HasSubstr("#d7263d")));
    }
  }
}

TEST(Exports, APartKeepsWhatComesBeforeBetweenAndBehindItsChoices) {
  const auto made = [] {
    ExportPart part;
    part.Append("<");
    part.Append({"own", "in", ""});
    part.Append({"|", "|", "|"});
    part.Append({"1", "22", "333"});
    part.Append(">");
    return part;
  };
  EXPECT_EQ(made().In(StepState::kOwn), "<own|1>");
  EXPECT_EQ(made().In(StepState::kInherited), "<in|22>");
  EXPECT_EQ(made().In(StepState::kRounding), "<|333>");
  EXPECT_EQ(ExportPart().In(StepState::kOwn), "");
}

}  // namespace
}  // namespace msprobe::exports
