#include "engine/dump/pkl/pkl_values.h"

#include <algorithm>
#include <cmath>

#include "engine/base/messages/message.h"

namespace msprobe::dump {
namespace {

constexpr size_t kSampleElements = 10, kSampleStatistics = 3;

// ["/w/net.py", "18", "forward", "y = relu(x)"]; the source may be null.
bool ReadFrame(formats::JsonCursor* json, TextArena* arena, std::string_view* frame) {
  std::string parts[4];
  formats::JsonText text;
  std::string_view number;
  size_t i = 0;
  for (json->BeginArray(); json->NextItem(); ++i) {
    if (i >= 4) {
      json->Skip();
    } else if (json->Peek() == '"') {
      if (json->String(&text)) formats::AppendJsonText(&parts[i], text);
    } else if (json->Peek() == 'n') {
      json->Null();
    } else if (json->Number(&number)) {
      parts[i] = number;
    }
  }
  if (json->failed()) return false;
  *frame = arena->Copy("File " + parts[0] + ", line " + parts[1] + ", in " + parts[2] + ", \n " +
                       parts[3]);
  return true;
}

// Reads a list of frames, or a text. In the lines that a defect of ptdbg_ascend 0.1 adds (a single
// frame, a part of a frame) there are no frames: these are skipped.
void ReadStack(formats::JsonCursor* json, TextArena* arena, PklValues* line) {
  formats::JsonText text;
  if (json->Peek() == '"') {
    line->is_text = true;
    if (json->String(&text)) line->frames.push_back(arena->Decode(text));
    return;
  }
  std::string_view frame;
  for (json->BeginArray(); json->NextItem();) {
    if (json->Peek() == '[') {
      if (ReadFrame(json, arena, &frame)) line->frames.push_back(frame);
    } else {
      json->Skip();
    }
  }
}

// One of [max, min, mean]: as spelled; bools as Python prints them; "" for the text "Nan" that
// stands for "not computed".
void ReadStatistic(formats::JsonCursor* json, bool scalar, TextArena* arena, PklValues* line) {
  formats::JsonText text;
  bool flag = false;
  std::string_view value;
  switch (json->Peek()) {
    case '"':
      if (json->String(&text) && scalar) value = arena->Decode(text);
      break;
    case 't':
    case 'f':
      if (json->Bool(&flag)) value = flag ? "True" : "False";
      break;
    case 'n':
      if (json->Null() && scalar) value = "None";
      break;
    case '[':
    case '{':
      json->Skip();
      break;
    default:
      json->Number(&value);
  }
  if (!json->failed() && line->statistics.size() < 4) line->statistics.push_back(value);
}

// "[2, 3]": one space after each comma, also where the file has none or several.
std::string_view ReadShape(formats::JsonCursor* json, TextArena* arena) {
  const size_t start = (json->Peek(), json->offset());
  std::string text = "[";
  std::string_view number;
  for (json->BeginArray(); json->NextItem();) {
    if (!json->Number(&number)) return {};
    if (text.size() > 1) text += ", ";
    text += number;
  }
  if (json->failed()) return {};
  text += ']';
  const std::string_view raw = json->Since(start);
  return raw == text ? raw : arena->Copy(text);
}

// The numbers of "[1.5, NaN]"; empty for anything else.
std::vector<std::string_view> Numbers(std::string_view list) {
  std::vector<std::string_view> numbers;
  formats::JsonCursor json(list);
  for (json.BeginArray(); json.NextItem();) {
    std::string_view number;
    if (!json.Number(&number)) return {};
    numbers.push_back(number);
  }
  return numbers;
}

double ValueOf(std::string_view text) {
  return text == "True" ? 1 : text == "False" ? 0 : formats::JsonNumber(text);
}

bool SkipRest(formats::JsonCursor* json) {
  while (json->NextItem()) json->Skip();
  return !json->failed();
}

// The second value of a tensor's line: its elements, or the step and then the digest.
bool ReadElementsOrStep(formats::JsonCursor* json, TextArena* arena, PklValues* line) {
  formats::JsonText text;
  std::string_view number;
  if (json->Peek() == '[') {
    line->is_listed = true;
    json->Raw(&line->listed);
  } else if (json->Number(&number)) {
    line->step = static_cast<int64_t>(std::clamp(formats::JsonNumber(number), 0.0, 1e6));
    if (!json->NextItem()) return json->failed() ? false : json->Fail("more values before this"_t);
    if (json->Peek() == '"') {
      if (json->String(&text)) line->digest = arena->Decode(text);
    } else {
      json->Skip();
    }
  }
  return true;
}

// The others: dtype, shape, statistics, and what a later tool may add.
bool ReadTensor(formats::JsonCursor* json, TextArena* arena, PklValues* line) {
  formats::JsonText text;
  if (!json->NextItem() || !json->String(&text)) {
    return json->failed() ? false : json->Fail("a dtype before this"_t);
  }
  line->dtype = arena->Decode(text);
  if (!json->NextItem()) return json->failed() ? false : json->Fail("a shape before this"_t);
  if (json->Peek() == '"') {
    line->is_scalar = true;
    if (json->String(&text)) line->shape = arena->Decode(text);
  } else {
    line->shape = ReadShape(json, arena);
  }
  if (json->failed()) return false;
  if (!json->NextItem()) return !json->failed();
  line->has_statistics = true;
  if (json->Peek() == '[') {
    for (json->BeginArray(); json->NextItem();) ReadStatistic(json, line->is_scalar, arena, line);
  } else {
    json->Skip();
  }
  return SkipRest(json);
}

}  // namespace

bool ReadPklValues(formats::JsonCursor* json, TextArena* arena, PklValues* line) {
  formats::JsonText text;
  if (!json->BeginArray() || !json->NextItem() || !json->String(&text)) return false;
  line->name = arena->Decode(text);
  if (!json->NextItem())
    return !json->failed() && json->Fail("values after the name, before this"_t);
  if (line->name.find("stack_info") != line->name.npos) {
    const size_t start = (json->Peek(), json->offset());
    ReadStack(json, arena, line);
    line->stack = json->Since(start);
    return SkipRest(json);
  }
  return ReadElementsOrStep(json, arena, line) && ReadTensor(json, arena, line);
}

bool PklWalker::Next() {
  begin_ = text_.find_first_not_of(" \r\n\t", end_);
  bad_ = unfinished_ = false;
  if (begin_ == text_.npos) return false;
  if (arena_ == nullptr) own_ = TextArena();
  values_ = PklValues();
  json_ = formats::JsonCursor(text_, begin_);
  if (ReadPklValues(&json_, arena_ != nullptr ? arena_ : &own_, &values_)) {
    end_ = json_.offset();
    return true;
  }
  bad_ = true;
  const size_t newline = text_.find('\n', json_.offset());
  unfinished_ = newline == text_.npos;
  end_ = unfinished_ ? text_.size() : newline + 1;
  return true;
}

int64_t PklWalker::LineNumber() const {
  return 1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(begin_), '\n');
}

