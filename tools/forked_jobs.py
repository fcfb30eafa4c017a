"""A program that does jobs: one JSON object a line on stdin, one answer a line on stdout.

Slow imports are done once; each job runs in processes forked from there, so that none sees what
another one changed::

    import torch
    forked_jobs.serve(lambda job: forked_jobs.in_children([lambda: train(job)])[0])

An answer is a dict; one with the key "error" and a text stands for an exception.
"""

import json
import os
import select
import signal
import sys
import traceback


def _start(work):
    """Runs work() in a forked process: its id, and where its answer can be read."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = work()
        except BaseException:
            answer = {"error": traceback.format_exc()}
        with os.fdopen(write, "w") as out:
            json.dump(answer, out)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    os.close(write)
    return child, read


def _result(child, read, seconds):
    ready, _, _ = select.select([read], [], [], seconds)
    if not ready:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": "the process died"}


def in_children(works, seconds=None):
    """The answers of functions that run at the same time, each in a process of its own.

    One that has not answered after `seconds` is killed; None: they are waited for.
    """
    children = [_start(work) for work in works]
    return [_result(*child, seconds) for child in children]


def in_ranks(work, ranks, seconds=None):
    """The answer of work(0), ..., work(ranks - 1), run at the same time; the first error if any."""
    answers = in_children([lambda rank=rank: work(rank) for rank in range(ranks)], seconds)
    return next((answer for answer in answers if answer["error"]), answers[0])


def serve(answer):
    """Calls answer(job) for each job. What a job prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)
