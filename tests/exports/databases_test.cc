// The SQLite files of exports/databases, read with SQLite: rows as text, as a person sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cmath>
#include <limits>

#include "engine/base/file.h"
#include "engine/exports/databases/database.h"
#include "engine/exports/databases/node_tree.h"
#include "engine/exports/databases/overflow_level.h"
#include "engine/exports/databases/replace_text.h"
#include "engine/exports/databases/trend_db.h"
#include "engine/exports/databases/vis_db.h"
#include "tests/base/full_disk.h"
#include "tests/base/temporary_folder.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::exports {
namespace {

using compare::test::DumpBuilder;
using compare::test::kInf;
using compare::test::kNaN;
using compare::test::MustCompare;
using compare::test::Numbers;
using compare::test::Scaled;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// The rows of a query: values joined by "|"; NULL is "-".
std::vector<std::string> Rows(const std::string& path, const char* query) {
  sqlite3* db = nullptr;
  EXPECT_EQ(sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  sqlite3_stmt* statement = nullptr;
  EXPECT_EQ(sqlite3_prepare_v2(db, query, -1, &statement, nullptr), SQLITE_OK)
      << sqlite3_errmsg(db);
  std::vector<std::string> rows;
  while (sqlite3_step(statement) == SQLITE_ROW) {
    std::string& row = rows.emplace_back();
    for (int i = 0; i < sqlite3_column_count(statement); ++i) {
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, i));
      row += (i > 0 ? "|" : "") + std::string(text == nullptr ? "-" : text);
    }
  }
  sqlite3_finalize(statement);
  sqlite3_close(db);
  return rows;
}

constexpr char kHostile[] = "x'); DROP TABLE calls; --\"\xff";
constexpr char kHostileRead[] = "x'); DROP TABLE calls; --\"\xef\xbf\xbd";

TEST(Database, ValuesAreBoundAndNeverSql) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.db";
  Result<Database> db = Database::Create(path);
  ASSERT_TRUE(db.ok());
  ASSERT_TRUE(db->Execute("CREATE TABLE calls (name TEXT, error REAL, count INTEGER)").ok());
  {
    Result<Insert> insert = db->Prepare("INSERT INTO calls VALUES (?, ?, ?)");
    ASSERT_TRUE(insert.ok());
    ASSERT_TRUE(insert->Text(kHostile).Real(0.5).Integer(-7).Run().ok());
    EXPECT_EQ(insert->row(), 1);
    ASSERT_TRUE(insert->Text("b").Real(kNaN).Null().Run().ok());
    // A parameter without a value is NULL, and not the value of the last Run.
    ASSERT_TRUE(insert->Text("c").Run().ok());
    EXPECT_FALSE(insert->Text("d").Real(1).Integer(2).Integer(3).Run().ok());  // one too many
  }
  EXPECT_FALSE(Exists(path));
  ASSERT_TRUE(db->Commit().ok());
  EXPECT_THAT(Rows(path, "SELECT * FROM calls"),
              ElementsAre(std::string(kHostileRead) + "|0.5|-7", "b|-|-", "c|-|-"));
  EXPECT_THAT(ListDirectory(folder.path()).value(), ElementsAre("a.db"));
}

TEST(Database, AFileThatIsNotCommittedIsNotThere) {
  const TemporaryFolder folder;
  {
    Result<Database> db = Database::Create(folder.path() + "/new/deep/a.db");
    ASSERT_TRUE(db.ok() && db->Execute("CREATE TABLE t (a TEXT)").ok());
  }
  EXPECT_THAT(ListDirectory(folder.path()).value(), IsEmpty());
  EXPECT_FALSE(Database::Create("/proc/none/a.db").ok());
}

TEST(Database, SaysThatTheDiskIsFull) {
  const TemporaryFolder folder;
  Result<Database> db = Database::Create(folder.path() + "/a.db");
  ASSERT_TRUE(db.ok() && db->Execute("CREATE TABLE t (a TEXT)").ok());
  {
    Result<Insert> insert = db->Prepare("INSERT INTO t VALUES (?)");
    ASSERT_TRUE(insert.ok() && insert->Text(std::string(1 << 20, 'x')).Run().ok());
  }
  const FullDisk full(1 << 16);
  EXPECT_THAT(db->Commit().message(), HasSubstr("a.db: cannot write: "));
  EXPECT_FALSE(Exists(folder.path() + "/a.db"));
}

TEST(Replace, GoesThroughTheTextOnce) {
  std::string text = "a.TE.TEb";
  Replace({{".TE", ".TE.TE"}, {"b", ""}}, &text);  // what was put in is not replaced again
  EXPECT_EQ(text, "a.TE.TE.TE.TE");
}

