#include "engine/compare/judge/operation_facts.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <span>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/compare/model/record_keys.h"
#include "engine/formats/text/yaml_file.h"
#include "engine/model/names.h"

namespace msprobe::compare {

extern const char* const kOperations;  // operations.yaml, made into a text by CMake

namespace {

constexpr std::array<std::pair<const char*, OperationClass>, 9> kClasses = {{
    {"keeps", OperationClass::kKeeps},
    {"takes", OperationClass::kTakes},
    {"elementwise", OperationClass::kElementwise},
    {"scaling", OperationClass::kScaling},
    {"sum", OperationClass::kSum},
    {"reduction", OperationClass::kReduction},
    {"contraction", OperationClass::kContraction},
    {"normalisation", OperationClass::kNormalisation},
    {"exponential", OperationClass::kExponential},
}};

// Whether one of the words, which are in lower case, occurs in the name.
bool MentionsAny(std::string_view name, const std::vector<std::string>& words) {
  const std::string lower = Lower(name);
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return lower.find(word) != std::string::npos;
  });
}

constexpr std::array<std::string_view, 17> kSections = {
    "classes",        "means",          "in_place",      "alone",     "linear",
    "movements",      "buffers",        "kinks",         "softmax",   "lipschitz",
    "exponentiates",  "other_kernels",  "sums_products", "amplifies", "accumulates",
    "looks_at_first", "looks_at_others"};

}  // namespace

// Reads one YAML document into a table.
class OperationReader {
 public:
  OperationReader(std::string_view path, OperationTable* table) : path_(path), table_(*table) {}

  Status Run(const YAML::Node& root) {
    if (root.IsNull()) return Status::Ok();
    if (!root.IsMap()) return Wrong(root, "sections, such as classes"_t);
    for (const auto& section : root) {
      const std::string name = section.first.IsScalar() ? section.first.Scalar() : "";
      if (std::ranges::find(kSections, name) == kSections.end())
        return Unknown(section.first, kSections);
      MSPROBE_RETURN_IF_ERROR(name == "classes" ? Classes(section.second)
                                                : Names(name, section.second));
    }
    return Status::Ok();
  }

 private:
  Status Wrong(const YAML::Node& node, Message expected) const {
    return formats::WrongYaml(path_, node, std::move(expected));
  }

  Status Unknown(const YAML::Node& node, std::span<const std::string_view> known) const {
    return formats::UnknownYaml(path_, node, known);
  }

  Status Each(const YAML::Node& list,
              const std::function<Status(const YAML::Node&, const std::string&)>& use) const {
    constexpr size_t kLongestName = 200;
    if (list.IsNull()) return Status::Ok();
    if (!list.IsSequence()) return Wrong(list, "a list of names"_t);
    for (const YAML::Node& item : list) {
      if (!item.IsScalar() || item.Scalar().empty() || item.Scalar().size() > kLongestName ||
          item.Scalar().find_first_of(" .\t\n") != std::string::npos)
        return Wrong(item, "the last part of a name, such as layer_norm or LayerNorm"_t);
      MSPROBE_RETURN_IF_ERROR(use(item, item.Scalar()));
    }
    return Status::Ok();
  }

  Status Classes(const YAML::Node& classes) {
    if (!classes.IsMap()) return Wrong(classes, "classes, each with a list of names"_t);
    std::array<std::string_view, kClasses.size()> known;
    for (size_t i = 0; i < known.size(); ++i) known[i] = kClasses[i].first;
    for (const auto& entry : classes) {
      const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
      const auto found = std::ranges::find(known, name);
      if (found == known.end()) return Unknown(entry.first, known);
      const OperationClass kind = kClasses[static_cast<size_t>(found - known.begin())].second;
      const auto classify = [&](const YAML::Node& item, const std::string& operation) {
        OperationFacts* row = RowOf(operation);
        if (row->kind != OperationClass::kUnknown && row->kind != kind)
          return Wrong(item, "each name in one class"_t);
        row->kind = kind;
        return Status::Ok();
      };
      MSPROBE_RETURN_IF_ERROR(Each(entry.second, classify));
    }
    return Status::Ok();
  }

