// Every function of the engine that can fail returns a Status, or a Result<T>, which holds a value
// or a Status.
//
//   if (!Exists(path))
//     return NotFound(path).Expected("a dump folder or dump.json"_t);
//   MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
//   MSPROBE_RETURN_IF_ERROR(writer.Close());
//
// An error is made where the fact is known, passed up unchanged, and printed once (cli/main.cc), or
// raised in Python (RaiseIfError in python/src/convert.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/messages/message.h"

namespace msprobe {

enum class ErrorCode {
  kOk,
  kInvalidArgument,  // a flag, a keyword or a combination of them
  kInvalidConfig,    // a configuration file
  kInvalidDump,  // a dump, tensor or mapping file whose content is damaged, truncated or hostile
  kNotFound,     // a path that does not exist
  kIo,           // the operating system refused: permission, disk full, ...
  kUnsupported,  // the request is valid, and this version or machine cannot do it
  kInternal,     // our bug
};

// "invalid dump", "not found", ...
std::string ErrorCodeName(ErrorCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  explicit Status(ErrorCode code);

  static Status Ok() { return Status(); }
  bool ok() const { return rep_ == nullptr; }
  ErrorCode code() const { return rep_ ? rep_->code : ErrorCode::kOk; }

  // The parts of a message. Each returns the status, so that calls can be chained. Copies that were
  // made before do not change.
  Status&& At(std::string_view path, std::optional<uint64_t> offset = std::nullopt) &&;
  Status&& Says(Message message) &&;  // a sentence, where expected/found does not fit
  Status&& Expected(Message what) &&;
  Status&& Found(Message what) &&;
  Status&& Hint(Message what_to_type_next) &&;

  const std::string& path() const;  // empty when the error is not about a file
  std::optional<uint64_t> offset() const;
  // "runs/a/dump.json:1048: expected '\"' before an entry name, found end of file"; no hint.
  std::string message() const;
  std::string hint() const;
  // The two as messages: parts of another one.
  Message AsMessage() const;
  const Message& HintAsMessage() const;
  // message() in the language of the person who reads it (language.h). Files and programs get
  // message().
  std::string ShownMessage() const;
  // "error: <message>\nhint:  <hint>\n", in that language, too.
  std::string ToString() const;

 private:
  struct Rep {
    ErrorCode code;
    std::string path;
    Message says, expected, found, hint;
    std::optional<uint64_t> offset;
  };
  void OwnRep();  // to be called before a change: copies share one Rep

  std::shared_ptr<Rep> rep_;  // null when ok, so that passing a success on costs nothing
};

Status InvalidArgument(Message message = {});
Status InvalidConfig(std::string_view path, std::optional<uint64_t> line = std::nullopt);
Status InvalidDump(std::string_view path, std::optional<uint64_t> offset = std::nullopt);
Status NotFound(std::string_view path);
Status IoError(std::string_view path, Message operation,
               int error_number);  // "write"_t: "cannot write: No space left on device"
Status Unsupported(Message message);
Status Internal(Message message);

// For use in Found(): at most `max` characters of text from a file, with control characters and
// quotes made visible.
std::string Excerpt(std::string_view text, size_t max = 40);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT
  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status&& status() && { return std::move(status_); }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define MSPROBE_CONCAT_INNER(a, b) a##b
#define MSPROBE_CONCAT(a, b) MSPROBE_CONCAT_INNER(a, b)
#define MSPROBE_RETURN_IF_ERROR(expression)                                      \
  do {                                                                           \
    if (::msprobe::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
#define MSPROBE_ASSIGN_OR_RETURN(declaration, expression) \
  MSPROBE_ASSIGN_OR_RETURN_INNER(MSPROBE_CONCAT(result_, __LINE__), declaration, expression)
#define MSPROBE_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                           \
  if (!result.ok()) return std::move(result).status();                  \
  declaration = std::move(result).value()

}  // namespace msprobe
