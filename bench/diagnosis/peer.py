"""Lets msprobe 26 (the peer) compare pairs with `-da`: jobs from stdin, one JSON object a line.

Runs under the Python of the peer's environment. A job: {"target": ..., "golden": ...}, two folders
of a step. The answer: {"named": ["Functional.softmax.0.forward"], "error": ""}: the calls of its
diff_analyze file, its first call first; an empty list if it named none.
"""

import json
import os
import pathlib
import sys
import tempfile
import traceback

from msprobe.core.compare.find_first.analyzer import DiffAnalyzer


def named(target, golden):
    with tempfile.TemporaryDirectory() as out:
        DiffAnalyzer(target, golden, out).analyze()
        files = sorted(pathlib.Path(out).glob("diff_analyze_*.json"))
        ranks = json.loads(files[0].read_text()) if files else {}
    return [node["op_name"] for nodes in ranks.values() for node in nodes]


def in_child(job):
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            answer = {"named": named(job["target"], job["golden"]), "error": ""}
        except BaseException:
            answer = {"named": [], "error": traceback.format_exc()}
        with os.fdopen(write, "w") as out:
            json.dump(answer, out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as text:
        answer = text.read()
    os.wait()
    return answer or '{"named": [], "error": "the process died"}'


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the peer prints goes to the log
    for line in sys.stdin:
        print(in_child(json.loads(line)), file=answers, flush=True)


if __name__ == "__main__":
    main()
