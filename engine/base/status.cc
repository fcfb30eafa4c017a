#include "engine/base/status.h"

#include <fmt/format.h>

#include <cstring>

#include "engine/base/file.h"

namespace msprobe {
namespace {
const std::string kEmpty;
const Message kNoMessage;
}  // namespace

namespace {

Message ErrorCodeMessage(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "ok"_t;
    case ErrorCode::kInvalidArgument:
      return "invalid argument"_t;
    case ErrorCode::kInvalidConfig:
      return "invalid configuration"_t;
    case ErrorCode::kInvalidDump:
      return "invalid dump"_t;
    case ErrorCode::kNotFound:
      return "not found"_t;
    case ErrorCode::kIo:
      return "input/output error"_t;
    case ErrorCode::kUnsupported:
      return "not supported"_t;
    case ErrorCode::kInternal:
      return "internal error"_t;
  }
  return "unknown"_t;
}

}  // namespace

std::string ErrorCodeName(ErrorCode code) { return ErrorCodeMessage(code).English(); }

Status::Status(ErrorCode code) : rep_(std::make_shared<Rep>()) { rep_->code = code; }

void Status::OwnRep() {
  if (rep_.use_count() > 1) rep_ = std::make_shared<Rep>(*rep_);
}

Status&& Status::At(std::string_view path, std::optional<uint64_t> offset) && {
  OwnRep();
  rep_->path = path;
  rep_->offset = offset;
  return std::move(*this);
}
Status&& Status::Says(Message message) && {
  OwnRep();
  rep_->says = std::move(message);
  return std::move(*this);
}
Status&& Status::Expected(Message what) && {
  OwnRep();
  rep_->expected = std::move(what);
  return std::move(*this);
}
Status&& Status::Found(Message what) && {
  OwnRep();
  rep_->found = std::move(what);
  return std::move(*this);
}
Status&& Status::Hint(Message what_to_type_next) && {
  OwnRep();
  rep_->hint = std::move(what_to_type_next);
  return std::move(*this);
}

const std::string& Status::path() const { return rep_ ? rep_->path : kEmpty; }
std::optional<uint64_t> Status::offset() const { return rep_ ? rep_->offset : std::nullopt; }
std::string Status::hint() const { return HintAsMessage().English(); }
const Message& Status::HintAsMessage() const { return rep_ ? rep_->hint : kNoMessage; }

std::string Status::message() const { return AsMessage().English(); }
std::string Status::ShownMessage() const { return AsMessage().Shown(); }

Message Status::AsMessage() const {
  if (ok()) return "ok"_t;
  Message expected, found;
  if (!rep_->expected.empty()) expected = "expected {}"_t(rep_->expected);
  if (!rep_->found.empty()) found = "found {}"_t(rep_->found);
  Message text = Message::Joined({Message::Joined({rep_->says, expected}, "; "), found}, ", ");
  if (text.empty()) text = ErrorCodeMessage(rep_->code);
  if (rep_->path.empty()) return text;
  // ":0" would be read as a line; the beginning of a file needs no number.
  const std::string place = rep_->offset.value_or(0) > 0
                                ? fmt::format("{}:{}: ", rep_->path, *rep_->offset)
                                : fmt::format("{}: ", rep_->path);
  return Message::Joined({place, std::move(text)}, "");
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  std::string text = fmt::format("{}: {}\n", "error"_t.Shown(), ShownMessage());
  const Message& hint = HintAsMessage();
  if (!hint.empty()) text += fmt::format("{}:  {}\n", "hint"_t.Shown(), hint.Shown());
  return text;
}

Status InvalidArgument(Message message) {
  return Status(ErrorCode::kInvalidArgument).Says(std::move(message));
}
Status InvalidConfig(std::string_view path, std::optional<uint64_t> line) {
  return Status(ErrorCode::kInvalidConfig).At(path, line);
}
Status InvalidDump(std::string_view path, std::optional<uint64_t> offset) {
  return Status(ErrorCode::kInvalidDump).At(path, offset);
}
// What exists holds nothing of what is looked for: that is another error than a path that is not
// there.
Status NotFound(std::string_view path) {
  return Status(ErrorCode::kNotFound)
      .At(path)
      .Says(Exists(std::string(path)) ? "holds nothing that fits"_t : "does not exist"_t);
}
Status IoError(std::string_view path, Message operation, int error_number) {
  return Status(ErrorCode::kIo)
      .At(path)
      .Says("cannot {}: {}"_t(std::move(operation), std::string(std::strerror(error_number))));
}
Status Unsupported(Message message) {
  return Status(ErrorCode::kUnsupported).Says(std::move(message));
}
Status Internal(Message message) { return Status(ErrorCode::kInternal).Says(std::move(message)); }

std::string Excerpt(std::string_view text, size_t max) {
  std::string out = "\"";
  for (unsigned char c : text.substr(0, max)) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || c >= 0x7f) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += static_cast<char>(c);
    }
  }
  out += text.size() > max ? "...\"" : "\"";
  return out;
}

}  // namespace msprobe
