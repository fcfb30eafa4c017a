"""A worker of `msprobe multi_run_ut --ray` whose calls are executed on a cluster of Ray.

python -m msprobe.pytorch.ray_worker ADDRESS            prints how many workers find a place
python -m msprobe.pytorch.ray_worker ADDRESS OPTIONS    answers as replay_worker does, by one actor

The answer to the number of a call is "again" when the node of the actor died: another worker does
the call. When the actor's process alone died, this process ends, and the call is lost.
"""

import ctypes
import json
import os
import signal
import socket
import sys

from msprobe._engine import message

_PR_SET_PDEATHSIG = 1  # of prctl(2)
_MOST_WORKERS = 64  # as many as -n may be
_NODE_SECONDS = 60  # until a node that does not answer counts as lost


class Refused(Exception):
    """What is wrong, and what to type next."""


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


def _connect(address):
    try:
        import ray
    except ImportError:
        raise Refused(
            message("Ray is not installed") + "\tpip install 'mindstudio-probe[ray]'"
        ) from None
    host, _, port = address.rpartition(":")
    if address != "auto" and not (host and "/" not in host and port.isdigit()):
        raise Refused(
            message("--ray: expected HOST:PORT or auto, found {}", repr(address)) + "\t--ray auto"
        )
    hint = message("start the cluster with ray start --head, and name its address: --ray HOST:6379")
    try:
        if address != "auto":  # Ray waits a minute for an address where nothing answers
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        # A RAY_ADDRESS of the environment does not count: an address is given.
        ray.init(address=address, logging_level="error", log_to_driver=False)
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise Refused(
            message("--ray: no cluster of Ray answers at {}: {}", address, text) + "\t" + hint
        ) from None
    return ray


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
    if path := os.environ.get("PYTHONPATH"):
        needs["runtime_env"] = {"env_vars": {"PYTHONPATH": path}}
    actor = ray.remote(Calls).options(scheduling_strategy="SPREAD", **needs).remote()
    import msprobe

    node, wrong = ray.get(actor.start.remote(options, msprobe.__version__))
    if wrong:
        raise Refused(wrong)
    return actor, node


def _answers(ray, node):
    """Whether the node still executes tasks: then the actor's process alone has died. The news of a
    node that died takes longer than that of its actors."""
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    probe = ray.remote(lambda: True).options(num_cpus=0, scheduling_strategy=strategy).remote()
    try:
        return ray.get(probe, timeout=_NODE_SECONDS)
    except Exception:
        return False


def _serve(ray, options, answers):
    for key in ("dump", "references", "error_data"):
        options[key] = options[key] and os.path.abspath(options[key])
    actor, node = _actor(ray, options)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = ray.get(actor.answer.remote(int(line)))
        except ray.exceptions.RayActorError:
            if _answers(ray, node):
                raise
            answer = "again"
        print(answer, file=answers, flush=True)


def main():
    # A worker ends with the program that started it, also when that is killed.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        ray = _connect(sys.argv[1])
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
