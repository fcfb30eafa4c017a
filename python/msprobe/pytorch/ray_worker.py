"""A worker of `msprobe multi_run_ut --ray` whose calls are executed on a cluster of Ray.

python -m msprobe.pytorch.ray_worker ADDRESS            prints how many workers find a place
python -m msprobe.pytorch.ray_worker ADDRESS OPTIONS    answers as replay_worker does, by one actor

The answer to the number of a call is "again" when the node of the actor died: another worker does
the call. When the actor's process alone died, this process ends, and the call is lost.
"""

import json
import os
import socket
import sys

from msprobe._engine import message
from msprobe.core import ray_cluster
from msprobe.core.ray_cluster import Refused

_MOST_WORKERS = 64  # as many as -n may be


class Calls:
    """The actor. It reads the dump where it runs."""

    def start(self, options, version):
        """The id of the node, and what is wrong there: "" if nothing is."""
        import ray

        node = f"node {socket.gethostname()}"
        try:
            import torch

            import msprobe
            from msprobe.pytorch import replay_worker
        except ImportError as error:
            return "", f"{node}: {error}; type there: pip install mindstudio-probe"
        if msprobe.__version__ != version:
            found = msprobe.__version__
            return "", f"{node}: expected mindstudio-probe {version}, found {found}"
        for key in ("dump", "references"):
            if options[key] and not os.path.exists(options[key]):
                return "", f"{node}: expected {options[key]}, found no such path; copy it there"
        torch.set_num_threads(1)  # the same bits however many workers there are
        self.worker = replay_worker.Worker(options)
        return ray.get_runtime_context().get_node_id(), ""

    def answer(self, index):
        return self.worker.answer(index)


def _device(ray):
    """The resource of one worker: ("NPU", how many the cluster has)."""
    resources = ray.cluster_resources()
    for name in ("NPU", "GPU", "CPU"):
        if resources.get(name, 0) >= 1:
            return name, int(resources[name])
    raise Refused(
        message("--ray: expected an NPU, GPU or CPU in the cluster, found none")
        + "\t"
        + message("ray status shows what its nodes have; ray start --num-cpus 8")
    )


def _actor(ray, options):
    """An actor that has started, and the id of its node."""
    name, _ = _device(ray)
    needs = {"num_cpus": int(name == "CPU"), "num_gpus": int(name == "GPU")}
    if name == "NPU":
        needs["resources"] = {"NPU": 1}
    needs |= ray_cluster.environment()
    actor = ray.remote(Calls).options(scheduling_strategy="SPREAD", **needs).remote()
    import msprobe

    node, wrong = ray.get(actor.start.remote(options, msprobe.__version__))
    if wrong:
        raise Refused(wrong)
    return actor, node


def _serve(ray, options, answers):
    for key in ("dump", "references", "error_data"):
        options[key] = options[key] and os.path.abspath(options[key])
    actor, node = _actor(ray, options)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = ray.get(actor.answer.remote(int(line)))
        except ray.exceptions.RayActorError:
            if ray_cluster.answers(ray, node):
                raise
            answer = "again"
        print(answer, file=answers, flush=True)


def main():
    answers = ray_cluster.answers_of_this_process()
    try:
        ray = ray_cluster.connect(sys.argv[1])
        if len(sys.argv) == 2:
            print(min(_device(ray)[1], _MOST_WORKERS), file=answers, flush=True)
        else:
            _serve(ray, json.loads(sys.argv[2]), answers)
    except Refused as error:
        if len(sys.argv) == 2:
            print(error, file=answers, flush=True)
        else:
            print(f"refused {error}", file=answers, flush=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