  Status Names(const std::string& section, const YAML::Node& list) {
    static constexpr std::pair<std::string_view, bool OperationFacts::*> kFacts[] = {
        {"means", &OperationFacts::is_mean},
        {"buffers", &OperationFacts::buffers},
        {"exponentiates", &OperationFacts::exponentiates},
        {"accumulates", &OperationFacts::accumulates},
        {"kinks", &OperationFacts::kinks},
        {"lipschitz", &OperationFacts::lipschitz},
        {"softmax", &OperationFacts::softmax},
        {"other_kernels", &OperationFacts::other_kernels},
        {"looks_at_first", &OperationFacts::looks_at_first},
        {"looks_at_others", &OperationFacts::looks_at_others}};
    const auto fact =
        std::ranges::find(kFacts, std::string_view(section),
                          &std::pair<std::string_view, bool OperationFacts::*>::first);
    return Each(list, [&](const YAML::Node&, const std::string& name) {
      if (fact != std::end(kFacts)) RowOf(name)->*fact->second = true;
      if (section == "alone") OptimizerOf(name)->alone = true;
      if (section == "linear") OptimizerOf(name)->linear = true;
      if (section == "in_place") table_.writes_.insert(name);
      if (section == "movements") table_.movements_.insert(name);
      if (section == "sums_products") table_.sums_products_.push_back(Lower(name));
      if (section == "amplifies") table_.amplifies_.push_back(Lower(name));
      return Status::Ok();
    });
  }

  // The row of a name, which this document makes anew.
  OperationFacts* RowOf(const std::string& name) {
    OperationFacts& row = table_.rows_[name];
    if (operations_.insert(name).second) row = {};
    return &row;
  }
  OperationFacts* OptimizerOf(const std::string& name) {
    OperationFacts& row = table_.optimizers_[name];
    if (optimizers_.insert(name).second) row = {};
    return &row;
  }

  const std::string path_;
  OperationTable& table_;
  std::unordered_set<std::string> operations_, optimizers_;
};

bool IsOfLists(std::string_view api) { return api.starts_with("Torch._foreach_"); }

OperationTable::OperationTable() {
  for (size_t i = 0; i < unknown_.size(); ++i) {
    unknown_[i].draws = (i & 1) != 0;
    unknown_[i].in_place = (i & 2) != 0;
    unknown_[i].sums_products = (i & 4) != 0;
    unknown_[i].amplifies = (i & 8) != 0;
  }
  function_.opaque = true;
  exchange_.exchanges = true;
}

// The flags that the name of an operation adds to its row.
void OperationTable::Finish() {
  in_place_.clear();
  for (auto& [name, facts] : rows_) {
    facts.draws = DrawsRandomNumbers(name);
    facts.sums_products =
        facts.kind == OperationClass::kContraction || MentionsAny(name, sums_products_);
    facts.amplifies = MentionsAny(name, amplifies_);
    OperationFacts& in_place = in_place_[name] = facts;
    in_place.in_place = true;
  }
}

const OperationTable& OperationTable::Shipped() {
  static const OperationTable table = [] {
    OperationTable made;
    const Status status = OperationReader("operations.yaml", &made).Run(YAML::Load(kOperations));
    if (!status.ok()) std::abort();  // cannot happen: the file is part of the program, and tested
    made.Finish();
    return made;
  }();
  return table;
}

Result<OperationTable> OperationTable::Parse(std::string_view text, std::string_view path) {
  OperationTable table = Shipped();
  try {
    MSPROBE_RETURN_IF_ERROR(OperationReader(path, &table).Run(YAML::Load(std::string(text))));
  } catch (const YAML::Exception& error) {
    return formats::WrongYaml(std::string(path), error.mark, std::string("YAML")).Found(error.msg);
  }
  table.Finish();
  return table;
}

Result<OperationTable> OperationTable::Read(const std::string& path) {
  constexpr size_t kMaxBytes = 1 << 20;
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > kMaxBytes)
    return InvalidConfig(path).Expected("a file of at most 1 MiB"_t);
  return Parse(file.bytes(), path);
}

const OperationFacts& OperationTable::Of(std::string_view api) const {
  if (api.starts_with("Function.")) return function_;
  if (api.starts_with("Distributed.")) return exchange_;
  if (api.starts_with("Optimizer.")) {  // "Optimizer.AdamW.step"
    const std::string_view named = api.substr(api.find('.') + 1);
    const auto row = optimizers_.find(std::string(named.substr(0, named.find('.'))));
    return row == optimizers_.end() ? unknown_[0] : row->second;
  }
  std::string base(BaseApi(api));
  if (IsOfLists(api)) base.erase(0, base.find('_') + 1);  // "foreach_mul"
  const std::string_view last = api.substr(api.rfind('.') + 1);
  const bool in_place = !api.starts_with("Module.") && last.ends_with('_') &&
                        (!last.ends_with("__") || writes_.count(base) > 0);
  const auto& rows = in_place ? in_place_ : rows_;
  if (const auto row = rows.find(base); row != rows.end()) return row->second;
  return unknown_[(DrawsRandomNumbers(base) ? 1 : 0) | (in_place ? 2 : 0) |
                  (MentionsAny(base, sums_products_) ? 4 : 0) |
                  (MentionsAny(base, amplifies_) ? 8 : 0)];
}

}  // namespace msprobe::compare
