"""Runs under LD_PRELOAD=faults.so: one line of JSON in, one forked training, one line of JSON out.

In: {"folder", "log", "level", "task", "budget", "arm": [calls, at, errno, lasting] or
["new", at] or null}. Out: {"code", "digest", "seen", "injected"}; standard error goes to `log`.
"""

import ctypes
import hashlib
import json
import os
import sys
import traceback

import torch
import torch._dynamo  # otherwise the first optimizer in every child would import it
from torch.nn import functional as F

from msprobe.pytorch import PrecisionDebugger

STEPS = 3
LIBRARY = b"_engine"

faults = ctypes.CDLL(None)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(12, 8)
        self.second = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.second(torch.tanh(F.relu(self.first(x)) + x[:, :8]))


def arm(order):
    if order["arm"] is None:
        faults.faults_arm(
            os.fsencode(order["folder"]),
            b"write,open,rename,ftruncate,mkdir,close",
            ctypes.c_long(1 << 40),
            5,
            0,
        )
    elif order["arm"][0] == "new":
        faults.faults_arm_new(LIBRARY, ctypes.c_long(order["arm"][1]))
    else:
        calls, at, error, lasting = order["arm"]
        faults.faults_arm(
            os.fsencode(order["folder"]), calls.encode(), ctypes.c_long(at), error, lasting
        )


def train(order):
    """Trains; returns the digest of losses, gradients, weights and random numbers."""
    digest = hashlib.sha256()
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    debugger = None
    if order["folder"]:
        debugger = PrecisionDebugger(
            dump_path=order["folder"], level=order["level"], task=order["task"]
        )
        arm(order)
    for _ in range(STEPS):
        for _ in range(2):  # a second start() in a step continues the same files
            if debugger:
                debugger.start(model)
            loss = F.dropout(model(torch.randn(16, 12)), 0.3).square().mean()
            loss.backward()
            if debugger:
                debugger.stop()
            digest.update(loss.detach().numpy().tobytes())
        if debugger:
            debugger.step()
        for parameter in model.parameters():
            digest.update(parameter.grad.numpy().tobytes())
        optimizer.step()
        optimizer.zero_grad()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(torch.get_rng_state().numpy().tobytes())
    faults.faults_disarm()
    return digest.hexdigest()


def child(order, answer):
    os.dup2(os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), 2)
    os.environ["MSPROBE_TENSOR_BUDGET_MB"] = str(order["budget"])
    torch.set_num_threads(1)  # OpenMP's threads do not exist after a fork
    code = 1
    try:
        digest = train(order)
        text = json.dumps(
            {"digest": digest, "seen": faults.faults_seen(), "injected": faults.faults_injected()}
        )
        os.write(answer, text.encode())
        PrecisionDebugger.stop() if order["folder"] else None  # as atexit does
        code = 0
    except BaseException:
        faults.faults_disarm()
        traceback.print_exc()
    os._exit(code)


def main():
    for line in sys.stdin:
        order = json.loads(line)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            child(order, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            text = pipe.read()
        _, status = os.waitpid(pid, 0)
        answer = json.loads(text) if text else {"digest": None, "seen": 0, "injected": 0}
        print(json.dumps({"code": os.waitstatus_to_exitcode(status), **answer}), flush=True)


if __name__ == "__main__":
    main()
