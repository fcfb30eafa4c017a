"""A cluster of Ray, for the verbs that have --ray. No other module of ours but those with "ray" in
their names imports it."""

import ctypes
import os
import signal
import socket

from msprobe._engine import message

_PR_SET_PDEATHSIG = 1  # of prctl(2)
_NODE_SECONDS = 60  # until a node that does not answer counts as lost


class Refused(Exception):
    """What is wrong, a tab, and what to type next."""


def answers_of_this_process():
    """Where the program that started this process reads. All else that is printed is no answer.

    The process ends with that program, also when it is killed.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def connect(address):
    """The module of Ray, connected to the cluster."""
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


def environment():
    """Options of a task or an actor: its Python finds the modules that this one finds."""
    path = os.environ.get("PYTHONPATH")
    return {"runtime_env": {"env_vars": {"PYTHONPATH": path}}} if path else {}


def on_node(ray, node):
    """Options of a task or an actor that runs on this node, or nowhere."""
    of = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    return {"scheduling_strategy": of(node, soft=False)}


def answers(ray, node):
    """Whether the node still executes tasks: then a process alone has died. The news of a node that
    died takes longer than that of its processes."""
    probe = ray.remote(lambda: True).options(num_cpus=0, **on_node(ray, node)).remote()
    try:
        return ray.get(probe, timeout=_NODE_SECONDS)
    except Exception:  # of any kind: what is told to people is the error of the task that failed
        return False
