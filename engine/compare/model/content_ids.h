// A number for each content that a tensor of the two dumps has: equal contents (ContentKey) have
// equal numbers, in both runs. Rules that ask often which tensors are the same read the text of a
// fingerprint once, and use arrays in place of maps.
//
//   const ContentIds& ids = ContentOf(&comparison);
//   ContentSet made(ids);
//   made.Insert(ids.ResultOf(/*target=*/true, /*leaf=*/7));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/threads.h"
#include "engine/model/table.h"

namespace msprobe::compare {

struct Comparison;

class ContentIds {
 public:
  // Splits the work over the threads of the pool; the numbers are the same for any number of
  // threads. Takes 4 bytes for each leaf, and 20 more while it works.
  ContentIds(const Dump& target, const Dump& golden, ThreadPool& pool);

  // How many contents there are: numbers are from 0 to size() - 1.
  size_t size() const { return size_; }
  // The content of leaf number `leaf` of the target or the golden; -1: it is no tensor, or nothing
  // was recorded of its elements.
  int32_t Of(bool target, int32_t leaf) const { return codes_[target ? 0 : 1][leaf] >> 1; }
  int32_t Of(bool target, const Leaf& leaf) const { return Of(target, IndexOf(target, leaf)); }
  // The same of what a call returns (outputs, gradients of parameters, debug values); -1 for
  // others.
  int32_t ResultOf(bool target, int32_t leaf) const {
    const int32_t code = codes_[target ? 0 : 1][leaf];
    return (code & kResult) != 0 ? code >> 1 : -1;
  }
  // The same of what a call takes; -1 for others.
  int32_t ArgumentOf(bool target, int32_t leaf) const {
    const int32_t code = codes_[target ? 0 : 1][leaf];
    return (code & kResult) == 0 ? code >> 1 : -1;
  }
  int32_t ArgumentOf(bool target, const Leaf& leaf) const {
    return ArgumentOf(target, IndexOf(target, leaf));
  }
  int32_t IndexOf(bool target, const Leaf& leaf) const {
    return static_cast<int32_t>(&leaf - leaves_[target ? 0 : 1]);
  }

 private:
  static constexpr int32_t kResult = 1;

  const Leaf* leaves_[2];          // of the target, of the golden
  std::vector<int32_t> codes_[2];  // of each leaf: twice its number, + kResult; -1: no content
  size_t size_ = 0;
};

// The numbers of a comparison, made at the first call and kept in it.
const ContentIds& ContentOf(Comparison* comparison);
// Those that are kept, or new ones.
std::shared_ptr<const ContentIds> ContentOf(const Comparison& comparison);

// A set of contents: a bit for each.
class ContentSet {
 public:
  ContentSet() = default;
  explicit ContentSet(const ContentIds& ids) : has_(ids.size(), false) {}
  // Of -1: nothing is inserted.
  void Insert(int32_t id) {
    if (id >= 0) has_[id] = true;
  }
  bool Has(int32_t id) const { return id >= 0 && has_[id]; }

 private:
  std::vector<bool> has_;
};

}  // namespace msprobe::compare
