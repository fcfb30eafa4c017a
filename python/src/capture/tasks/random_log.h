// Logs the calls of random functions: rows `api_name,stack` of a CSV file. Each row is appended at
// once, so that a killed run keeps them.
//
//   RaiseIfError(RandomLog::Get().Open("./output", rank, own_directory));
//   // "torch_random.rand.0","File train.py, ..."
//   RandomLog::Get().Note("torch_random.rand", rank);
#pragma once

#include <Python.h>

#include <map>
#include <optional>
#include <string>

#include "capture/calls/stack.h"
#include "engine/base/file.h"

namespace msprobe::capture {

class RandomLog {
 public:
  static RandomLog& Get();

  // Creates `folder` and in it random_rank<R>_<time>.csv, or random_proc<pid>_<time>.csv while
  // there is no rank. A second Open keeps the file of the first.
  Status Open(const std::string& folder, std::optional<int> rank, const std::string& own_directory);
  // Writes a row for one call of `api`, with the current stack. The file is renamed when the rank
  // becomes known. A forked child writes a file of its own. A failure is logged once and ends the
  // log.
  void Note(const std::string& api, std::optional<int> rank);

 private:
  Status Create(std::optional<int> rank);
  Status Append(const std::string& api, std::optional<int> rank);

  std::string folder_, time_;
  AppendFile file_;
  bool has_rank_ = false;
  int pid_ = 0;
  StackTable stacks_;
  std::map<std::string, int64_t> calls_;
};

}  // namespace msprobe::capture
