#include "engine/dump/session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/messages/message.h"
#include "engine/dump/read/reader.h"
#include "tests/base/temporary_folder.h"
#include "tests/model/entry_from_json.h"

namespace msprobe::dump {
namespace {

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() { config_.dump_path = temporary_.path() + "/dump"; }  // does not exist yet

  static void RecordOne(Session& session, const std::string& name) {
    const Entry entry = test::ParseEntry(
        "\"" + name + R"(": {"input_args": [], "input_kwargs": {}, "output": []})");
    session.Record({.entry = &entry, .name = name});
  }
  size_t Records(const std::string& below) const {
    Result<Dump> dump = ReadDump(config_.dump_path + "/" + below);
    return dump.ok() ? dump->records.size() : 0;
  }

  const TemporaryFolder temporary_;
  Config config_;
};

TEST_F(SessionTest, OneFolderAStepAndRank) {
  Session session(config_);
  ASSERT_TRUE(*session.Start(std::nullopt));
  RecordOne(session, "Torch.a.0.forward");
  ASSERT_TRUE(session.Stop().ok());
  session.Step();
  ASSERT_TRUE(*session.Start(3));
  RecordOne(session, "Torch.a.0.forward");
  EXPECT_EQ(session.folder(), config_.dump_path + "/step1/rank3");
  session.Step();
  EXPECT_EQ(Records("step0/rank"), 1u);
}

TEST_F(SessionTest, StartsInOneStepGoOnInOneFile) {
  Session session(config_);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(*session.Start(std::nullopt));
    RecordOne(session, "Torch.a." + std::to_string(session.calls().Next(0)) + ".forward");
    ASSERT_TRUE(session.Stop().ok());
  }
  EXPECT_EQ(Records("step0/rank"), 3u);
  session.Step();
  EXPECT_EQ(session.calls().Next(0), 0);  // call numbers start at 0 again
}

TEST_F(SessionTest, SaysThatAnEarlierDumpIsReplaced) {
  for (const bool again : {false, true}) {
    Session session(config_);
    testing::internal::CaptureStderr();
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(*session.Start(std::nullopt));
      RecordOne(session, "Torch.a.0.forward");
      session.Step();
    }
    const std::string said = testing::internal::GetCapturedStderr();
    const size_t first = said.find("holds an earlier dump: it is replaced");
    EXPECT_EQ(first != std::string::npos, again) << said;
    EXPECT_EQ(said.find("replaced", first + 40), std::string::npos) << "once is enough";
  }
}

TEST_F(SessionTest, AStepWithoutTheRequestIsNotCollected) {
  config_.request_id = "b";
  Session session(config_);
  EXPECT_TRUE(*session.Start(std::nullopt));  // without a schedule: whole tensors
  EXPECT_TRUE(session.slicer().empty());
  session.Step();
  session.ScheduleTokens(TokenCounts{{"a", 3}});
  EXPECT_FALSE(*session.Start(std::nullopt));
  session.Step();
  session.ScheduleTokens(TokenCounts{{"a", 3}, {"b", 2}});
  EXPECT_TRUE(*session.Start(std::nullopt));
  EXPECT_FALSE(session.slicer().empty());
  session.Step();
  session.ScheduleTokens(std::nullopt);
  EXPECT_TRUE(*session.Start(std::nullopt));
  EXPECT_TRUE(session.slicer().empty());
}

TEST_F(SessionTest, ConcludedIsClosedAndBeginsNothingMore) {
  Session session(config_);
  ASSERT_TRUE(*session.Start(std::nullopt));
  RecordOne(session, "Torch.a.0.forward");
  session.Conclude("enough"_t);
  EXPECT_FALSE(session.collecting());
  RecordOne(session, "Torch.a.1.forward");
  EXPECT_TRUE(session.Stop().ok());
  EXPECT_FALSE(*session.Start(std::nullopt));
  session.Step();
  EXPECT_FALSE(*session.Start(std::nullopt));
  EXPECT_EQ(Records("step0/rank"), 1u);
}

TEST_F(SessionTest, OnlyWantedStepsAndRanks) {
  config_.step = {1};
  config_.rank = {2};
  Session session(config_);
  EXPECT_FALSE(*session.Start(2));
  session.Step();
  EXPECT_FALSE(*session.Start(1));
  EXPECT_TRUE(*session.Start(2));
  session.Step();
  EXPECT_FALSE(*session.Start(2));
  EXPECT_FALSE(Exists(config_.dump_path + "/step0"));
}

