// Reads one value of an entry into a leaf: a tensor with its members, a plain value, None.
//
//   LeafParser parser(Dialect::kMsprobe27, /*names_from_files=*/false);
//   parser.Begin(&json, &entries);
//   parser.ReadObject(path, &leaf);   // after the brace of {"type": "torch.Tensor", ...}
//   parser.ReadPlain(path, &leaf);    // 1.5
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/text_ref.h"
#include "engine/formats/text/json.h"
#include "engine/model/dialect.h"
#include "engine/model/element_type.h"
#include "engine/model/shape.h"
#include "engine/model/table.h"

namespace msprobe::dump {

struct Entries;

// Parses the statistics of a dump that was read without them (ReadOptions::parse_numbers). Changes
// no other dump.
void ParseNumbers(Dump* dump);

class LeafParser {
 public:
  // `parse_numbers`: as in ReadOptions.
  LeafParser(Dialect dialect, bool names_from_files, bool parse_numbers = true)
      : names_from_files_(names_from_files),
        parse_numbers_(parse_numbers),
        facts_(FactsOf(dialect)) {}

  // Texts, shapes and counts of the leaves go to `entries`, which outlives them.
  void Begin(formats::JsonCursor* json, Entries* entries);

  // Each reads the next value. They fill all members of the leaf but record and slot; `path` is the
  // name of the value. After an error json->failed() is true, and the leaf is not complete.
  void ReadObject(std::string_view path, Leaf* leaf);
  void ReadNone(std::string_view path, Leaf* leaf);
  void ReadPlain(std::string_view path, Leaf* leaf);  // where the tools write {"type", "value"}

 private:
  struct Members;  // the members of one object that were read
  void Member(std::string_view key, Leaf* leaf, Members* read);
  void OtherMember(std::string_view key, Leaf* leaf, Members* read);
  void Value(Leaf* leaf, Members* read);
  void Checksum(Leaf* leaf);
  std::string_view FingerprintOf(std::string_view text);
  void AddText(LeafTexts* texts);  // for the leaf being read
  void Scalar(Leaf* leaf);
  void ReadNumber(double* value);
  void SetStatistic(TextRef* text, double* value);
  int64_t Count();

  // A dump has few types, dtypes and shapes. The last results are kept, so that each
  // text is parsed once.
  template <typename T>
  struct Recent {
    static constexpr size_t kCount = 4;
    struct {
      std::string_view raw;  // with its quotes or brackets
      T value;
    } known[kCount];
    size_t next = 0;
  };
  template <typename T, typename Read>
  T ReadRecent(Recent<T>* recent, Read&& read);
  std::string_view ReadText();
  std::string_view Text(formats::JsonText text);
  std::string_view ValueText(formats::JsonText text);
  std::string_view PythonText();

  const bool names_from_files_, parse_numbers_;
  const DialectFacts& facts_;
  formats::JsonCursor* json_ = nullptr;
  Entries* out_ = nullptr;
  std::string scratch_;
  Recent<TextRef> types_;
  Recent<ElementType> dtypes_;
  Recent<Shape> shapes_;
};

}  // namespace msprobe::dump