// A module with two calls inside, two calls after it, and the way back.
Dump Model(double by) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward")
      .In(Numbers(1, -1, 0, 5))
      .Out(Scaled(Numbers(2, -2, 0, 6), by))
      .Parent("Module.fc.Linear.forward.0")
      .At("train.py", 10, "y = f(x)");
  b.Call("Module.fc.Linear.forward.0")
      .In(Numbers(1, -1, 0, 5))
      .Out(Scaled(Numbers(2, -2, 0, 6), by));
  b.Call("Torch.mul.0.forward").In(Scaled(Numbers(2, -2, 0, 6), by));
  b.Out(Scaled(Numbers(3, -3, 0, 7), by));
  b.Call("Torch.sum.0.forward").In(Scaled(Numbers(3, -3, 0, 7), by));
  b.Out(Scaled(Numbers(3, 3, 3, 3), by).Shape("[]"));
  b.Call("Functional.linear.0.backward").Out(Numbers(4, -4, 0, 8));
  b.Call("Module.fc.Linear.backward.0").Out(Numbers(4, -4, 0, 8));
  b.Call("Module.fc.Linear.parameters_grad.0").Grad("weight", Scaled(Numbers(5, -5, 0, 9), by));
  return b.Take();
}

std::vector<std::string> Lines(const NodeTree& tree) {
  std::vector<std::string> lines;
  for (const TreeNode& node : tree.nodes()) {
    const std::string parent(node.parent < 0 ? "" : tree.nodes()[node.parent].name);
    lines.push_back(std::string(node.name) + " in " + parent);
  }
  return lines;
}

TEST(NodeTree, PutsCallsIntoTheirModules) {
  const Dump dump = Model(0);
  const NodeTree tree(dump);
  EXPECT_THAT(Lines(tree),
              ElementsAre("Functional.linear.0.forward in Module.fc.Linear.forward.0",
                          "Module.fc.Linear.forward.0 in DefaultModel",
                          "Torch.mul.0.forward in Apis_Between_Modules.0",
                          "Torch.sum.0.forward in Apis_Between_Modules.0",
                          "Apis_Between_Modules.0 in DefaultModel",
                          "Functional.linear.0.backward in Module.fc.Linear.backward.0",
                          "Module.fc.Linear.backward.0 in DefaultModel",
                          "Module.fc.Linear.parameters_grad.0 in Module.fc.Linear.backward.0",
                          "DefaultModel in "));
  EXPECT_THAT(tree.ChildrenOf(4), ElementsAre(2, 3));
  EXPECT_THAT(tree.ChildrenOf(tree.root()), ElementsAre(1, 4, 6));
  EXPECT_THAT(tree.PathTo(7), ElementsAre(8, 6, 7));
  EXPECT_EQ(tree.NodeOf(6), 7);
  EXPECT_EQ(tree.micro_steps(), 1);
}

TEST(NodeTree, AForwardPassBehindABackwardPassIsAMicroStep) {
  DumpBuilder b;
  for (const char* pass : {"0", "1", "2"}) {
    for (const char* direction : {"forward.", "backward."})
      b.Call("Module.fc.Linear." + std::string(direction) + pass).Out(Numbers(1, -1, 0, 5));
  }
  const Dump dump = b.Take();
  const NodeTree tree(dump);
  EXPECT_EQ(tree.micro_steps(), 3);
  EXPECT_EQ(tree.nodes()[2].micro_step, 1);
  EXPECT_EQ(tree.nodes()[5].micro_step, 2);
}

TEST(NodeTree, RingsAndDeepNamesEndAtTheRoot) {
  DumpBuilder b;
  b.Call("Module.a.A.forward.0").Parent("Module.b.B.forward.0");
  b.Call("Module.b.B.forward.0").Parent("Module.a.A.forward.0");
  b.Call("Module.c.C.forward.0").Parent("Module.c.C.forward.0");  // inside itself
  constexpr int kDeep = NodeTree::kMaxDepth + 100;
  for (int i = 0; i < kDeep; ++i) {
    b.Call("Module.d.D.forward." + std::to_string(i))
        .Parent("Module.d.D.forward." + std::to_string(i + 1));
  }
  const Dump dump = b.Take();
  const NodeTree tree(dump);
  for (size_t i = 0; i < tree.nodes().size(); ++i) {
    const std::vector<int32_t> path = tree.PathTo(static_cast<int32_t>(i));
    EXPECT_EQ(path.front(), tree.root());
    EXPECT_LE(path.size(), size_t{NodeTree::kMaxDepth} + 1);
  }
}

TEST(NodeTree, NodesOfOneNameGetDifferentNames) {
  DumpBuilder b;
  for (int i = 0; i < 3; ++i) b.Call("Module.a.A.forward.0");
  const Dump dump = b.Take();
  EXPECT_THAT(
      Lines(NodeTree(dump)),
      ElementsAre("Module.a.A.forward.0 in DefaultModel", "Module.a.A.forward.0#2 in DefaultModel",
                  "Module.a.A.forward.0#3 in DefaultModel", "DefaultModel in "));
}

