// The nodes of a cluster of Ray that have msprobe, and command lines that run on them. A process of
// Python talks with Ray (msprobe.core.ray_compare).
//
//   MSPROBE_ASSIGN_OR_RETURN(RayNodes nodes, RayNodes::Connect("10.0.0.1:6379", "new", "good"));
//   nodes.Start({.task = 7, .node = 0, .words = {"compare", "new", "good"}, .file = "answer"});
//   MSPROBE_ASSIGN_OR_RETURN(const RayNodes::Ended ended, nodes.WaitForOne());   // ended.task: 7
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/cluster/found_dumps.h"
#include "cli/programs/observed_run.h"
#include "engine/base/status.h"
#include "engine/workers/worker_process.h"

namespace msprobe::cli {

class RayNodes {
 public:
  struct Node {
    std::string id, name;
    std::string wrong;  // why it compares nothing; "": nothing is wrong
    FoundDumps target, golden;
  };
  struct Task {
    size_t task = 0;  // a number of the caller
    size_t node = 0;
    std::vector<std::string> words = {};  // the node compares
    std::vector<std::string> paths = {};  // without words: it sends those of these files it has
    std::string file;                     // takes the answer of the node (node_answer.h)
  };
  enum class End : uint8_t {
    kAnswered,
    kFailed,  // the node is there, and could not do it
    kLost,    // the node is gone
  };
  struct Ended {
    size_t task = 0;
    End end = End::kFailed;
    std::string said;  // unless kAnswered: why
  };

  // Asks each node for its dumps of the two runs. Errors: kUnsupported without Ray, or where no
  // cluster answers; kInvalidDump for an answer that is none.
  static Result<RayNodes> Connect(const std::string& address, const std::string& target,
                                  const std::string& golden);
  const std::vector<Node>& nodes() const { return nodes_; }
  // A task whose number is not in use.
  void Start(const Task& task);
  // The next task that ends. Errors: kUnsupported when the process of Python has ended, as it does
  // when the cluster is gone.
  Result<Ended> WaitForOne();

 private:
  RayNodes(RunFolder folder, workers::WorkerProcess python)
      : folder_(std::move(folder)), python_(std::move(python)) {}
  Result<std::string> NextLine();
  Status ReadNodes(const std::string& line);

  RunFolder folder_;  // for what Python prints on its standard error
  workers::WorkerProcess python_;
  std::vector<Node> nodes_;
};

}  // namespace msprobe::cli
