#include "engine/exports/databases/database.h"

#include <sqlite3.h>

#include <cmath>

#include "engine/base/file.h"
#include "engine/base/system_calls.h"
#include "engine/base/text.h"

namespace msprobe::exports {
namespace {

Status Failed(const std::string& path, std::string_view words) {
  return Status(ErrorCode::kIo).At(path).Says("cannot write: {}"_t(words));
}

}  // namespace

void Insert::Finalize::operator()(sqlite3_stmt* statement) const {
  (void)sqlite3_finalize(statement);
}
void Database::Close::operator()(sqlite3* handle) const { (void)sqlite3_close_v2(handle); }

Insert& Insert::Text(std::string_view text) {
  valid_.clear();
  AppendValidUtf8(&valid_, text);
  const int result = sqlite3_bind_text64(statement_.get(), ++next_, valid_.data(), valid_.size(),
                                         SQLITE_TRANSIENT, SQLITE_UTF8);
  if (error_ == 0) error_ = result;
  return *this;
}

Insert& Insert::Integer(int64_t value) {
  const int result = sqlite3_bind_int64(statement_.get(), ++next_, value);
  if (error_ == 0) error_ = result;
  return *this;
}

Insert& Insert::Real(double value) {
  const int result = sqlite3_bind_double(statement_.get(), ++next_, value);
  if (error_ == 0) error_ = result;
  return *this;
}

Insert& Insert::Null() {
  ++next_;  // Run unbinds all parameters
  return *this;
}

Status Insert::Run() {
  const QuietSizeLimit quiet(needs_quiet_);
  int result = error_;
  if (result == 0) result = sqlite3_step(statement_.get());
  next_ = error_ = 0;
  const bool done = result == SQLITE_DONE || result == SQLITE_ROW;
  Status status = done ? Status::Ok() : Failed(path_, sqlite3_errstr(result));
  (void)sqlite3_reset(statement_.get());
  (void)sqlite3_clear_bindings(statement_.get());
  return status;
}

int64_t Insert::row() const {
  return sqlite3_last_insert_rowid(sqlite3_db_handle(statement_.get()));
}

Result<Database> Database::Create(const std::string& path) {
  Database db;
  MSPROBE_RETURN_IF_ERROR(db.folder_.Make(DirectoryName(path)));
  MSPROBE_ASSIGN_OR_RETURN(db.file_, AtomicFile::Create(path));
  db.needs_quiet_ = QuietSizeLimit::IsNeeded();
  sqlite3* handle = nullptr;
  const int opened = sqlite3_open_v2(db.file_.temporary_path().c_str(), &handle,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  db.handle_.reset(handle);
  if (opened != SQLITE_OK) return Failed(path, sqlite3_errstr(opened));
  // No journal: after an error the temporary file is removed as a whole.
  MSPROBE_RETURN_IF_ERROR(
      db.Execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;"
                 "PRAGMA locking_mode = EXCLUSIVE; BEGIN"));
  return db;
}

Status Database::Execute(const char* sql) {
  const QuietSizeLimit quiet(needs_quiet_);
  const int result = sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr);
  return result == SQLITE_OK ? Status::Ok() : Failed(path(), sqlite3_errmsg(handle_.get()));
}

Result<Insert> Database::Prepare(const char* sql) {
  Insert insert;
  sqlite3_stmt* statement = nullptr;
  const int result =
      sqlite3_prepare_v3(handle_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  insert.statement_.reset(statement);
  if (result != SQLITE_OK) return Failed(path(), sqlite3_errmsg(handle_.get()));
  insert.path_ = path();
  insert.needs_quiet_ = needs_quiet_;
  return insert;
}

Status Database::Commit() {
  MSPROBE_RETURN_IF_ERROR(Execute("COMMIT"));
  const int closed = sqlite3_close(handle_.release());
  if (closed != SQLITE_OK) return Failed(path(), sqlite3_errstr(closed));
  MSPROBE_RETURN_IF_ERROR(file_.Commit());
  folder_.Keep();
  return Status::Ok();
}

}  // namespace msprobe::exports
