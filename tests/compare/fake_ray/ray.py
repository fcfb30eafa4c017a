"""In place of Ray: nodes that are threads of one process.

$FAKE_RAY names a file of Python with `NODES`, a list of names, and `call(node, function, *given)`,
which calls the function as the node would, answers something else, or raises.
"""

import os
import runpy
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as _wait
from types import SimpleNamespace

_script = runpy.run_path(os.environ["FAKE_RAY"])
_threads = ThreadPoolExecutor()
util = SimpleNamespace(
    scheduling_strategies=SimpleNamespace(
        NodeAffinitySchedulingStrategy=lambda node, soft: node,
    )
)


class _Remote:
    def __init__(self, function):
        self.function = function

    def options(self, scheduling_strategy, **_):
        self.node = scheduling_strategy
        return self

    def remote(self, *given):
        return _threads.submit(_script["call"], self.node, self.function, *given)


def remote(function):
    return _Remote(function)


def init(**_):
    pass


def nodes():
    about = {"Alive": True, "Resources": {"CPU": 1}}
    return [about | {"NodeID": name, "NodeManagerHostname": name} for name in _script["NODES"]]


def wait(references, num_returns, timeout):
    assert num_returns == len(references)
    _wait(references, timeout)


def get(reference, timeout=None):
    return reference.result(timeout)