TEST(NodeTree, NeedsModules) {
  EXPECT_TRUE(CheckHasTree(Model(0)).ok());
  DumpBuilder b;
  b.Call("Torch.mul.0.forward");
  EXPECT_THAT(CheckHasTree(b.Take()).message(), HasSubstr("found no calls of modules"));
}

std::string LevelOf(const char* call, const compare::test::Tensor& in,
                    const compare::test::Tensor& out) {
  const Dump dump = DumpBuilder().Call(call).In(in).Out(out).Take();
  return std::string(OverflowLevel(dump, dump.records[0]));
}

TEST(OverflowLevel, SaysWhereBadNumbersBeginAndEnd) {
  const auto good = Numbers(1, -1, 0, 5), infinite = Numbers(kInf, -1, 0, 5);
  const auto nan = Numbers(kNaN, kNaN, kNaN, kNaN);
  EXPECT_EQ(LevelOf("Torch.mul.0.forward", good, good), "");
  EXPECT_EQ(LevelOf("Torch.mul.0.forward", good, nan), "critical");
  EXPECT_EQ(LevelOf("Torch.mul.0.forward", infinite, nan), "high");
  EXPECT_EQ(LevelOf("Torch.mul.0.forward", infinite, good), "medium");
  EXPECT_EQ(LevelOf("Torch.mul.0.forward", good, Numbers(1, -1, 0, 500)), "");
  EXPECT_EQ(LevelOf("Torch.mul.0.forward", good, Numbers(1, -1, 0, 501)), "high");
  // Unwritten memory, and what another process sends, may be anything.
  EXPECT_EQ(LevelOf("Torch.empty_like.0.forward", good, nan), "");
  EXPECT_EQ(LevelOf("Distributed.all_gather.0.forward", infinite, nan), "");
}

TEST(VisDb, OfADumpHasItsNodesAndStacks) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.vis.db";
  {
    Result<std::unique_ptr<VisDb>> graph = VisDb::Create(path, {});
    ASSERT_TRUE(graph.ok());
    ASSERT_TRUE((*graph)->AddDump(Model(0), {.step = 3, .rank = 1}).ok());
    EXPECT_EQ((*graph)->nodes(), 9);
    ASSERT_TRUE((*graph)->Finish().ok());
  }
  EXPECT_THAT(Rows(path, "PRAGMA integrity_check"), ElementsAre("ok"));
  EXPECT_THAT(Rows(path,
                   "SELECT node_name, up_node, step, rank, data_source, precision_index "
                   "FROM tb_nodes WHERE node_order = 0"),
              ElementsAre("Functional.linear.0.forward|Module.fc.Linear.forward.0|3|1|NPU|-"));
  EXPECT_THAT(Rows(path, "SELECT count(*) FROM tb_nodes"), ElementsAre("9"));
  EXPECT_THAT(Rows(path,
                   "SELECT stack_info FROM tb_nodes JOIN tb_stack ON stack_id = tb_stack.id "
                   "WHERE node_name = 'Functional.linear.0.forward'"),
              ElementsAre(HasSubstr("y = f(x)")));
  EXPECT_THAT(Rows(path, "SELECT step_list, rank_list FROM tb_config"), ElementsAre("[3]|[1]"));
}

TEST(VisDb, OfAComparisonHasBothSidesAndTheVerdict) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.vis.db";
  {
    Result<std::unique_ptr<VisDb>> graph = VisDb::Create(path, {});
    ASSERT_TRUE(graph.ok());
    ASSERT_TRUE((*graph)->AddComparison(MustCompare(Model(0.1), Model(0)), {}).ok());
    ASSERT_TRUE((*graph)->Finish().ok());
  }
  EXPECT_THAT(Rows(path, "SELECT data_source, count(*) FROM tb_nodes GROUP BY data_source"),
              ElementsAre("Bench|9", "NPU|9"));
  const auto verdict = Rows(path,
                            "SELECT precision_index, matched_node_link FROM tb_nodes WHERE "
                            "node_name = 'Functional.linear.0.forward' AND data_source = 'NPU'");
  ASSERT_THAT(verdict, SizeIs(1));
  EXPECT_THAT(verdict[0], HasSubstr("Functional.linear.0.forward"));
  const auto equal = Rows(path,
                          "SELECT precision_index FROM tb_nodes WHERE node_name = "
                          "'Functional.linear.0.backward' AND data_source = 'NPU'");
  ASSERT_THAT(equal, SizeIs(1));
  EXPECT_NE(equal[0], verdict[0].substr(0, verdict[0].find('|')));
}