TEST_F(SessionTest, AFaultTurnsCollectionOffForGood) {
  temporary_.Write("dump", "a file where the folder should be");
  Session session(config_);
  ASSERT_TRUE(*session.Start(std::nullopt));
  testing::internal::CaptureStderr();
  RecordOne(session, "Torch.a.0.forward");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("collection is off, the run goes on: "));
  EXPECT_FALSE(session.collecting());
  EXPECT_FALSE(*session.Start(std::nullopt));  // the run continues without recording
  RecordOne(session, "Torch.a.1.forward");
}

TEST_F(SessionTest, AStepWithoutEntriesHasNoFolder) {
  Session session(config_);
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(*session.Start(std::nullopt));
    EXPECT_FALSE(Exists(config_.dump_path));
    session.WriteBeside("weights.json", "{}");  // waits for the first entry
    if (step == 1) RecordOne(session, "Torch.a.0.forward");
    ASSERT_TRUE(session.Stop().ok());
    if (step == 1) break;
    session.Step();
  }
  EXPECT_EQ(*ListDirectory(config_.dump_path), std::vector<std::string>{"step1"});
  EXPECT_TRUE(Exists(config_.dump_path + "/step1/rank/weights.json"));
  session.Step();
  ASSERT_TRUE(*session.Start(std::nullopt));  // waits until the process ends
  EXPECT_EQ(*ListDirectory(config_.dump_path), std::vector<std::string>{"step1"});
}

// A call that is active when collection fails still requests its stack and stores its tensors.
TEST_F(SessionTest, NothingIsWrittenAfterAFault) {
  config_.task = Task::kTensor;
  Session session(config_);
  ASSERT_TRUE(*session.Start(std::nullopt));
  RecordOne(session, "Torch.a.0.forward");
  const auto frames = [] { return std::vector<std::string>{"frame"}; };
  EXPECT_EQ(session.NoteStack(0, "Torch.a.0.forward", frames), 0);
  session.Fail(Status(ErrorCode::kIo));
  const std::string stacks = ReadWhole(session.folder() + "/stack.json");
  EXPECT_EQ(session.NoteStack(0, "Torch.b.0.forward", frames), -1);
  EXPECT_EQ(session.NoteStack(1, "Torch.c.0.forward", frames), -1);
  EXPECT_FALSE(session.Store("a.pt", TensorView()));
  RecordOne(session, "Torch.b.0.forward");
  session.Step();
  EXPECT_EQ(ReadWhole(session.folder() + "/stack.json"), stacks);
  const Result<Dump> dump = ReadDump(session.folder());
  ASSERT_TRUE(dump.ok());
  EXPECT_EQ(dump->records.size(), 1u);
  EXPECT_FALSE(dump->complete);  // marked as not the whole step
}

TEST_F(SessionTest, ARemovedDumpIsAFault) {
  Session session(config_);
  ASSERT_TRUE(*session.Start(std::nullopt));
  RecordOne(session, "Torch.a.0.forward");
  ASSERT_TRUE(RemoveFile(session.folder() + "/dump.json").ok());
  EXPECT_THAT(session.Stop().message(), ::testing::HasSubstr("somebody removed this file"));
  EXPECT_FALSE(*session.Start(std::nullopt));
}

TEST_F(SessionTest, StacksAreNumberedPerStep) {
  Session session(config_);
  ASSERT_TRUE(*session.Start(std::nullopt));
  int formatted = 0;
  const auto frames = [&] { return ++formatted, std::vector<std::string>{"frame"}; };
  EXPECT_EQ(session.NoteStack(5, "a", frames), 0);
  EXPECT_EQ(session.NoteStack(5, "b", frames), 0);
  EXPECT_EQ(formatted, 1);
  session.Step();
  ASSERT_TRUE(*session.Start(std::nullopt));
  EXPECT_EQ(session.NoteStack(7, "c", frames), 0);
  EXPECT_EQ(formatted, 2);
}

TEST_F(SessionTest, AChangedConfigurationHoldsFromTheNextStart) {
  Session session(config_);
  ASSERT_TRUE(*session.Start(std::nullopt));
  RecordOne(session, "Torch.a.0.forward");
  ASSERT_TRUE(session.Stop().ok());
  config_.level = Level::kL0;  // this step's header still says L1
  session.Reconfigure(config_);
  EXPECT_EQ(session.config().level, Level::kL1);
  EXPECT_TRUE(*session.Start(std::nullopt));
  session.Step();
  EXPECT_EQ(session.config().level, Level::kL0);
  config_.dump_enable = false;
  session.Reconfigure(config_);
  EXPECT_FALSE(*session.Start(std::nullopt));
  config_.dump_enable.reset();  // the original configuration
  session.Reconfigure(config_);
  EXPECT_FALSE(*session.Start(std::nullopt));
  config_.dump_enable = true;
  session.Reconfigure(config_);
  EXPECT_TRUE(*session.Start(std::nullopt));
  ASSERT_TRUE(session.Stop().ok());
  session.RejectConfig();
  EXPECT_FALSE(session.enabled() || *session.Start(std::nullopt));
  session.Abandon();
  session.Reconfigure(config_);
  EXPECT_FALSE(*session.Start(std::nullopt));
  EXPECT_EQ(Records("step0/rank"), 1u);
}

