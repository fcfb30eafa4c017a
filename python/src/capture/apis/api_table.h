// The functions that are observed, under the names of their entries, with what the user's lists say
// of each.
//
//   ApiTable table(&recording);
//   Message reason = table.Add("Torch", torch, "relu", {});   // "" or why it is not observed
#pragma once

#include <Python.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/python/py_ref.h"
#include "capture/recording/recording.h"
#include "engine/base/messages/message.h"
#include "engine/dump/config/api_rules.h"

namespace msprobe::capture {

// What sets the functions of a list apart.
struct ApiTraits {
  bool is_collective = false;        // runs in a process group
  bool output_is_arguments = false;  // results are written into the arguments
};

class ApiTable {
 public:
  explicit ApiTable(Recording* recording) : recording_(recording) {}

  // Lists `name` of `owner` (a dotted name is looked up step by step) under `prefix`.
  Message Add(const std::string& prefix, PyObject* owner, const std::string& name,
              ApiTraits traits);
  // Adds a method or function that tells something about other calls: that an asynchronous one is
  // complete, that memory is new. Returns "" or why its calls are not seen.
  Message Watch(PyObject* owner, const std::string& name, Api::Kind kind);
  // The API "Primitive.conv2d.Conv2D." of objects of a class that modules have as this attribute.
  const Api* OfObject(PyObject* object, std::string_view attribute);
  // A function or class of objects leaves results unwritten, those at `places`:
  // "Functional.unique", "BatchNorm(is_training=True)" where the object's attribute has that value.
  // Comes before the functions and objects are added.
  void LeavesUnwritten(std::string_view name, std::vector<int64_t> places);
  // Makes an Api of `function` (null: its parameters have no names) that the caller gives to the
  // interposer. It is never destroyed.
  Api* New(const std::string& prefix, const std::string& name, PyObject* function);

  // The names of the positional parameters of an API: describe("Functional.dropout", [functions])
  // is asked once, when the API has been called; it returns a list of texts for each overload.
  void DescribeWith(PyObject* describe) { describe_ = PyRef::Borrow(describe); }
  using Names = std::vector<std::string>;
  // Of the APIs that were called in this step, those whose names are known, sorted.
  std::vector<std::pair<std::string_view, const std::vector<Names>*>> Signatures();

  // Reads the rules for single APIs (api_rules.h). They apply to the APIs that are in the table and
  // to those that are added later. Logs no warnings.
  Status ReadRules(const std::string& risk_levels, const std::string& ignored_values);
  const dump::ApiRules& rules() const { return rules_; }
  void ApplyRules();                        // the configuration has changed
  bool Lists(std::string_view name) const;  // whether one is observed whose last name is "relu"

 private:
  // Results that calls of a function or object leave unwritten when attributes have these values.
  struct UnwrittenRule {
    std::vector<std::pair<std::string, std::string>> attributes;  // "is_training", "True"
    std::vector<int64_t> places;
  };
  std::vector<int64_t> UnwrittenBy(std::string_view name, PyObject* object) const;
  void ApplyRules(Api* api);
  void NoteFunction(const Api& api, PyObject* function);

  // The functions of one API. torch.norm and torch.linalg.norm have the same entry names.
  struct Functions {
    std::vector<PyRef> functions;
    bool described = false;
    std::vector<Names> overloads;
  };
  void Describe(const std::string& name, Functions* api) const;  // fills in `overloads`

  Recording* recording_;
  std::vector<std::unique_ptr<Api>> apis_;
  // By "conv2d.Conv2D" and the places of unwritten results: objects of one name may differ in
  // these.
  std::map<std::pair<std::string, std::vector<int64_t>>, const Api*> of_objects_;
  std::multimap<std::string, UnwrittenRule, std::less<>> unwritten_;  // by class or API
  std::map<std::string, Functions> functions_;                        // by "Functional.dropout"
  // By counter; null where a counter is not of an API.
  std::vector<std::map<std::string, Functions>::value_type*> by_counter_;
  PyRef describe_;
  dump::ApiRules rules_;
};

}  // namespace msprobe::capture
