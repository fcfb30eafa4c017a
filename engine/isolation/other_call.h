// Whether a recorded call and its partner in another run ask for the same computation: what was
// passed to both, before the elements of it are looked at.
//
//   const std::vector<compare::Partner> partners = compare::AlignRecords(target, golden, {});
//   const OtherCall other = OtherCallOf(target, golden, partners, record);
//   if (!other.why.empty()) Print("{}: the two calls compute different things", other.why.Shown());
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/messages/message.h"
#include "engine/compare/align/align.h"
#include "engine/model/table.h"

namespace msprobe::isolation {

struct OtherCall {
  // Another shape, another number, a tensor that only one run passes: "self has shape [8, 1] in the
  // target, [8] in the golden; Tensor.reshape.0.forward, which only the target calls, makes it
  // (train.py:14: each = each.reshape(-1, 1))". Empty: the two are the same computation.
  Message why;
  // Of the same computation, whether it has the same tensors; empty: fingerprints do not tell.
  Message inputs;
};

// `call`: index of a record of the target, which has a partner; `partners`: of all its records.
OtherCall OtherCallOf(const Dump& target, const Dump& golden,
                      std::span<const compare::Partner> partners, int32_t call);

}  // namespace msprobe::isolation