TEST_F(SessionTest, AnotherDumpPathBeginsNewFilesAtOnce) {
  Session session(config_);
  ASSERT_TRUE(*session.Start(std::nullopt));
  RecordOne(session, "Torch.a.0.forward");
  ASSERT_TRUE(session.Stop().ok());
  config_.dump_path += "_more";
  session.Reconfigure(config_);
  ASSERT_TRUE(*session.Start(std::nullopt));
  RecordOne(session, "Torch.a.0.forward");
  EXPECT_EQ(session.folder(), config_.dump_path + "/step0/rank");
  session.Step();
}

// The stages of one step, as a framework with several models has them.
class StageTest : public SessionTest {
 protected:
  // One stage, with a call; returns the line about a replaced dump, "" if there was none.
  std::string Stage(Session& session, bool reset = true) {
    testing::internal::CaptureStderr();
    if (session.begins_stage()) session.BeginStage();
    EXPECT_TRUE(*session.Start(std::nullopt));
    RecordOne(session, "Torch.a." + std::to_string(session.calls().Next(0)) + ".forward");
    EXPECT_TRUE(session.Stop().ok());
    if (reset) session.EndStage();
    const std::string said = testing::internal::GetCapturedStderr();
    return said.find("earlier") == std::string::npos ? "" : said;
  }
  std::vector<std::string> Names(const std::string& below) const {
    std::vector<std::string> names;
    const Result<Dump> dump = ReadDump(config_.dump_path + below);
    if (!dump.ok()) return names;
    for (const Record& record : dump->records) names.emplace_back(record.name.view());
    return names;
  }
  using Calls = std::vector<std::string>;
};

TEST_F(StageTest, EachStageIsADumpWithNumbersFromZero) {
  Session session(config_);
  session.SetDumpPath(config_.dump_path + "/ref");
  EXPECT_EQ(Stage(session), "");
  const int64_t dump = session.dump();
  session.SetDumpPath(config_.dump_path + "/update");
  EXPECT_EQ(session.config().dump_path, config_.dump_path + "/ref");  // until the next start
  EXPECT_EQ(Stage(session), "");
  EXPECT_NE(session.dump(), dump);
  EXPECT_EQ(session.configured_path(), config_.dump_path);
  session.Step();
  EXPECT_EQ(Stage(session), "");  // the path stays
  EXPECT_EQ(Names("/ref/step0/rank"), Calls{"Torch.a.0.forward"});
  EXPECT_EQ(Names("/update/step0/rank"), Calls{"Torch.a.0.forward"});
  EXPECT_EQ(Names("/update/step1/rank"), Calls{"Torch.a.0.forward"});
}

TEST_F(StageTest, WithoutEndStageNumbersGoOn) {
  Session session(config_);
  session.SetDumpPath(config_.dump_path + "/ref");
  Stage(session, /*reset=*/false);
  session.SetDumpPath(config_.dump_path + "/update");
  Stage(session, /*reset=*/false);
  Stage(session, /*reset=*/false);  // in the same folder: the same dump
  EXPECT_EQ(Names("/update/step0/rank"), (Calls{"Torch.a.1.forward", "Torch.a.2.forward"}));
  EXPECT_EQ(Names("/ref/step0/rank"), Calls{"Torch.a.0.forward"});
}

TEST_F(StageTest, AStageInAnEarlierOnesFolderReplacesItAndIsSaidOnce) {
  Session session(config_);
  EXPECT_EQ(Stage(session), "");
  EXPECT_THAT(Stage(session), ::testing::HasSubstr("holds an earlier stage of this step"));
  EXPECT_EQ(Stage(session), "");
  EXPECT_EQ(Names("/step0/rank"), Calls{"Torch.a.0.forward"});
  session.Step();
  EXPECT_EQ(Stage(session), "");
  EXPECT_EQ(Names("/step1/rank"), Calls{"Torch.a.0.forward"});
}

TEST_F(StageTest, AChangedConfigurationKeepsTheStagesPath) {
  Session session(config_);
  session.SetDumpPath(config_.dump_path + "/ref");
  Stage(session);
  config_.dump_enable = true;
  session.Reconfigure(config_);
  Stage(session);
  EXPECT_EQ(session.folder(), config_.dump_path + "/ref/step0/rank");
}

