// The two files of the first check, which grow call by call: accuracy_checking_result_TIME.csv and
// accuracy_checking_details_TIME.csv. A run that was killed can be continued.
//
//   MSPROBE_ASSIGN_OR_RETURN(CheckFiles files, CheckFiles::Create("out", "20260102030405"));
//   if (!files.IsDone("Tensor.add.0"))          // one output, no backward
//     MSPROBE_RETURN_IF_ERROR(files.Add({"Tensor.add.0", Verdict::kPass, Verdict::kBlank, {row}}));
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/accuracy/columns.h"
#include "engine/accuracy/standards.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

namespace msprobe::accuracy {

// What the first check found about a call. The rows need no name: it is made of the call's name,
// the direction and the place of the row.
struct CheckedCall {
  std::string name;  // "Tensor.add.0"
  Verdict forward = Verdict::kBlank, backward = Verdict::kBlank;
  std::vector<DetailsRow> forward_rows = {}, backward_rows = {};
  std::string message = {};  // why the call as a whole was skipped or failed
};

// The verdict in roundings of a direction: kError where one result is beyond its bound, kPass where
// one has a bound and none is beyond, else kBlank.
Verdict RoundingVerdictOf(const std::vector<DetailsRow>& rows);

// Written by one process, on one thread at a time.
class CheckFiles {
 public:
  // Makes the folder and both files with their titles. `time`: 14 digits. `roundings`: with the
  // columns that msprobe 1.0 to 26 do not have. Errors: kInvalidArgument when a file of that name
  // exists.
  static Result<CheckFiles> Create(const std::string& folder, std::string_view time,
                                   Rules rules = Rules::kOurs, bool roundings = false);
  // Continues the files of an earlier run, also of msprobe 1.0 to 26; their columns stay.
  // `result_path`: that of the
  // result file; the details file is beside it. What a kill cut off goes, as well as a call that is
  // in one of the files only, and a call with the verdict SKIP, so that it is tried again. Errors:
  // kInvalidArgument for another file name; kNotFound; kInvalidDump, with nothing changed, for a
  // file that is not such a table and for a name that is there twice.
  static Result<CheckFiles> Resume(const std::string& result_path, Rules rules = Rules::kOurs);

  bool has_roundings() const { return roundings_; }
  bool IsDone(std::string_view call) const { return done_.contains(call); }
  // What an earlier run found and is kept, with the rows that do not pass.
  const std::vector<CheckedCall>& earlier() const { return earlier_; }
  // Appends the rows of the details, then the row of the result: one write each, so that after a
  // kill a call of the result file has all its rows. A call that IsDone is an error.
  Status Add(const CheckedCall& call);

  bool is_empty() const { return done_.empty(); }
  // Removes both files when this run made them and they are empty.
  void RemoveIfEmpty();

  const std::string& result_path() const { return result_.path(); }
  const std::string& details_path() const { return details_.path(); }

 private:
  CheckFiles(Rules rules, bool roundings) : rules_(rules), roundings_(roundings) {}
  Status Open(const std::string& result_path, const std::string& details_path);

  size_t DetailsWidth() const { return roundings_ ? kDetailsColumns : kOlderDetailsColumns; }
  size_t ResultWidth() const { return roundings_ ? kResultColumns : kOlderResultColumns; }

  Rules rules_;
  bool roundings_;
  AppendFile result_, details_;
  std::set<std::string, std::less<>> done_;
  std::vector<CheckedCall> earlier_;
  bool created_ = false;  // by this run
};

}  // namespace msprobe::accuracy