void FillLeaf(const PklValues& line, ShapePool* shapes, Leaf* leaf) {
  TextRef Leaf::*const texts[] = {&Leaf::max, &Leaf::min, &Leaf::mean, &Leaf::norm};
  double Leaf::*const values[] = {&Leaf::max_value, &Leaf::min_value, &Leaf::mean_value,
                                  &Leaf::norm_value};
  leaf->dtype = line.dtype;
  leaf->shape = shapes->Of(line.shape);
  leaf->checksum = line.digest;
  leaf->value = line.listed;
  leaf->type = "torch.Tensor";
  const auto& statistics = line.statistics;
  if (line.is_scalar) {
    leaf->kind = LeafKind::kScalar;
    leaf->type = leaf->dtype.class_name();
    leaf->value = statistics.empty() ? std::string_view() : statistics[0];
    for (int i = 0; i < 4; ++i) {
      leaf->*texts[i] = leaf->value;
      leaf->*values[i] = ValueOf(leaf->value);
    }
    leaf->has_stats = !std::isnan(leaf->max_value) || leaf->value == "NaN";
    return;
  }
  for (size_t i = 0; i < statistics.size() && i < 4; ++i) {
    leaf->*texts[i] = statistics[i];
    leaf->*values[i] = ValueOf(statistics[i]);
  }
  leaf->has_stats = !std::isnan(leaf->max_value) || leaf->max == "NaN";
}

ListForm FormOfList(const Leaf& leaf) {
  const int64_t elements = leaf.shape.elements();
  if (leaf.value.empty() || elements < 0) return ListForm::kOther;
  const auto listed = static_cast<int64_t>(Numbers(leaf.value).size());
  const int64_t sample =
      std::min<int64_t>(elements, kSampleElements) + static_cast<int64_t>(kSampleStatistics);
  if (listed == elements) return listed == sample ? ListForm::kEither : ListForm::kAll;
  return listed == sample ? ListForm::kSample : ListForm::kOther;
}

void TakeStatisticsFromList(Leaf* leaf) {
  const std::vector<std::string_view> numbers = Numbers(leaf->value);
  if (numbers.size() < kSampleStatistics) return;
  const auto last = numbers.end() - kSampleStatistics;
  leaf->max = last[0], leaf->min = last[1], leaf->mean = last[2];
  leaf->max_value = formats::JsonNumber(last[0]);
  leaf->min_value = formats::JsonNumber(last[1]);
  leaf->mean_value = formats::JsonNumber(last[2]);
  leaf->has_stats = true;
}

}  // namespace msprobe::dump
