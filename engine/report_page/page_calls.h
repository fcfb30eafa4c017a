// The calls of a page as columns: what its table shows of each call, and what it sorts and filters
// by. Names, dtypes, shapes, modules and stacks are numbers of texts, each of which is kept once.
//
//   CallColumns calls;
//   calls.Add({.record = &record, .module = calls.modules.Of(record.parent)});
//   calls.AppendTo("p0", &html);
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/model/table.h"
#include "engine/report_page/page_data.h"

namespace msprobe::report_page {

// Gives each text a number, from 0. The texts must outlive the index.
class TextNumbers {
 public:
  uint32_t Of(std::string_view text);
  const std::vector<std::string_view>& texts() const { return texts_; }

 private:
  std::unordered_map<std::string_view, uint32_t> numbers_;
  std::vector<std::string_view> texts_;
};

// The tree of modules: node 0 is the model, a node's parent has a smaller number.
class ModuleTree {
 public:
  // The node of a module's entry ("Module.layers.3.mlp.LlamaMLP.forward.0" or the same without
  // direction and number): layers > 3 > mlp. "" and other names: 0.
  uint32_t Of(std::string_view entry_name);
  const std::vector<uint32_t>& parents() const { return parents_; }
  const std::vector<std::string>& labels() const { return labels_; }    // "mlp"
  const std::vector<std::string>& classes() const { return classes_; }  // "LlamaMLP", or ""

 private:
  uint32_t Child(uint32_t parent, std::string_view label);
  std::vector<uint32_t> parents_{0};
  std::vector<std::string> labels_{""}, classes_{""};
  std::unordered_map<std::string_view, uint32_t> by_api_;
  std::unordered_map<std::string, uint32_t> children_;  // "<parent>.<label>" -> node
};

// Stacks, each kept once, with the lines around each place where the source file is there.
class StackTexts {
 public:
  // `frames` must outlive this; the same frames are the same stack.
  uint32_t Of(const std::vector<std::string_view>* frames);
  // {"frames": [[path, line, function, source, [first line, text, ...]?], ...], "stacks": [[0, 1]],
  // "places": [[the program's line, the line that called it], ...]}: a place for each stack.
  std::string Json() const;

 private:
  std::unordered_map<const void*, uint32_t> numbers_;
  std::vector<const std::vector<std::string_view>*> stacks_;
};

inline constexpr uint32_t kNoNumber = 0xffffffff;

enum class Sides : uint8_t { kBoth, kTargetOnly, kGoldenOnly, kOne };

struct CallColumns {
  struct Call {
    const Record* record = nullptr;
    const Record* partner = nullptr;  // in the golden, where its name is another one
    uint8_t call_class = 0;           // index into the classes of the page
    Sides sides = Sides::kOne;
    uint32_t module = 0, stack = kNoNumber;
    const Leaf* shown = nullptr;  // whose dtype and shape stand in the table
    float size = 0;               // what the curve shows; NaN: there is no such number
  };
  void Reserve(size_t calls);
  void Add(const Call& call);
  size_t count() const { return call_class.size(); }
  void AppendTo(std::string_view part, PageText* html) const;

  std::vector<uint8_t> call_class, form, sides;
  std::vector<uint32_t> name, number, module, stack, dtype, shape;
  std::vector<float> size;
  // 1: the call is part of a rewrite. Empty: no call is.
  std::vector<uint8_t> rewritten;
  // Of each call the number of its region (compare/regions), from 1; 0: none. Empty: there are
  // none.
  std::vector<uint32_t> region;
  // Empty while no call has another name in the golden. kNoNumber: the same name.
  std::vector<uint8_t> partner_form;
  std::vector<uint32_t> partner_name, partner_number;
  TextNumbers names, dtypes, shapes;
  ModuleTree modules;
  StackTexts stacks;

 private:
  struct Name {
    uint32_t text, number;
    uint8_t form;
  };
  Name Take(const Record& record);
  std::string spelled_;  // reused
};

}  // namespace msprobe::report_page