TEST_F(StageTest, NothingIsRecordedWhileItIsOver) {
  config_.step = {0, 1};
  Session session(config_);
  EXPECT_TRUE(session.first_start());
  Stage(session);
  EXPECT_FALSE(session.first_start() || session.is_over());
  session.SetOver(true);
  EXPECT_FALSE(*session.Start(std::nullopt));
  EXPECT_TRUE(session.is_over());
  session.SetOver(false);
  session.Step();
  EXPECT_EQ(session.current_step(), 0);
  Stage(session);
  EXPECT_EQ(session.current_step(), 1);
  session.Step();
  EXPECT_TRUE(session.is_over());
}

// A front of an older tool: its names, its file, and call numbers that continue over steps.
class LineSessionTest : public SessionTest {
 protected:
  Config Lines(PklDialect dialect, const std::string& file) {
    Config config;
    config.pkl = PklStyle{
        .dialect = dialect, .file = temporary_.path() + "/" + file, .data = PklData::kNone};
    config.dump_path = config.pkl->file;
    return config;
  }
  static std::string Name(Session& session) {
    std::string forward, backward;
    session.calls().Name("Torch.a.", session.calls().Next(0), false, &forward, &backward);
    return forward + " " + backward;
  }
  static void Write(Session& session) {
    const Entry entry = test::ParseEntry(R"("f_0_forward": {"output":{"type":"int","value":1}})");
    session.Record({.entry = &entry, .name = "f_0_forward"});
  }
  std::string Text(const std::string& file) { return ReadWhole(temporary_.path() + "/" + file); }
  const std::string line_ =
      "[\"f_0_forward_output\", 0, [], \"<class 'int'>\", \"[]\", [1, 1, 1, 1]]\n";
};

TEST_F(LineSessionTest, NamesCallsAsTheDialectDoes) {
  Session counted(Lines(PklDialect::kCounted, "a.pkl"));
  EXPECT_EQ(Name(counted), "Torch_a_0_forward Torch_a_0_backward");
  EXPECT_EQ(Name(counted), "Torch_a_1_forward Torch_a_1_backward");
  EXPECT_FALSE(counted.calls().RenamesGradients());
  Session numbered(Lines(PklDialect::kNumbered, "b.pkl"));
  EXPECT_EQ(Name(numbered), "0_Torch_a_forward Torch_a_0_backward");
  EXPECT_EQ(numbered.calls().NameGradients("Torch_a_0_backward"), "1_Torch_a_backward");
  EXPECT_EQ(Name(numbered), "2_Torch_a_forward Torch_a_1_backward");
}

TEST_F(LineSessionTest, AFileThatItHasWrittenIsAddedTo) {
  ASSERT_TRUE(MakeDirectories(temporary_.path()).ok());
  temporary_.Write("a.pkl", "old\n");
  Session session(Lines(PklDialect::kCounted, "a.pkl"));
  for (const char* file : {"a.pkl", "b.pkl", "a.pkl"}) {
    session.ReconfigureNow(Lines(PklDialect::kCounted, file));
    ASSERT_TRUE(*session.Start(std::nullopt));
    Write(session);
    ASSERT_TRUE(session.Stop().ok());
    ASSERT_TRUE(*session.Start(std::nullopt));  // continues the file
    Write(session);
    ASSERT_TRUE(session.Stop().ok());
  }
  EXPECT_EQ(Text("a.pkl"), line_ + line_ + line_ + line_);
  EXPECT_EQ(Text("b.pkl"), line_ + line_);
  EXPECT_EQ(session.calls().Next(0), 0);
  session.ReconfigureNow(Lines(PklDialect::kCounted, "b.pkl"));
  EXPECT_EQ(session.calls().Next(0), 1);
}

TEST_F(LineSessionTest, BesideItAreItsWeightsAndNothingElse) {
  Session session(Lines(PklDialect::kCounted, "d/a.pkl"));
  ASSERT_TRUE(*session.Start(std::nullopt));
  session.WriteBeside("coverage.json", "{}");
  EXPECT_TRUE(session.TakeNewPkl());
  EXPECT_FALSE(session.TakeNewPkl());
  session.WriteBeside("weights.json", R"({"w": {"fp": "PTeOEIhdkUA"}})");
  Write(session);
  ASSERT_TRUE(session.Stop().ok());
  EXPECT_EQ(*ListDirectory(temporary_.path() + "/d"),
            (std::vector<std::string>{"a.pkl", "a.weights.json"}));
  const Result<Dump> dump = ReadDump(temporary_.path() + "/d");
  ASSERT_TRUE(dump.ok()) << dump.status().message();
  ASSERT_EQ(dump->weights.size(), 1u);
  EXPECT_EQ(dump->weights[0].name, "w");
}

}  // namespace
}  // namespace msprobe::dump
