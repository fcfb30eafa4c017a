#include "engine/dump/read/entries.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/base/text.h"
#include "engine/dump/read/python_text.h"
#include "engine/model/names.h"
#include "engine/model/precision_text.h"

namespace msprobe::dump {
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
  void Key(formats::JsonText key) {
    path_->resize(size_);
    *path_ += '.';
    formats::AppendJsonText(path_, key);
  }

 private:
  std::string* path_;
  size_t size_;
};

}  // namespace

Entries EntryParser::Parse(formats::JsonCursor* json, Entries room, const Check& check) {
  json_ = json;
  out_ = std::move(room);
  size_t next_check = kBetweenChecks;
  const size_t begin = json->offset();
  out_.Clear();
  out_.end = json->offset();
  leaves_.Begin(json, &out_);
  apis_ = {};
  // A tensor takes 180 to 300 bytes of text, a plain value less. Reserved memory that is not needed
  // is never touched.
  out_.leaves.reserve(json->remaining() / 160 + 16);
  out_.records.reserve(json->remaining() / 1000 + 4);
  out_.stack_keys.reserve(json->remaining() / 1000 + 4);
  formats::JsonText name;
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
    if (check && out_.leaves.size() >= next_check) {
      // The rest is expected to be like the part that was read: room is reserved for it now.
      if (next_check == kBetweenChecks) {
        const double more =
            static_cast<double>(json->remaining()) / static_cast<double>(json->offset() - begin);
        out_.leaves.reserve(
            static_cast<size_t>(static_cast<double>(out_.leaves.size()) * (1 + 1.03 * more)));
      }
      next_check = out_.leaves.size() + kBetweenChecks;
      out_.full = check(out_);
      if (!out_.full.ok()) break;
    }
  }
  return std::move(out_);
}

void EntryParser::Entry(formats::JsonText name) {
  Record record;
  // Names and keys of stacks are looked up many times. Copies are used, so that the pages of the
  // file need not stay in memory for that.
  record.name = out_.arena.Copy(Text(name));
  const EntryName parsed = ParseEntryName(record.name);
  record.api = KnownApi(parsed.api);
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
    formats::JsonText key;
    for (json_->BeginObject(); json_->NextKey(&key);) {
      if (key.escaped) {
        json_->Skip();
      } else {
        Member(key.raw);
      }
      path_.resize(record.name.size());
    }
  }

  SortBySlot(record.first_leaf);
  out_.records.back().leaf_count = static_cast<uint32_t>(out_.leaves.size()) - record.first_leaf;
}

// Files have the parameters of a module after its output; what few leaves have goes with its leaf.
void EntryParser::SortBySlot(uint32_t first) {
  const auto begin = out_.leaves.begin() + first;
  const auto by_slot = [](const Leaf& a, const Leaf& b) { return a.slot < b.slot; };
  if (std::is_sorted(begin, out_.leaves.end(), by_slot)) return;
  std::vector<uint32_t> order(out_.leaves.size() -
                              first);  // of each place: the leaf that goes there
  std::iota(order.begin(), order.end(), first);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return by_slot(out_.leaves[a], out_.leaves[b]); });
  std::vector<Leaf> sorted;
  std::vector<uint32_t> place(order.size());
  sorted.reserve(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    sorted.push_back(out_.leaves[order[i]]);
    place[order[i] - first] = first + static_cast<uint32_t>(i);
  }
  std::move(sorted.begin(), sorted.end(), begin);
  const auto follow = [&](auto* items) {
    const auto by_leaf = [](const auto& a, const auto& b) { return a.leaf < b.leaf; };
    const auto mine =
        std::lower_bound(items->begin(), items->end(), first,
                         [](const auto& item, uint32_t leaf) { return item.leaf < leaf; });
    for (auto item = mine; item != items->end(); ++item) item->leaf = place[item->leaf - first];
    std::sort(mine, items->end(), by_leaf);
  };
  for (LeafTexts* texts : {&out_.unwritten, &out_.unreadable, &out_.strides, &out_.sketches})
    follow(texts);
  follow(&out_.rests);
  follow(&out_.shards);
}

std::string_view EntryParser::KnownApi(std::string_view api) {
  std::string_view& known = apis_[std::hash<std::string_view>()(api) % apis_.size()];
  if (known != api) known = api;
  return known;
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
  } else if (key == "changed") {
    path_ += ".changed";
    Walk(Slot::kOutput);
  } else if (key == "parameters") {
    path_ += ".parameters";
    Walk(Slot::kParameter);
  } else if (key == "stack") {
    StackKey();
  } else if (key == "exception" && json_->Peek() == '"') {
    formats::JsonText text;
    if (json_->String(&text)) out_.records.back().exception = Text(text);
  } else if (key == "training") {
    Training();
  } else if (key == "random_state" && json_->Peek() == '"') {
    ReadText(&out_.random_draws);
  } else if (key == kPrecision && json_->Peek() == '"') {
    ReadText(&out_.precisions);
  } else if (key == "module" && json_->Peek() == '"') {
    formats::JsonText text;
    if (json_->String(&text)) out_.records.back().module = Text(text);
  } else if (key == "group" && json_->Peek() == '{') {
    ReadGroup();
  } else {
    out_.has_recompute |= key == "is_recompute";
    json_->Skip();  // a member of a future dialect
  }
}

