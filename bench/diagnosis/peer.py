"""Lets msprobe 26 (the peer) compare pairs with `-da`: jobs from stdin, one JSON object a line.

Runs under the Python of the peer's environment. A job: {"target": ..., "golden": ...}, two folders
of a step. The answer: {"named": ["Functional.softmax.0.forward"], "error": ""}: the calls of its
diff_analyze file, its first call first; an empty list if it named none.
"""

import json
import pathlib
import sys
import tempfile

from msprobe.core.compare.find_first.analyzer import DiffAnalyzer

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import forked_jobs


def named(target, golden):
    with tempfile.TemporaryDirectory() as out:
        DiffAnalyzer(target, golden, out).analyze()
        files = sorted(pathlib.Path(out).glob("diff_analyze_*.json"))
        ranks = json.loads(files[0].read_text()) if files else {}
    return [node["op_name"] for nodes in ranks.values() for node in nodes]


def compare(job):
    return {"named": named(job["target"], job["golden"]), "error": ""}


def main():
    forked_jobs.serve(
        lambda job: {"named": []} | forked_jobs.in_children([lambda: compare(job)])[0]
    )


if __name__ == "__main__":
    main()
