// What one of several processes has compared of the ranks of two runs, as a file, and all such
// files together. A report that is made of them is the one of a process that compares all ranks.
//
//   MSPROBE_RETURN_IF_ERROR(WritePart(part, "out"));          // out/compare_part_3_of_8.bin
//   MSPROBE_ASSIGN_OR_RETURN(ComparedPart all, ReadParts("out"));
//   for (ComparedPair& pair : all.compared) Print("rank {}", pair.rank);
//
// The file is no exchange format: the program that reads it is of the version that wrote it. Its
// numbers have 8 bytes, little-endian; a text and a list begin with their length. A double keeps
// its bits and a message its parts, so that both are printed as they would have been.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/compare/ranks/rank_copy.h"
#include "engine/compare/ranks/rank_result.h"

namespace msprobe::compare {

inline constexpr int64_t kMostParts = 1 << 20;

// A pair of dumps, and what was found.
struct ComparedPair {
  int32_t step = -1, rank = -1;
  std::string target, golden;
  RankResult result;
  std::string analysis;       // its node of diff_analyze_TIME.json; "": none was asked for
  std::string json, finding;  // its documents: of --format json, and the one beside the tables
  Status unwritten;           // the first of its files that could not be written
};

// A pair of a comparison in which the ranks of a side are joined (compare/layouts): all of them are
// compared at once, with the copies of all parts. Also a pair that is not joined, where another one
// is.
struct PairOfCopies {
  struct Rank {
    int32_t rank = -1;
    std::string path;  // of its dump, as it was typed: RankCopy::path
  };
  int32_t step = -1, rank = -1;
  std::string target, golden;                    // of a side without ranks: RankCopy::path
  std::vector<Rank> target_ranks, golden_ranks;  // of a side whose ranks are joined
};

struct ComparedPart {
  int64_t index = 1, count = 1;  // from 1 on
  std::string target, golden;    // as they were typed
  std::vector<Message> left_out;
  // All pairs of the run that this process saw, also those of other parts: nothing but their places
  // is filled in.
  std::vector<ComparedPair> pairs;
  std::vector<ComparedPair> compared;
  // Where ranks are joined: all pairs of the run in place of `pairs`; the flags of the comparison,
  // and the files that they name; the copies of this part.
  std::vector<PairOfCopies> joined;
  std::vector<std::string> words;
  std::vector<KnownFile> named;
  std::vector<RankCopy> copies;
};

// Ranks are in blocks, so that those of one node are in one part. `rank`: its place in the order of
// all ranks.
bool IsInPart(size_t rank, size_t ranks, int64_t index, int64_t count);

// "compare_part_3_of_8.bin" in the folder, which is made. One that is there is replaced: a part may
// be compared again.
Status WritePart(const ComparedPart& part, const std::string& folder);
// Errors: kInvalidDump; kUnsupported for a file of another version.
Result<ComparedPart> ReadPart(const std::string& path);

// What part 1 of so many has found, if its file is in the folder and of this comparison: whether
// ranks are joined. nullopt: nothing is known.
std::optional<bool> JoinsInFirstPart(const ComparedPart& part, const std::string& folder);

// The parts that lie in the folder as one. A pair that no part has compared has failed, with the
// part that is missing; so has a copy. Pairs are ordered by step and rank. Errors: as ReadPart;
// kNotFound without any; kInvalidArgument where they are of different comparisons.
Result<ComparedPart> ReadParts(const std::string& folder);

}  // namespace msprobe::compare
