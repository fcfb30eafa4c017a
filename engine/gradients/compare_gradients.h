// Compares the directions of the gradients that two runs recorded with task grad_probe.
//
//   MSPROBE_ASSIGN_OR_RETURN(GradientComparison c, CompareGradients("runs/new", "runs/good",
//       "out"));
//   if (c.fall) Use(c.fall->step, c.fall->parameter);
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/gradients/gradient_fall.h"
#include "engine/gradients/similarity_table.h"

namespace msprobe::gradients {

struct GradientOptions {
  FallRule rule;
  // Of the steps of all ranks. Called by any thread, by one at a time.
  std::function<void(size_t done, size_t all)> on_progress;
};

// One rank of both sides.
struct RankSimilarity {
  int64_t rank = -1;  // -1: the paths are folders of a rank
  std::vector<int64_t> steps;
  std::vector<Similarity> summary;  // of each step
  size_t parameters = 0;
  std::optional<GradientFall> fall;
};

// The norms of one gradient.
struct GradientNorms {
  double target = 0, golden = 0;
};

struct GradientComparison {
  std::vector<RankSimilarity> ranks;
  // Of all ranks together: the shards of a parameter are one parameter. A step that some rank of a
  // parameter lacks is not compared.
  SimilarityTable all{{}};
  std::optional<GradientFall>
      fall;              // the first of any rank; of two in one step that of the lower rank
  size_t fall_rank = 0;  // its index in `ranks`
  std::optional<GradientNorms> fall_norms;
  // Where a direction first differs, however small the share, and the index of its rank. Before it
  // the runs were the same: a program that computes the same bits in each run went wrong here.
  std::optional<GradientFall> first_difference;
  size_t difference_rank = 0;
  // Parameters of any rank whose directions differ and may be rounding (MayBeRounding), in the
  // order of ranks, each once. Without a fall and with such parameters the answer is unknown.
  std::vector<std::string> may_be_rounding;
  std::vector<Message> notes;      // what is missing on a side, NaN: a sentence each
  std::vector<Message> errors;     // files that could not be read; the others were compared
  std::vector<std::string> files;  // the tables that were written
};

// What a comparison answers, from the worst to the best.
enum class GradientVerdict { kFalls, kUnreadable, kMayBeRounding, kSimilar, kSame };
GradientVerdict VerdictOf(const GradientComparison& comparison);

// `target` and `golden`: a dump_path (with folders rank<R>), or the folder of a rank. Writes
// rank<R>/similarities.csv for each rank that both have, similarities.csv for one rank's folder,
// and for several ranks also similarities.csv of all. Errors: no common rank, no common step with
// directions; a table cannot be written.
Result<GradientComparison> CompareGradients(const std::string& target, const std::string& golden,
                                            const std::string& output,
                                            const GradientOptions& options = {});

}  // namespace msprobe::gradients
