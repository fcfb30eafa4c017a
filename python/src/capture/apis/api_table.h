// The functions that are observed, under the names of their entries, with what the user's lists say
// of each.
//
//   ApiTable table(&recording);
//   std::string reason = table.Add("Torch", torch, "relu", {});   // "" or why it is not observed
#pragma once

#include <Python.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/recording/recording.h"
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
  std::string Add(const std::string& prefix, PyObject* owner, const std::string& name,
                  ApiTraits traits);
  // Adds a method or function that tells something about other calls: that an asynchronous one is
  // complete, that memory is new. Returns "" or why its calls are not seen.
  std::string Watch(PyObject* owner, const std::string& name, Api::Kind kind);
  // Makes an Api that the caller gives to the interposer. It is never destroyed.
  Api* New(const std::string& prefix, const std::string& name);

  // Reads the rules for single APIs (api_rules.h). They apply to the APIs that are in the table and
  // to those that are added later. Logs no warnings.
  Status ReadRules(const std::string& risk_levels, const std::string& ignored_values);
  const dump::ApiRules& rules() const { return rules_; }
  void ApplyRules();                        // the configuration has changed
  bool Lists(std::string_view name) const;  // whether one is observed whose last name is "relu"

 private:
  void ApplyRules(Api* api);

  Recording* recording_;
  std::vector<std::unique_ptr<Api>> apis_;
  dump::ApiRules rules_;
};

}  // namespace msprobe::capture
