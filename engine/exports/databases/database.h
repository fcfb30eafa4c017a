// Writes a new SQLite database, which appears whole under its name or not at all.
//
//   MSPROBE_ASSIGN_OR_RETURN(Database db, Database::Create("out/run.db"));
//   MSPROBE_RETURN_IF_ERROR(db.Execute("CREATE TABLE calls (name TEXT, error REAL)"));
//   MSPROBE_ASSIGN_OR_RETURN(Insert calls, db.Prepare("INSERT INTO calls VALUES (?, ?)"));
//   MSPROBE_RETURN_IF_ERROR(calls.Text(name).Real(0.5).Run());
//   MSPROBE_RETURN_IF_ERROR(db.Commit());
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/atomic_file.h"
#include "engine/base/status.h"
#include "engine/base/writable_folder.h"

struct sqlite3;
struct sqlite3_stmt;

namespace msprobe::exports {

// A statement with parameters, run again and again. Values are only ever bound to parameters: text
// of a dump is never part of SQL. Must not outlive its Database.
class Insert {
 public:
  // The values of the parameters, in their order.
  Insert& Text(std::string_view text);  // bytes that are not UTF-8 become U+FFFD
  Insert& Integer(int64_t value);
  Insert& Real(double value);  // NaN is stored as NULL: SQLite has no NaN
  Insert& Null();
  // Runs the statement with the values since the last Run. A parameter without a value is NULL.
  Status Run();
  // The number of the row that the last Run inserted.
  int64_t row() const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  std::string path_, valid_;
  int next_ = 0;              // parameters that have a value
  int error_ = 0;             // of SQLite, in binding; 0: none
  bool needs_quiet_ = false;  // see system_calls.h
};

// For one thread at a time. Memory: 64 MB of pages and what a value needs, whatever the size of the
// file: rows go to the disk while they are written, and indexes are sorted in temporary files (in
// SQLITE_TMPDIR, TMPDIR, or /var/tmp).
class Database {
 public:
  // Makes the folder of the file when it is missing; without Commit() that folder is gone again, as
  // the file is. Errors, also of the other functions: kIo, with SQLite's words ("database or disk
  // is full").
  static Result<Database> Create(const std::string& path);
  // Runs one or several statements of ours.
  Status Execute(const char* sql);
  Result<Insert> Prepare(const char* sql);
  // Closes the file and gives it its name. All Inserts must be gone.
  Status Commit();
  const std::string& path() const { return file_.path(); }

 private:
  struct Close {
    void operator()(sqlite3* handle) const;
  };
  NewFolder folder_;  // outlives the file in it
  AtomicFile file_;
  std::unique_ptr<sqlite3, Close> handle_;
  bool needs_quiet_ = false;
};

}  // namespace msprobe::exports
