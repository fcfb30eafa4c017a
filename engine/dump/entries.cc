#include "engine/dump/entries.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/base/text.h"
#include "engine/dump/names.h"

namespace msprobe {
namespace {

// Cuts `path` back when a container is left.
class PathScope {
 public:
  explicit PathScope(std::string* path) : path_(path), size_(path->size()) {}
  ~PathScope() { path_->resize(size_); }
  size_t size() const { return size_; }
  void Index(size_t i) {
    path_->resize(size_);
    *path_ += '.';
    AppendUnsigned(path_, i);
  }
  void Key(JsonText key) {
    path_->resize(size_);
    *path_ += '.';
    AppendJsonText(path_, key);
  }

 private:
  std::string* path_;
  size_t size_;
};

// Keyword arguments that the tables of msprobe give the dtype "int" instead of "<class 'int'>".
bool IsRankKeyword(std::string_view path) {
  const std::string_view key = path.substr(path.rfind('.') + 1);
  return key == "src" || key == "dst" || key == "group_src" || key == "group_dst";
}

}  // namespace

Entries EntryParser::Parse(JsonCursor* json) {
  json_ = json;
  out_ = Entries();
  out_.end = json->offset();
  // A tensor takes 180 to 300 bytes of text, a plain value less. Reserved memory that is not needed
  // is never touched.
  out_.leaves.reserve(json->remaining() / 160 + 16);
  out_.records.reserve(json->remaining() / 1000 + 4);
  out_.stack_keys.reserve(json->remaining() / 1000 + 4);
  JsonText name;
  while (json->NextKeyOrEnd(&name)) {
    const size_t records = out_.records.size(), leaves = out_.leaves.size();
    Entry(name);
    if (json->failed()) {
      out_.records.resize(records);
      out_.leaves.resize(leaves);
      out_.stack_keys.resize(records);
      break;
    }
    out_.end = json->offset();
  }
  return std::move(out_);
}

void EntryParser::Entry(JsonText name) {
  Record record;
  record.name = Text(name);
  const EntryName parsed = ParseEntryName(record.name);
  record.api = parsed.api;
  record.call = parsed.call;
  record.direction = parsed.direction;
  record.is_module = parsed.is_module;
  record.first_leaf = static_cast<uint32_t>(out_.leaves.size());
  out_.records.push_back(record);
  out_.stack_keys.emplace_back();
  path_ = record.name;

  if (parsed.is_debug) {
    Walk(Slot::kDebug);
  } else if (json_->Peek() == 'n') {
    json_->Null();  // an entry without a record
  } else if (parsed.direction == Direction::kParameterGrad) {
    ParameterGrad();
  } else {
    JsonText key;
    for (json_->BeginObject(); json_->NextKey(&key);) {
      if (key.escaped) {
        json_->Skip();
      } else {
        Member(key.raw);
      }
      path_.resize(record.name.size());
    }
  }

  const auto first = out_.leaves.begin() + record.first_leaf;
  const auto by_slot = [](const Leaf& a, const Leaf& b) { return a.slot < b.slot; };
  if (!std::is_sorted(first, out_.leaves.end(), by_slot))
    std::stable_sort(first, out_.leaves.end(), by_slot);
  out_.records.back().leaf_count = static_cast<uint32_t>(out_.leaves.size()) - record.first_leaf;
}

void EntryParser::Member(std::string_view key) {
  if (key == "input_args" || key == "input") {
    path_ += ".input";
    Walk(Slot::kInput);
  } else if (key == "input_kwargs") {
    path_ += ".input";
    Walk(Slot::kKwarg);
  } else if (key == "output") {
    path_ += ".output";
    Walk(Slot::kOutput);
  } else if (key == "parameters") {
    path_ += ".parameters";
    Walk(Slot::kParameter);
  } else if (key == "stack") {
    JsonText text;
    std::string_view number;
    if (json_->Peek() == '"') {
      if (json_->String(&text)) out_.stack_keys.back() = Text(text);
    } else if (json_->Number(&number)) {
      out_.stack_keys.back() = number;
    }
  } else if (key == "exception" && json_->Peek() == '"') {
    JsonText text;
    if (json_->String(&text)) out_.records.back().exception = Text(text);
  } else {
    out_.has_recompute |= key == "is_recompute";
    json_->Skip();  // members of dialects to come
  }
}

void EntryParser::Walk(Slot slot) {
  switch (json_->Peek()) {
    case '[':
      return List(slot);
    case '{':
      return Object(slot);
    case 'n':
      return NoneLeaf(slot);
    default:
      return PlainLeaf(slot);
  }
}

void EntryParser::List(Slot slot) {
  PathScope path(&path_);
  size_t i = 0;
  for (json_->BeginArray(); json_->NextItem(); ++i) {
    path.Index(i);
    Walk(slot);
  }
}

// Either one leaf (it has a "type" whose value is a string) or a dict of values.
void EntryParser::Object(Slot slot) {
  const size_t leaves = out_.leaves.size();
  PathScope path(&path_);
  JsonText key;
  json_->BeginObject();
  const size_t members = json_->offset();
  for (bool first = true; json_->NextKey(&key); first = false) {
    const bool is_type = key == "type";
    if ((is_type || (first && key == "class_type")) && json_->Peek() == '"') {
      // Members are read again from the first: writers put the type first, files need not. (A
      // class_type is looked for in the first place only: reading nested objects twice on every
      // level would never end.)
      out_.leaves.resize(leaves);
      json_->ReopenObject(members);
      path_.resize(path.size());
      return is_type ? LeafObject(slot) : PointToPoint(slot);
    }
    path.Key(key);
    Walk(slot);
  }
}

void EntryParser::ParameterGrad() {
  JsonText key;
  PathScope path(&path_);
  for (json_->BeginObject(); json_->NextKey(&key);) {
    path.Key(key);
    if (json_->Peek() != '[') {
      Walk(Slot::kParameterGrad);
      continue;
    }
    // One gradient in a list of its own: the row has the parameter's name, without an index.
    PathScope items(&path_);
    size_t i = 0;
    for (json_->BeginArray(); json_->NextItem(); ++i) {
      if (i > 0) items.Index(i);
      Walk(Slot::kParameterGrad);
    }
  }
}

Leaf& EntryParser::NewLeaf(Slot slot, LeafKind kind) {
  Leaf& leaf = out_.leaves.emplace_back();
  leaf.record = static_cast<uint32_t>(out_.records.size() - 1);
  leaf.slot = slot;
  leaf.kind = kind;
  return leaf;
}

void EntryParser::NoneLeaf(Slot slot) {
  if (!json_->Null()) return;
  Leaf& leaf = NewLeaf(slot, LeafKind::kNone);
  leaf.name = out_.arena.Copy(path_);
  leaf.dtype = leaf.shape = "N/A";
  leaf.max = leaf.min = leaf.mean = leaf.norm = "null";
}

// A bare value where the tools write {"type", "value"}.
void EntryParser::PlainLeaf(Slot slot) {
  Leaf& leaf = NewLeaf(slot, LeafKind::kScalar);
  leaf.name = out_.arena.Copy(path_);
  Scalar(&leaf);
  leaf.type = leaf.dtype.starts_with("<class '") ? leaf.dtype.substr(8, leaf.dtype.size() - 10)
                                                 : leaf.dtype;
}

void EntryParser::Scalar(Leaf* leaf) {
  leaf->shape = "[]";
  const char c = json_->Peek();
  JsonText text;
  bool flag;
  switch (c) {
    case '"':
      leaf->dtype = "<class 'str'>";
      if (json_->String(&text)) leaf->value = Text(text);
      break;
    case 't':
    case 'f':
      leaf->dtype = "<class 'bool'>";
      if (!json_->Bool(&flag)) return;
      leaf->value = flag ? "True" : "False";
      leaf->max_value = flag;
      leaf->has_stats = true;
      break;
    case 'n':
      leaf->dtype = "<class 'NoneType'>";
      if (json_->Null()) leaf->value = "None";
      break;
    case '[':
    case '{':
      leaf->dtype = c == '[' ? "<class 'list'>" : "<class 'dict'>";
      leaf->value = PythonText();
      break;
    default:
      if (!json_->Number(&leaf->value)) return;
      leaf->dtype = leaf->value.find_first_of(".eENI") == std::string_view::npos
                        ? "<class 'int'>"
                        : "<class 'float'>";
      leaf->max_value = JsonNumber(leaf->value);
      leaf->has_stats = true;
  }
  leaf->max = leaf->min = leaf->mean = leaf->norm = leaf->value;
  leaf->min_value = leaf->mean_value = leaf->norm_value = leaf->max_value;
}

void EntryParser::LeafObject(Slot slot) {
  Leaf leaf;
  leaf.record = static_cast<uint32_t>(out_.records.size() - 1);
  leaf.slot = slot;
  bool has_dtype = false, has_shape = false, has_value = false;
  JsonText key, text;
  std::string_view ranks, format;
  while (json_->NextKey(&key)) {
    const std::string_view k = key.escaped ? std::string_view() : key.raw;
    if (k == "type") {
      if (json_->String(&text)) leaf.type = Text(text);
    } else if (k == "dtype") {
      has_dtype = true;
      if (json_->String(&text)) leaf.dtype = Text(text);
    } else if (k == "shape") {
      has_shape = true;
      leaf.shape = Shape();
    } else if (k == "Max") {
      SetStatistic(&leaf.max, &leaf.max_value);
    } else if (k == "Min") {
      SetStatistic(&leaf.min, &leaf.min_value);
    } else if (k == "Mean") {
      SetStatistic(&leaf.mean, &leaf.mean_value);
    } else if (k == "Norm") {
      SetStatistic(&leaf.norm, &leaf.norm_value);
    } else if (k == "requires_grad") {
      bool flag = false;
      if (json_->Bool(&flag)) leaf.requires_grad = flag ? "True" : "False";
    } else if (k == "value" && !has_value) {
      has_value = true;
      const std::string_view dtype = leaf.dtype, shape = leaf.shape;
      Scalar(&leaf);
      if (has_dtype) leaf.dtype = dtype;
      if (has_shape) leaf.shape = shape;
    } else if (k == "md5") {
      if (json_->Peek() == 'n') {
        json_->Null();
      } else if (json_->Peek() == '"') {
        if (json_->String(&text)) leaf.md5 = Text(text);
      } else {
        json_->Number(&leaf.md5);  // 0-d tensors under xor: the value itself
      }
    } else if (k == "fingerprint") {
      if (json_->String(&text)) leaf.fingerprint = Text(text);
    } else if (k == "data_name") {
      if (json_->String(&text)) SetDataName(&leaf, text);
    } else if (k == "nan") {
      leaf.nan_count = Count();
    } else if (k == "pos_inf") {
      leaf.pos_inf_count = Count();
    } else if (k == "neg_inf") {
      leaf.neg_inf_count = Count();
    } else if (k == "zero") {
      leaf.zero_count = Count();
    } else if (k == "group_ranks") {
      ranks = PythonText();
    } else if (k == "format" && json_->Peek() == '"') {
      if (json_->String(&text)) format = Text(text);
    } else {
      json_->Skip();
    }
  }
  if (json_->failed()) return;

  if (has_dtype && has_shape) {
    leaf.kind = LeafKind::kTensor;
    leaf.has_stats = !std::isnan(leaf.max_value) || leaf.max == "NaN";
    if (options_.counts_zeros && leaf.has_stats) {
      for (int64_t* count :
           {&leaf.nan_count, &leaf.pos_inf_count, &leaf.neg_inf_count, &leaf.zero_count}) {
        *count = std::max<int64_t>(*count, 0);
      }
    }
  } else {
    leaf.kind = LeafKind::kScalar;
    if (!ranks.empty()) {
      leaf.dtype = leaf.type;
      leaf.shape = "[]";
      leaf.value = leaf.max = leaf.min = leaf.mean = leaf.norm = ranks;
    } else if (leaf.type == "torch.Size") {
      leaf.dtype = leaf.type;
      leaf.shape = leaf.value;
      leaf.max = leaf.min = leaf.mean = leaf.norm = "null";
    } else if (leaf.type == "slice" || leaf.type == "ellipsis") {
      leaf.dtype = leaf.type;
      leaf.shape = leaf.type == "slice" ? "(3,)" : "[]";
    } else if (!has_value) {
      leaf.dtype = "<class 'NoneType'>";
      leaf.shape = "[]";
      leaf.max = leaf.min = leaf.mean = leaf.norm = "None";
      leaf.value = format;  // torch.memory_format: the tables say None, the value is known
    } else if (leaf.type == "int" && IsRankKeyword(path_)) {
      leaf.dtype = leaf.type;
    }
  }
  // "Functional.linear.0.forward.input.0.pt": the name without its extension.
  const bool file_named =
      options_.names_from_files && !leaf.data_name.empty() && leaf.data_name != "-1";
  leaf.name =
      file_named ? leaf.data_name.substr(0, leaf.data_name.rfind('.')) : out_.arena.Copy(path_);
  out_.has_md5 |= !leaf.md5.empty();
  out_.leaves.push_back(leaf);
}

// {"class_type": "torch.distributed.P2POp", "tensor": {...}, "op": "isend", "peer": 1, ...}: the
// tensor's row has the value's own name, the rest follows under it.
void EntryParser::PointToPoint(Slot slot) {
  JsonText key;
  PathScope path(&path_);
  while (json_->NextKey(&key)) {
    if (key == "class_type") {
      json_->Skip();
    } else if (key == "tensor") {
      path_.resize(path.size());
      Walk(slot);
    } else {
      path.Key(key);
      Walk(slot);
    }
  }
}

void EntryParser::SetStatistic(std::string_view* text, double* value) {
  JsonText string;
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
      *value = JsonNumber(*text);
      break;
    default:
      if (json_->Number(text)) *value = JsonNumber(*text);
  }
}

