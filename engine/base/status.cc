#include "engine/base/status.h"

#include <fmt/format.h>

#include <cstring>

#include "engine/base/catalogue.h"
#include "engine/base/file.h"
#include "engine/base/language.h"

namespace msprobe {
namespace {
const std::string kEmpty;
}  // namespace

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "ok";
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kInvalidConfig:
      return "invalid configuration";
    case ErrorCode::kInvalidDump:
      return "invalid dump";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kIo:
      return "input/output error";
    case ErrorCode::kUnsupported:
      return "not supported";
    case ErrorCode::kInternal:
      return "internal error";
  }
  return "unknown";
}

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
Status&& Status::Says(std::string_view message) && {
  OwnRep();
  rep_->says = message;
  return std::move(*this);
}
Status&& Status::Expected(std::string_view what) && {
  OwnRep();
  rep_->expected = what;
  return std::move(*this);
}
Status&& Status::Found(std::string_view what) && {
  OwnRep();
  rep_->found = what;
  return std::move(*this);
}
Status&& Status::Hint(std::string_view what_to_type_next) && {
  OwnRep();
  rep_->hint = what_to_type_next;
  return std::move(*this);
}

const std::string& Status::path() const { return rep_ ? rep_->path : kEmpty; }
std::optional<uint64_t> Status::offset() const { return rep_ ? rep_->offset : std::nullopt; }
const std::string& Status::hint() const { return rep_ ? rep_->hint : kEmpty; }

std::string Status::message() const {
  return Compose([](std::string text) { return text; });
}
std::string Status::ShownMessage() const { return Compose(Translated); }

std::string Status::Compose(std::string (*in_language)(std::string)) const {
  if (ok()) return "ok";
  std::string text;
  if (!rep_->path.empty()) {
    text = rep_->path;
    // ":0" would be read as a line; the beginning of a file needs no number.
    if (rep_->offset.value_or(0) > 0) text += fmt::format(":{}", *rep_->offset);
    text += ": ";
  }
  const size_t start = text.size();
  text += in_language(rep_->says);
  if (!rep_->expected.empty()) {
    text += in_language(text.size() > start ? "; expected " : "expected ");
    AppendClosed(in_language(rep_->expected), &text);
  }
  if (!rep_->found.empty()) {
    text += in_language(text.size() > start ? ", found " : "found ");
    AppendClosed(in_language(rep_->found), &text);
  }
  if (text.size() == start) text += in_language(std::string(ErrorCodeName(rep_->code)));
  return text;
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  std::string text = fmt::format("{}: {}\n", Translated("error"), ShownMessage());
  if (!hint().empty()) text += fmt::format("{}:  {}\n", Translated("hint"), Translated(hint()));
  return text;
}

Status InvalidArgument(std::string_view message) {
  return Status(ErrorCode::kInvalidArgument).Says(message);
}
Status InvalidConfig(std::string_view path, std::optional<uint64_t> line) {
  return Status(ErrorCode::kInvalidConfig).At(path, line);
}
Status InvalidDump(std::string_view path, std::optional<uint64_t> offset) {
  return Status(ErrorCode::kInvalidDump).At(path, offset);
}
// What exists holds nothing of what is looked for: that is another error than a path that is not there.
Status NotFound(std::string_view path) {
  return Status(ErrorCode::kNotFound)
      .At(path)
      .Says(Exists(std::string(path)) ? "holds nothing that fits" : "does not exist");
}
Status IoError(std::string_view path, std::string_view operation, int error_number) {
  return Status(ErrorCode::kIo)
      .At(path)
      .Says(fmt::format("cannot {}: {}", operation, std::strerror(error_number)));
}
Status Unsupported(std::string_view message) {
  return Status(ErrorCode::kUnsupported).Says(message);
}
Status Internal(std::string_view message) { return Status(ErrorCode::kInternal).Says(message); }

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
