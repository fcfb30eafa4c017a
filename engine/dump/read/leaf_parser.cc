#include "engine/dump/read/leaf_parser.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/dump/read/entries.h"
#include "engine/dump/read/python_text.h"
#include "engine/model/guarded_text.h"
#include "engine/tensor/dtype.h"

namespace msprobe::dump {
namespace {

const ElementType kNotRecorded = "N/A", kNoneType = "<class 'NoneType'>", kStr = "<class 'str'>",
                  kBool = "<class 'bool'>", kInt = "<class 'int'>", kFloat = "<class 'float'>",
                  kList = "<class 'list'>", kDict = "<class 'dict'>";

// Keyword arguments that the tables of msprobe give the dtype "int" instead of "<class 'int'>".
bool IsRankKeyword(std::string_view path) {
  const std::string_view key = path.substr(path.rfind('.') + 1);
  return key == "src" || key == "dst" || key == "group_src" || key == "group_dst";
}

// Sets the text that tables show for a value other than a tensor. `has_value`: its text and dtype
// are set already.
void DescribePlainValue(bool has_value, std::string_view ranks, std::string_view format,
                        std::string_view path, ShapePool* shapes, Leaf* leaf) {
  leaf->kind = LeafKind::kScalar;
  if (!ranks.empty()) {
    leaf->dtype = leaf->type;
    leaf->shape = Shape::Scalar();
    leaf->value = leaf->max = leaf->min = leaf->mean = leaf->norm = ranks;
  } else if (leaf->type == "torch.Size") {
    leaf->dtype = leaf->type;
    leaf->shape = shapes->Of(leaf->value);
    leaf->max = leaf->min = leaf->mean = leaf->norm = "null";
  } else if (leaf->type == "slice" || leaf->type == "ellipsis") {
    leaf->dtype = leaf->type;
    leaf->shape = leaf->type == "slice" ? Shape::OfSlice() : Shape::Scalar();
  } else if (!has_value) {
    leaf->dtype = kNoneType;
    leaf->shape = Shape::Scalar();
    leaf->max = leaf->min = leaf->mean = leaf->norm = "None";
    leaf->value = format;  // torch.memory_format: the tables say None, the value is known
  } else if (leaf->type == "int" && IsRankKeyword(path)) {
    leaf->dtype = leaf->type;
  }
}

// Looks at the length first: to compare with each word would take longer than to read the value.
template <size_t kSize>
bool Is(std::string_view key, const char (&word)[kSize]) {
  return key.size() == kSize - 1 && std::memcmp(key.data(), word, kSize - 1) == 0;
}

// The statistics of narrow floats are float32 numbers.
void RoundNumbers(const DialectFacts& facts, Leaf* leaf) {
  if (!facts.writes_float32_statistics || !leaf->dtype.dtype() ||
      !IsNarrowFloat(*leaf->dtype.dtype()))
    return;
  for (double* value : {&leaf->max_value, &leaf->min_value, &leaf->mean_value, &leaf->norm_value})
    *value = RoundToFloat32(*value);
}

void ParseNumbersOf(const DialectFacts& facts, Leaf* leaf) {
  if (leaf->kind != LeafKind::kTensor || !leaf->value.empty()) return;
  const std::pair<TextRef, double*> statistics[] = {{leaf->max, &leaf->max_value},
                                                    {leaf->min, &leaf->min_value},
                                                    {leaf->mean, &leaf->mean_value},
                                                    {leaf->norm, &leaf->norm_value}};
  for (const auto& [text, value] : statistics) {
    const bool is_word = text.empty() || text == "null" || text == "True" || text == "False";
    if (!is_word) *value = formats::JsonNumber(text);
  }
  RoundNumbers(facts, leaf);
}

}  // namespace

void ParseNumbers(Dump* dump) {
  if (dump->numbers_parsed) return;
  for (Leaf& leaf : dump->leaves) ParseNumbersOf(FactsOf(dump->dialect), &leaf);
  dump->numbers_parsed = true;
}

void LeafParser::Begin(formats::JsonCursor* json, Entries* entries) {
  json_ = json;
  out_ = entries;
  types_ = {};
  dtypes_ = {};
  shapes_ = {};
}

template <typename T, typename Read>
T LeafParser::ReadRecent(Recent<T>* recent, Read&& read) {
  json_->Peek();  // skips blanks
  for (const auto& [raw, value] : recent->known) {
    if (json_->PassKnown(raw)) return value;
  }
  const size_t start = json_->offset();
  const T value = read();
  const std::string_view raw = json_->Since(start);
  if (raw.size() < 256 && !json_->failed())
    recent->known[recent->next++ % Recent<T>::kCount] = {raw, value};
  return value;
}

std::string_view LeafParser::ReadText() {
  formats::JsonText text;
  if (!json_->String(&text)) return {};
  // Text without escapes is copied, too: then the pages of the file are not needed again.
  return text.escaped ? Text(text) : out_->arena.Copy(text.raw);
}

std::string_view LeafParser::Text(formats::JsonText text) { return out_->arena.Decode(text); }

// A text that was recorded as a value.
std::string_view LeafParser::ValueText(formats::JsonText text) {
  const std::string_view decoded = Text(text);
  if (!text.escaped || !facts_.guards_text) return decoded;  // no backslash to remove
  const std::string_view value = UnguardText(decoded, &scratch_);
  return value.data() == decoded.data() ? decoded : out_->arena.Copy(value);
}

std::string_view LeafParser::PythonText() {
  scratch_.clear();
  AppendPythonText(json_, &scratch_);
  return out_->arena.Copy(scratch_);
}

void LeafParser::ReadNone(std::string_view path, Leaf* leaf) {
  leaf->kind = LeafKind::kNone;
  if (!json_->Null()) return;
  leaf->name = out_->arena.Copy(path);
  leaf->dtype = kNotRecorded;
  leaf->shape = Shape::NotRecorded();
  leaf->max = leaf->min = leaf->mean = leaf->norm = "null";
}

void LeafParser::ReadPlain(std::string_view path, Leaf* leaf) {
  leaf->kind = LeafKind::kScalar;
  leaf->name = out_->arena.Copy(path);
  Scalar(leaf);
  leaf->type = leaf->dtype.class_name();
}

void LeafParser::Scalar(Leaf* leaf) {
  leaf->shape = Shape::Scalar();
  const char c = json_->Peek();
  formats::JsonText text;
  std::string_view number;
  bool flag;
  switch (c) {
    case '"':
      leaf->dtype = kStr;
      if (json_->String(&text)) leaf->value = ValueText(text);
      break;
    case 't':
    case 'f':
      leaf->dtype = kBool;
      if (!json_->Bool(&flag)) return;
      leaf->value = flag ? "True" : "False";
      leaf->max_value = flag;
      leaf->has_stats = true;
      break;
    case 'n':
      leaf->dtype = kNoneType;
      if (json_->Null()) leaf->value = "None";
      break;
    case '[':
    case '{':
      leaf->dtype = c == '[' ? kList : kDict;
      leaf->value = PythonText();
      break;
    default:
      if (!json_->Number(&number)) return;
      leaf->value = number;
      leaf->dtype = number.find_first_of(".eENI") == std::string_view::npos ? kInt : kFloat;
      leaf->max_value = formats::JsonNumber(number);
      leaf->has_stats = true;
  }
  leaf->max = leaf->min = leaf->mean = leaf->norm = leaf->value;
  leaf->min_value = leaf->mean_value = leaf->norm_value = leaf->max_value;
}

struct LeafParser::Members {
  bool has_dtype = false, has_shape = false, has_value = false;
  std::string_view ranks, format;
  ElementCounts counts;
  bool counted = false;
  LeafRest rest;
  LeafShard shard;
};

namespace {

// The count, and the number of a tensor without its extremes, that a key names; null: none.
int64_t* CountNamed(std::string_view k, ElementCounts* counts) {
  if (Is(k, "nan")) return &counts->nan;
  if (Is(k, "pos_inf")) return &counts->pos_inf;
  if (Is(k, "neg_inf")) return &counts->neg_inf;
  return Is(k, "zero") ? &counts->zero : nullptr;
}
std::string_view* ShardMember(std::string_view k, LeafShard* shard) {
  if (Is(k, "device_mesh")) return &shard->mesh;
  if (Is(k, "placements")) return &shard->placements;
  return Is(k, "global_shape") ? &shard->global_shape : nullptr;
}
double* RestNamed(std::string_view k, LeafRest* rest) {
  if (Is(k, "rest_max")) return &rest->max;
  if (Is(k, "rest_min")) return &rest->min;
  return Is(k, "rest_norm") ? &rest->norm : nullptr;
}

}  // namespace

void LeafParser::Member(std::string_view k, Leaf* leaf, Members* read) {
  formats::JsonText text;
  if (Is(k, "type")) {
    leaf->type = ReadRecent(&types_, [&] { return TextRef(ReadText()); });
  } else if (Is(k, "dtype")) {
    read->has_dtype = true;
    leaf->dtype = ReadRecent(&dtypes_, [&] { return ElementType(ReadText()); });
  } else if (Is(k, "shape")) {
    read->has_shape = true;
    leaf->shape = ReadRecent(&shapes_, [&] {
      scratch_.clear();
      AppendListText(json_, &scratch_);
      return out_->shapes.Of(scratch_);
    });
  } else if (Is(k, "Max")) {
    SetStatistic(&leaf->max, &leaf->max_value);
  } else if (Is(k, "Min")) {
    SetStatistic(&leaf->min, &leaf->min_value);
  } else if (Is(k, "Mean")) {
    SetStatistic(&leaf->mean, &leaf->mean_value);
  } else if (Is(k, "Norm")) {
    SetStatistic(&leaf->norm, &leaf->norm_value);
  } else if (Is(k, "requires_grad")) {
    bool flag = false;
    if (json_->Bool(&flag)) leaf->requires_grad = flag ? "True" : "False";
  } else if (Is(k, "value") && !read->has_value) {
    Value(leaf, read);
  } else if (Is(k, "md5")) {
    Checksum(leaf);
  } else if (Is(k, "fp") || Is(k, "fingerprint")) {
    if (json_->String(&text)) leaf->fingerprint = FingerprintOf(Text(text));
  } else {
    OtherMember(k, leaf, read);
  }
}

// The members that few leaves have.
void LeafParser::OtherMember(std::string_view k, Leaf* leaf, Members* read) {
  formats::JsonText text;
  if (Is(k, "sk") && json_->Peek() == '"') {
    AddText(&out_->sketches);
  } else if (Is(k, "data_name")) {
    if (json_->String(&text)) leaf->data_name = Text(text);
  } else if (int64_t* count = CountNamed(k, &read->counts); count != nullptr) {
    *count = Count();
    read->counted = true;
  } else if (Is(k, "unwritten") && json_->Peek() == '"') {
    AddText(&out_->unwritten);
  } else if (Is(k, "unreadable") && json_->Peek() == '"') {
    AddText(&out_->unreadable);
  } else if (Is(k, "stride") && json_->Peek() == '[') {
    scratch_.clear();
    AppendListText(json_, &scratch_);
    out_->strides.push_back(
        {static_cast<uint32_t>(out_->leaves.size() - 1), out_->arena.Copy(scratch_)});
  } else if (std::string_view* of_shard = ShardMember(k, &read->shard); of_shard != nullptr) {
    json_->Raw(of_shard);
  } else if (Is(k, "extremes")) {
    read->rest.extremes = Count();
  } else if (double* rest = RestNamed(k, &read->rest); rest != nullptr) {
    ReadNumber(rest);
  } else if (Is(k, "group_ranks")) {
    read->ranks = PythonText();
  } else if (Is(k, "format") && json_->Peek() == '"') {
    if (json_->String(&text)) read->format = Text(text);
  } else {
    json_->Skip();
  }
}

// What an object says of its dtype and shape wins over those of the value.
void LeafParser::Value(Leaf* leaf, Members* read) {
  read->has_value = true;
  const ElementType dtype = leaf->dtype;
  const Shape shape = leaf->shape;
  Scalar(leaf);
  if (read->has_dtype) leaf->dtype = dtype;
  if (read->has_shape) leaf->shape = shape;
}

void LeafParser::Checksum(Leaf* leaf) {
  formats::JsonText text;
  std::string_view number;
  if (json_->Peek() == 'n') {
    json_->Null();
  } else if (json_->Peek() == '"') {
    if (json_->String(&text)) leaf->checksum = Text(text);
  } else if (json_->Number(&number)) {
    leaf->checksum = number;  // 0-d tensors under xor: the value itself
  }
}

std::string_view LeafParser::FingerprintOf(std::string_view text) {
  return parse_numbers_ ? FingerprintText(text, &out_->arena) : text;
}

void LeafParser::AddText(LeafTexts* texts) {
  formats::JsonText text;
  if (json_->String(&text))
    texts->push_back({static_cast<uint32_t>(out_->leaves.size() - 1), Text(text)});
}

void LeafParser::ReadObject(std::string_view path, Leaf* leaf) {
  Members read;
  formats::JsonText key;
  while (json_->NextKey(&key)) Member(key.escaped ? std::string_view() : key.raw, leaf, &read);
  if (json_->failed()) return;

  if (read.has_dtype && read.has_shape) {
    leaf->has_stats = !std::isnan(leaf->max_value) || leaf->max == "NaN";
    if (parse_numbers_) RoundNumbers(facts_, leaf);
    if (facts_.leaves_out_counts_of_zero && leaf->has_stats) {
      leaf->counts = &kNoneOfAKind;
      for (int64_t* count :
           {&read.counts.nan, &read.counts.pos_inf, &read.counts.neg_inf, &read.counts.zero}) {
        *count = std::max<int64_t>(*count, 0);
      }
    }
  } else {
    DescribePlainValue(read.has_value, read.ranks, read.format, path, &out_->shapes, leaf);
  }
  if (read.rest.extremes > 0) {
    read.rest.leaf = static_cast<uint32_t>(out_->leaves.size() - 1);
    out_->rests.push_back(read.rest);
  }
  if (!read.shard.placements.empty()) {
    read.shard.leaf = static_cast<uint32_t>(out_->leaves.size() - 1);
    out_->shards.push_back(read.shard);
  }
  if (read.counted) leaf->counts = &out_->counts.emplace_back(read.counts);
  // "Functional.linear.0.forward.input.0.pt": the name without its extension.
  const bool file_named =
      names_from_files_ && !leaf->data_name.empty() && leaf->data_name != "-1" &&
      leaf->data_name.view().find('/') == std::string_view::npos;  // no path into a folder
  leaf->name = file_named ? leaf->data_name.substr(0, leaf->data_name.view().rfind('.'))
                          : out_->arena.Copy(path);
  out_->has_checksums |= !leaf->checksum.empty();
}

void LeafParser::ReadNumber(double* value) {
  std::string_view number;
  if (json_->Number(&number)) *value = formats::JsonNumber(number);
}

void LeafParser::SetStatistic(TextRef* text, double* value) {
  formats::JsonText string;
  std::string_view number;
  bool flag;
  switch (json_->Peek()) {
    case 'n':
      if (json_->Null()) *text = "null";
      break;
    case 't':
    case 'f':
      if (!json_->Bool(&flag)) return;
      *text = flag ? "True" : "False";
      *value = flag;
      break;
    case '"':  // graph collectors write text
      if (!json_->String(&string)) return;
      *text = Text(string);
      *value = formats::JsonNumber(*text);
      break;
    default:
      if (!json_->Number(&number)) return;
      *text = number;
      *value = parse_numbers_ ? formats::JsonNumber(number) : 0;  // 0: it is a number
  }
}

int64_t LeafParser::Count() {
  std::string_view text;
  int64_t value = -1;
  if (!json_->Number(&text)) return -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    json_->Fail("a count of elements before this"_t);
    return -1;
  }
  return value;
}

}  // namespace msprobe::dump
