#include "capture/tasks/random_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

#include "engine/base/log.h"
#include "engine/formats/tables/csv.h"

namespace msprobe::capture {
namespace {

std::string FileName(std::optional<int> rank, const std::string& time) {
  return rank ? fmt::format("random_rank{}_{}.csv", *rank, time)
              : fmt::format("random_proc{}_{}.csv", ::getpid(), time);
}

}  // namespace

RandomLog& RandomLog::Get() {
  static RandomLog* instance = new RandomLog;  // never destroyed: it holds Python references
  return *instance;
}

Status RandomLog::Create(std::optional<int> rank) {
  const std::string path = JoinPath(folder_, FileName(rank, time_));
  MSPROBE_ASSIGN_OR_RETURN(file_, AppendFile::Open(path, /*keep=*/false));
  has_rank_ = rank.has_value();
  pid_ = ::getpid();
  calls_.clear();
  return file_.Append("api_name,stack\n");
}

Status RandomLog::Open(const std::string& folder, std::optional<int> rank,
                       const std::string& own_directory) {
  if (file_.is_open()) return Status::Ok();
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
  folder_ = folder;
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  time_ = fmt::format("{:%Y%m%d%H%M%S}", local);
  stacks_.HideDirectory(own_directory);
  MSPROBE_RETURN_IF_ERROR(Create(rank));
  Log(LogLevel::kInfo, "calls of random functions are written to {}"_t(file_.path()));
  return Status::Ok();
}

Status RandomLog::Append(const std::string& api, std::optional<int> rank) {
  if (pid_ != ::getpid()) {
    MSPROBE_RETURN_IF_ERROR(Create(std::nullopt));  // named by process, not by the parent's rank
    has_rank_ = true;                               // so the child's file is not renamed later
  } else if (rank && !has_rank_) {
    has_rank_ = true;
    const std::string path = JoinPath(folder_, FileName(rank, time_));
    if (std::rename(file_.path().c_str(), path.c_str()) != 0)
      Log(LogLevel::kWarning, "{} could not be renamed to {}"_t(file_.path(), path));
  }
  bool is_new;
  (void)stacks_.Intern(&is_new);
  std::string stack;
  for (const std::string& frame : stacks_.Format()) stack += frame + " \n";
  formats::CsvWriter row;
  row.TextCell(fmt::format("{}.{}", api, calls_[api]++));
  row.TextCell(stack);
  row.EndRow();
  return file_.Append(row.text());
}

void RandomLog::Note(const std::string& api, std::optional<int> rank) {
  if (!file_.is_open()) return;
  const Status status = Append(api, rank);
  if (status.ok()) return;
  Log(LogLevel::kError, "random_save ends here, the run goes on: {}"_t(status.AsMessage()));
  file_ = AppendFile();
}

}  // namespace msprobe::capture