void EntryParser::SetDataName(Leaf* leaf, JsonText text) {
  leaf->data_name = Text(text);
  // It will be opened below the tensor folder: no way out of it.
  if (leaf->data_name.find_first_of(std::string_view("/\0", 2)) != std::string_view::npos ||
      leaf->data_name == ".." || leaf->data_name == ".") {
    json_->Fail("the name of a tensor file, without a folder, before this");
  }
}

int64_t EntryParser::Count() {
  std::string_view text;
  int64_t value = -1;
  if (!json_->Number(&text)) return -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    json_->Fail("a count of elements before this");
    return -1;
  }
  return value;
}

std::string_view EntryParser::Text(JsonText text) {
  if (!text.escaped) return text.raw;
  scratch_.clear();
  AppendJsonText(&scratch_, text);
  return out_.arena.Copy(scratch_);
}

// The file's own spelling when it is already "[2, 3]"; otherwise (indented files) put together
// anew.
std::string_view EntryParser::Shape() {
  if (json_->Peek() != '[') {
    JsonText text;
    return json_->String(&text) ? Text(text) : std::string_view();
  }
  const size_t start = json_->offset();
  scratch_.assign(1, '[');
  std::string_view number;
  for (json_->BeginArray(); json_->NextItem();) {
    if (!json_->Number(&number)) return {};
    if (scratch_.size() > 1) scratch_ += ", ";
    scratch_ += number;
  }
  scratch_ += ']';
  const std::string_view raw = json_->Since(start);
  return raw == scratch_ ? raw : out_.arena.Copy(scratch_);
}