void EntryParser::Training() {
  const char first = json_->Peek();
  if (first == 't') out_.records.back().training = Record::Mode::kTrain;
  if (first == 'f') out_.records.back().training = Record::Mode::kEval;
  json_->Skip();
}

void EntryParser::StackKey() {
  formats::JsonText text;
  std::string_view number;
  if (json_->Peek() == '"') {
    if (json_->String(&text)) out_.stack_keys.back() = out_.arena.Copy(Text(text));
  } else if (json_->Number(&number)) {
    out_.stack_keys.back() = out_.arena.Copy(number);
  }
}

void EntryParser::ReadText(RecordTexts* texts) {
  formats::JsonText text;
  if (!json_->String(&text)) return;
  const std::string_view read = Text(text);
  // Many calls one after another have the same policy.
  const bool again = !texts->empty() && texts->back().text == read;
  texts->push_back({static_cast<uint32_t>(out_.records.size() - 1),
                    again ? texts->back().text : out_.arena.Copy(read)});
}

static ProcessGroup::Role RoleNamed(const formats::JsonText& text) {
  if (text == "source") return ProcessGroup::Role::kSource;
  return text == "receiver" ? ProcessGroup::Role::kReceiver : ProcessGroup::Role::kNone;
}

// {"ranks": [0, 1], "id": "77849d8c", "rank": 1, "role": "receiver", "from": 0}
void EntryParser::ReadGroup() {
  ProcessGroup group;
  formats::JsonText key, text;
  std::string_view number;
  const auto read_number = [&](int32_t* out) {
    if (!json_->Number(&number)) return;
    const int64_t value = NumberAfter(number, "");
    if (value >= 0 && value <= INT32_MAX) *out = static_cast<int32_t>(value);
  };
  for (json_->BeginObject(); json_->NextKey(&key);) {
    const char next = json_->Peek();
    if (key == "ranks" && next == '[') {
      std::string ranks;
      AppendListText(json_, &ranks);
      group.ranks = out_.arena.Copy(ranks);
    } else if (key == "role" && next == '"') {
      if (json_->String(&text)) group.role = RoleNamed(text);
    } else if (key == "rank" && next != '"') {
      read_number(&group.place);
    } else if ((key == "from" || key == "to") && next != '"') {
      read_number(&group.peer);
    } else {
      json_->Skip();
    }
  }
  out_.records.back().group = static_cast<int32_t>(out_.groups.size());
  out_.groups.push_back(group);
}

void EntryParser::Walk(Slot slot) {
  switch (json_->Peek()) {
    case '[':
      return List(slot);
    case '{':
      return Object(slot);
    case 'n':
      return leaves_.ReadNone(path_, NewLeaf(slot));
    default:
      return leaves_.ReadPlain(path_, NewLeaf(slot));
  }
}

Leaf* EntryParser::NewLeaf(Slot slot) {
  Leaf& leaf = out_.leaves.emplace_back();
  leaf.record = static_cast<uint32_t>(out_.records.size() - 1);
  leaf.slot = slot;
  return &leaf;
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
  formats::JsonText key;
  json_->BeginObject();
  const size_t members = json_->offset();
  for (bool first = true; json_->NextKey(&key); first = false) {
    const bool is_type = key == "type";
    if ((is_type || (first && key == "class_type")) && json_->Peek() == '"') {
      // The members before "type" were read as values of a dict: they are dropped and read again as
      // members of a leaf. The tools write "type" first, but other files may not. "class_type"
      // counts as the first member only: with objects in objects, reading twice on each of n levels
      // would take 2^n steps.
      out_.leaves.resize(leaves);
      json_->ReopenObject(members);
      path_.resize(path.size());
      return is_type ? leaves_.ReadObject(path_, NewLeaf(slot)) : PointToPoint(slot);
    }
    path.Key(key);
    Walk(slot);
  }
}

void EntryParser::ParameterGrad() {
  formats::JsonText key;
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

// {"class_type": "torch.distributed.P2POp", "tensor": {...}, "op": "isend", "peer": 1, ...}: the
// tensor's row has the value's own name, the rest follows under it.
void EntryParser::PointToPoint(Slot slot) {
  formats::JsonText key;
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

}  // namespace msprobe::dump
