#include "engine/dump/write/provenance.h"

#include <gtest/gtest.h>

#include "engine/dump/read/reader.h"
#include "tests/base/temporary_folder.h"
#include "tests/dump/dump_text.h"

namespace msprobe::dump {
namespace {

const std::string kRevision = "0123456789abcdef0123456789abcdef01234567";

TEST(GitRevision, IsThatOfTheBranchThatIsCheckedOut) {
  TemporaryFolder folder;
  folder.Write(".git/HEAD", "ref: refs/heads/main\n");
  EXPECT_EQ(GitRevision(folder.path()), "");  // nothing was ever committed
  folder.Write(".git/packed-refs", "# pack-refs\n" + kRevision + " refs/heads/main\n");
  EXPECT_EQ(GitRevision(folder.path()), kRevision);
  const std::string newer(40, 'a');
  folder.Write(".git/refs/heads/main", newer + "\n");
  EXPECT_EQ(GitRevision(folder.path()), newer);
  folder.Write("src/deep/train.py", "");
  EXPECT_EQ(GitRevision(folder.path() + "/src/deep"), newer);
}

TEST(GitRevision, OfADetachedHeadAndOfAWorktree) {
  TemporaryFolder folder;
  folder.Write("repository/.git/HEAD", kRevision + "\n");
  EXPECT_EQ(GitRevision(folder.path() + "/repository"), kRevision);
  const std::string other(40, 'b');
  folder.Write("repository/.git/refs/heads/side", other);
  folder.Write("repository/.git/worktrees/side/HEAD", "ref: refs/heads/side\n");
  folder.Write("repository/.git/worktrees/side/commondir", "../..\n");
  folder.Write("side/.git", "gitdir: ../repository/.git/worktrees/side\n");
  EXPECT_EQ(GitRevision(folder.path() + "/side"), other);
}

TEST(GitRevision, IsEmptyWhereNothingCanBeTold) {
  TemporaryFolder folder;
  folder.Write(".git/HEAD", "ref: ../../../etc/passwd\n");
  EXPECT_EQ(GitRevision(folder.path()), "");
  folder.Write(".git/HEAD", "nonsense");
  EXPECT_EQ(GitRevision(folder.path()), "");
}

TEST(ReadDump, ProvenanceAndWeights) {
  TemporaryFolder folder;
  std::string text = Ours({EntryMember("Torch.f.0.forward")});
  text.insert(text.find("\"data\""), R"("provenance": {"torch": "2.13.0", "threads": 2}, )");
  folder.Write("dump.json", text);
  folder.Write("weights.json", "{\n\"fc.weight\": " + std::string(kTensor) +
                                   ",\n\"fc.bias\": {\"type\": \"torch.Tensor\"}\n}\n");
  const Result<Dump> dump = ReadDump(folder.path());
  ASSERT_TRUE(dump.ok()) << dump.status().ToString();
  ASSERT_EQ(dump->provenance.size(), 2u);
  EXPECT_EQ(dump->provenance[0], std::make_pair(std::string("torch"), std::string("2.13.0")));
  EXPECT_EQ(dump->provenance[1].second, "2");
  ASSERT_EQ(dump->weights.size(), 2u);
  EXPECT_EQ(dump->weights[0].name, "fc.weight");
  EXPECT_EQ(dump->weights[0].fingerprint, "0123456789abcdef");
  EXPECT_EQ(dump->weights[1].fingerprint, "");
}

}  // namespace
}  // namespace msprobe::dump
