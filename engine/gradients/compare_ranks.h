// Compares the steps of one rank.
//
//   RankFolders folders{"runs/new/rank0", "runs/good/rank0", "rank {}"_t(0)};
//   SimilarityTable table({0, 1, 2});
//   RankFindings found = CompareRank(folders, &table, [] {});
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/gradients/similarity_table.h"

namespace msprobe::gradients {

struct RankFolders {
  std::string target, golden;
  Message label;  // in front of each sentence: "rank 3", or none
};

struct RankFindings {
  std::vector<Message> notes, errors;  // sentences
};

// Fills the table for its steps, which both folders have. `step_done` is called once for each step,
// by one thread at a time.
RankFindings CompareRank(const RankFolders& folders, SimilarityTable* table,
                         const std::function<void()>& step_done);

}  // namespace msprobe::gradients
