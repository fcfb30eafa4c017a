#include "engine/formats/tensors/npy_header.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/formats/tensors/tensor_file.h"

namespace msprobe::formats {
namespace {

class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path, uint64_t offset)
      : text_(text), path_(path), offset_(offset) {}

  Result<NpyHeader> Parse() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    if (!Eat('{')) return Fail("'{{'"_t);
    while (!Eat('}')) {
      std::string_view key;
      if (!EatString(&key)) return Fail("a key in quotes or '}}'"_t);
      if (!Eat(':')) return Fail("':'"_t);
      bool* seen = key == "descr"           ? &has_descr
                   : key == "fortran_order" ? &has_order
                   : key == "shape"         ? &has_shape
                                            : nullptr;
      if (seen == nullptr || *seen)
        return Fail("'descr', 'fortran_order' and 'shape', each once"_t);
      *seen = true;
      MSPROBE_RETURN_IF_ERROR(key == "descr"           ? ParseDtype(&header.descr)
                              : key == "fortran_order" ? ParseOrder(&header.fortran_order)
                                                       : ParseShape(&header.shape));
      if (!Eat(',') && Peek() != '}') return Fail("',' or '}}'"_t);
    }
    if (Peek() != '\0' || at_ != text_.size()) return Fail("the end of the header"_t);
    if (!has_descr || !has_order || !has_shape) {
      return Fail("'descr', 'fortran_order' and 'shape'"_t);
    }
    return header;
  }

 private:
  Status Fail(const Message& expected) {
    const std::string_view rest = text_.substr(std::min(at_, text_.size()));
    return InvalidDump(path_, offset_ + at_)
        .Expected("{} in the npy header"_t(expected))
        .Found(rest.empty() ? "its end"_t : Excerpt(rest, 24));
  }

  char Peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Eat(char c) {
    if (Peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  bool EatWord(std::string_view word) {
    Peek();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  // No escapes: NumPy writes none in these three values.
  bool EatString(std::string_view* out) {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return false;
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return false;
    *out = text_.substr(at_ + 1, end - at_ - 1);
    if (out->find('\\') != std::string_view::npos) return false;
    at_ = end + 1;
    return true;
  }

  Status ParseDtype(std::string_view* descr) {
    if (Peek() == '[' || Peek() == '(' || Peek() == '{') {
      return Unsupported("{}: structured arrays are not tensors"_t(path_))
          .Hint("save one field: numpy.save(path, array['field'])"_t);
    }
    return EatString(descr) ? Status::Ok() : Fail("a dtype in quotes"_t);
  }

  Status ParseOrder(bool* fortran) {
    *fortran = EatWord("True");
    return *fortran || EatWord("False") ? Status::Ok() : Fail("True or False"_t);
  }

  Status ParseShape(std::vector<int64_t>* shape) {
    if (!Eat('(')) return Fail("'('"_t);
    while (!Eat(')')) {
      if (shape->size() == kMaxTensorDimensions)
        return Fail("at most {} dimensions"_t(kMaxTensorDimensions));
      if (Peek() < '0' || Peek() > '9') return Fail("an extent"_t);
      int64_t extent = 0;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        if (__builtin_mul_overflow(extent, 10, &extent) ||
            __builtin_add_overflow(extent, text_[at_] - '0', &extent)) {
          return Fail("an extent below 2^63"_t);
        }
      }
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2
      shape->push_back(extent);
      if (!Eat(',') && (Peek() != ')' || shape->size() == 1)) return Fail("','"_t);
    }
    return Status::Ok();
  }

  std::string_view text_;
  const std::string& path_;
  uint64_t offset_;
  size_t at_ = 0;
};

}  // namespace

Result<NpyHeader> ParseNpyHeader(std::string_view text, const std::string& path, uint64_t offset) {
  return HeaderParser(text, path, offset).Parse();
}

}  // namespace msprobe::formats