TEST(VisDb, RefusesADumpWithoutModules) {
  const TemporaryFolder folder;
  Result<std::unique_ptr<VisDb>> graph = VisDb::Create(folder.path() + "/a.vis.db", {});
  ASSERT_TRUE(graph.ok());
  const Dump dump = DumpBuilder().Call("Torch.mul.0.forward").Out(Numbers(1, -1, 0, 5)).Take();
  EXPECT_EQ((*graph)->AddDump(dump, {}).code(), ErrorCode::kInvalidArgument);
}

TEST(ClampTrend, KeepsNumbersThatThePageCanDraw) {
  EXPECT_EQ(ClampTrend(5e8), 5e8);
  EXPECT_EQ(ClampTrend(-2e9), -1e9);
  EXPECT_EQ(ClampTrend(kInf), 1e9 + 1);
  EXPECT_EQ(ClampTrend(-kInf), -1e9 - 1);
  EXPECT_TRUE(std::isnan(ClampTrend(kNaN)));
}

TEST(TrendDb, KeepsTheFirstRowOfAPlace) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.trend.db";
  Result<std::unique_ptr<TrendDb>> trend = TrendDb::Create(
      path, {{"forward", "backward"}, {"norm", "max"}, {{"norm", "max"}, {"norm"}}});
  ASSERT_TRUE(trend.ok());
  const std::vector<TrendTag> tags = {{"layer", "layers.0"}, {"module", "mlp"}};
  const TrendTarget target{.name = kHostile, .tags = tags};
  const double first[] = {1.5, kInf}, second[] = {9, 9}, third[] = {kNaN, 2};
  ASSERT_TRUE((*trend)->Add(target, {.step = 3, .rank = 1, .metric = 0}, first).ok());
  ASSERT_TRUE((*trend)->Add(target, {.step = 3, .rank = 1, .metric = 0}, second).ok());
  ASSERT_TRUE((*trend)->Add(target, {.step = 4, .rank = 0, .metric = 1}, third).ok());
  ASSERT_TRUE((*trend)->Finish().ok());
  EXPECT_THAT(Rows(path, "SELECT * FROM trend_data ORDER BY step"),
              ElementsAre("1|3|1|1|1.5|1000000001.0", "0|4|1|2|-|2.0"));
  EXPECT_THAT(Rows(path, "SELECT target_name FROM monitoring_targets"), ElementsAre(kHostileRead));
  EXPECT_THAT(Rows(path, "SELECT category, tag_name, metric_id FROM monitoring_tags"),
              ElementsAre("layer|layers.0|1", "module|mlp|1", "layer|layers.0|2", "module|mlp|2"));
  EXPECT_THAT(Rows(path, "SELECT count(*) FROM tag_target_mapping"), ElementsAre("4"));
  EXPECT_THAT(Rows(path, "SELECT * FROM global_stats"), ElementsAre("1|3|4|norm,max|norm"));
}

TEST(TrendDb, MakesRoomForPassesInEachStep) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.trend.db";
  Result<std::unique_ptr<TrendDb>> trend = TrendDb::Create(path, {{"forward"}, {"norm"}});
  ASSERT_TRUE(trend.ok());
  const TrendTarget target{.name = "a", .tags = {}};
  for (const int64_t step : {0, 1, 2, 3, 4}) {
    const double norm[] = {static_cast<double>(step)};
    ASSERT_TRUE((*trend)->Add(target, {.step = step}, norm).ok());
  }
  ASSERT_TRUE((*trend)->SpreadSteps(2, 3).ok());  // steps of 2 passes get room for 3
  ASSERT_TRUE((*trend)->Finish().ok());
  EXPECT_THAT(Rows(path, "SELECT step, norm FROM trend_data ORDER BY step"),
              ElementsAre("0|0.0", "1|1.0", "3|2.0", "4|3.0", "6|4.0"));
}

std::vector<std::string> TagsOf(std::string_view path, bool each_part) {
  std::vector<TrendTag> tags;
  AppendPathTags(path, each_part, &tags);
  std::vector<std::string> texts;
  for (const TrendTag& tag : tags) texts.push_back(tag.category + ":" + tag.name);
  return texts;
}

TEST(AppendPathTags, AreLayersAndTheRunsBetween) {
  EXPECT_THAT(TagsOf("layers.0.mlp.fc.Linear", false),
              ElementsAre("layer:layers.0", "module:mlp.fc.Linear"));
  EXPECT_THAT(TagsOf("layers.0.mlp.fc", true),
              ElementsAre("module:layers", "layer:layers.0", "module:mlp", "module:fc"));
  EXPECT_THAT(TagsOf("0.1..", false), SizeIs(testing::Le(1u)));
  EXPECT_THAT(TagsOf("", false), IsEmpty());
}

}  // namespace
}  // namespace msprobe::exports
