#include "engine/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <vector>

namespace msprobe {
namespace {

TEST(Status, SuccessSaysOkAndCarriesNothing) {
  const Status status = Status::Ok();
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), ErrorCode::kOk);
  EXPECT_EQ(status.message(), "ok");
  EXPECT_EQ(status.ToString(), "ok");
  EXPECT_EQ(status.path(), "");
  EXPECT_EQ(status.hint(), "");
  EXPECT_EQ(status.offset(), std::nullopt);
}

TEST(Status, MessageNamesPlaceExpectedFoundAndHint) {
  const Status status = InvalidDump("runs/a/dump.json", 1048)
                            .Expected("'\"' before an entry name"_t)
                            .Found("end of file"_t)
                            .Hint("msprobe recover runs/a"_t);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), ErrorCode::kInvalidDump);
  EXPECT_EQ(status.path(), "runs/a/dump.json");
  EXPECT_EQ(status.offset(), 1048u);
  EXPECT_EQ(status.hint(), "msprobe recover runs/a");
  EXPECT_EQ(status.message(),
            "runs/a/dump.json:1048: expected '\"' before an entry name, found end of file");
  EXPECT_EQ(status.ToString(),
            "error: runs/a/dump.json:1048: expected '\"' before an entry name, found end of file\n"
            "hint:  msprobe recover runs/a\n");
}

// Any part may be missing; the remaining parts must still form a sentence.
TEST(Status, PartsJoinInEveryCombination) {
  struct Case {
    bool path, offset, says, expected, found;
    std::string message;
  };
  const std::vector<Case> cases = {
      {false, false, false, false, false, "invalid dump"},
      {true, false, false, false, false, "p: invalid dump"},
      {true, true, false, false, false, "p:7: invalid dump"},
      {false, false, true, false, false, "s"},
      {false, false, false, true, false, "expected e"},
      {false, false, false, false, true, "found f"},
      {false, false, true, true, false, "s; expected e"},
      {false, false, true, false, true, "s, found f"},
      {false, false, false, true, true, "expected e, found f"},
      {false, false, true, true, true, "s; expected e, found f"},
      {true, true, true, true, true, "p:7: s; expected e, found f"},
      {true, false, false, true, false, "p: expected e"},
      {true, false, false, false, true, "p: found f"},
  };
  for (const Case& c : cases) {
    Status status(ErrorCode::kInvalidDump);
    if (c.path)
      status = std::move(status).At("p", c.offset ? std::optional<uint64_t>(7) : std::nullopt);
    if (c.says) status = std::move(status).Says("s"_t);
    if (c.expected) status = std::move(status).Expected("e"_t);
    if (c.found) status = std::move(status).Found("f"_t);
    EXPECT_EQ(status.message(), c.message);
    EXPECT_EQ(status.ToString(), "error: " + c.message + "\n");
  }
}

TEST(Status, MakersSetCodeAndText) {
  EXPECT_EQ(InvalidArgument("-x is unknown"_t).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(InvalidArgument("-x is unknown"_t).message(), "-x is unknown");
  EXPECT_EQ(InvalidArgument().message(), "invalid argument");
  EXPECT_EQ(InvalidConfig("c.json", 3).code(), ErrorCode::kInvalidConfig);
  EXPECT_EQ(InvalidConfig("c.json", 3).message(), "c.json:3: invalid configuration");
  EXPECT_EQ(NotFound("a/b").code(), ErrorCode::kNotFound);
  EXPECT_EQ(NotFound("a/b").message(), "a/b: does not exist");
  EXPECT_EQ(NotFound("/").Expected("a dump"_t).message(),
            "/: holds nothing that fits; expected a dump");
  EXPECT_EQ(InvalidDump("train.py", 0).Expected("'{{'"_t).message(), "train.py: expected '{'");
  EXPECT_EQ(IoError("a/b", "write"_t, ENOSPC).code(), ErrorCode::kIo);
  EXPECT_EQ(IoError("a/b", "write"_t, ENOSPC).message(),
            "a/b: cannot write: No space left on device");
  EXPECT_EQ(Unsupported("not here"_t).code(), ErrorCode::kUnsupported);
  EXPECT_EQ(Internal("lost"_t).code(), ErrorCode::kInternal);
  EXPECT_EQ(Internal("lost"_t).message(), "lost");
}

TEST(Status, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    const std::string_view name = ErrorCodeName(static_cast<ErrorCode>(code));
    EXPECT_NE(name, "unknown");
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

// Adding to a copy of a Status must not change the original.
TEST(Status, AddingToACopyLeavesTheOriginal) {
  const Status original = NotFound("a");
  Status copy = original;
  copy = std::move(copy).At("b", 7).Says("s"_t).Expected("e"_t).Found("f"_t).Hint("h"_t);
  EXPECT_EQ(copy.ToString(), "error: b:7: s; expected e, found f\nhint:  h\n");
  EXPECT_EQ(original.ToString(), "error: a: does not exist\n");
}

TEST(Excerpt, MakesHostileBytesVisible) {
  EXPECT_EQ(Excerpt(""), "\"\"");
  EXPECT_EQ(Excerpt("plain text ~"), "\"plain text ~\"");
  EXPECT_EQ(Excerpt("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(Excerpt(std::string_view("\0\n\x1b\x7f\xff", 5)), "\"\\x00\\x0a\\x1b\\x7f\\xff\"");
}

TEST(Excerpt, CountsCharactersOfTheText) {
  EXPECT_EQ(Excerpt(std::string(40, 'a')), '"' + std::string(40, 'a') + '"');
  EXPECT_EQ(Excerpt(std::string(41, 'a')), '"' + std::string(40, 'a') + "...\"");
  EXPECT_EQ(Excerpt("abcdef", 3), "\"abc...\"");
  EXPECT_EQ(Excerpt("\n\n\n", 2), "\"\\x0a\\x0a...\"");
  EXPECT_EQ(Excerpt("abc", 0), "\"...\"");
}

TEST(Result, HoldsAValueOrAnError) {
  Result<std::string> value = std::string("text");
  ASSERT_TRUE(value.ok());
  EXPECT_TRUE(value.status().ok());
  EXPECT_EQ(*value, "text");
  EXPECT_EQ(value->size(), 4u);
  Result<std::string> error = NotFound("a");
  ASSERT_FALSE(error.ok());
  EXPECT_EQ(error.status().message(), "a: does not exist");
}

TEST(Result, MovesValuesThatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 5);
}

Status FailIf(bool fail) { return fail ? Internal("asked to"_t) : Status::Ok(); }

Result<std::unique_ptr<int>> Make(bool fail) {
  if (fail) return Internal("not made"_t);
  return std::make_unique<int>(1);
}

Status Chain(bool first, bool second, int* reached) {
  *reached = 0;
  MSPROBE_RETURN_IF_ERROR(FailIf(first));
  *reached = 1;
  MSPROBE_ASSIGN_OR_RETURN(const std::unique_ptr<int> a, Make(second));
  MSPROBE_ASSIGN_OR_RETURN(const std::unique_ptr<int> b, Make(false));
  *reached = 1 + *a + *b;
  return Status::Ok();
}

TEST(Result, MacrosStopAtTheFirstError) {
  int reached = -1;
  EXPECT_EQ(Chain(true, true, &reached).message(), "asked to");
  EXPECT_EQ(reached, 0);
  EXPECT_EQ(Chain(false, true, &reached).message(), "not made");
  EXPECT_EQ(reached, 1);
  EXPECT_TRUE(Chain(false, false, &reached).ok());
  EXPECT_EQ(reached, 3);
}

}  // namespace
}  // namespace msprobe