std::string_view EntryParser::PythonText() {
  scratch_.clear();
  AppendPython();
  return out_.arena.Copy(scratch_);
}

// As Python prints the value: [0, None, 2].
void EntryParser::AppendPython() {
  JsonText text;
  std::string_view number;
  bool flag;
  switch (json_->Peek()) {
    case '[': {
      scratch_ += '[';
      const size_t start = scratch_.size();
      for (json_->BeginArray(); json_->NextItem();) {
        if (scratch_.size() > start) scratch_ += ", ";
        AppendPython();
      }
      scratch_ += ']';
      break;
    }
    case '{': {
      scratch_ += '{';
      const size_t start = scratch_.size();
      for (json_->BeginObject(); json_->NextKey(&text);) {
        if (scratch_.size() > start) scratch_ += ", ";
        scratch_ += '\'';
        AppendJsonText(&scratch_, text);
        scratch_ += "': ";
        AppendPython();
      }
      scratch_ += '}';
      break;
    }
    case '"':
      if (!json_->String(&text)) return;
      scratch_ += '\'';
      AppendJsonText(&scratch_, text);
      scratch_ += '\'';
      break;
    case 't':
    case 'f':
      if (json_->Bool(&flag)) scratch_ += flag ? "True" : "False";
      break;
    case 'n':
      if (json_->Null()) scratch_ += "None";
      break;
    default:
      if (json_->Number(&number)) scratch_ += number;
  }
}

}  // namespace msprobe
