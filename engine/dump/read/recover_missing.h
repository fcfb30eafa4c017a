// What a killed run had not written yet, as sentences for `msprobe recover`.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/model/table.h"

namespace msprobe::dump {

// Tensor files: named by an entry but absent or unreadable, unfinished, named by no entry.
void AddMissingTensors(const Dump& dump, std::vector<Message>* missing);

// stack.json: records whose stack is not there, names of calls that have no record. `stack_keys` as
// in dump_file.h; `listed`: the names that groups list; `groups`: by number.
void AddMissingStacks(const Dump& dump, const std::vector<std::string_view>& stack_keys,
                      const std::unordered_set<std::string>& listed,
                      const std::map<std::string, std::string>& groups,
                      std::vector<Message>* missing);

// construct.json: records that are not in it, names in it that have no record. `members`: by name.
void AddMissingParents(const Dump& dump, const std::map<std::string, std::string>& members,
                       std::vector<Message>* missing);

}  // namespace msprobe::dump
