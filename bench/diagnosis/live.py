"""Does the comparison while a program trains name the call that `msprobe compare` names?

python bench/diagnosis/live.py --only gpt/ --level mix

Records both sides of each case, the target with the golden as its "baseline", and compares what
first_divergence.rank<N>.json says with the first divergence of the same step and rank.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import case
import recorder

ROOT = Path(__file__).resolve().parents[2]


def job(each, level, folder, edits, threads, **more):
    what = {"program": each.program, "edits": edits, "both": each.edits_both, "level": level}
    what |= {"task": "statistics", "summary_mode": "statistics", "threads": threads}
    return what | {"steps": each.steps, "folder": str(folder)} | more


def offline(msprobe, target, golden):
    """The call that the command names first; "" for none."""
    command = [msprobe, "compare", target, golden, "-o", f"{target}_table"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"FIRST DIVERGENCE +(\S+)", done.stdout)
    return found.group(1) if found else ""


def first_offline(msprobe, target, golden):
    """(rank, step, call) of the first divergence of each rank."""
    found = set()
    for rank in sorted({folder.name for folder in target.glob("step*/rank*") if folder.is_dir()}):
        for step in sorted(target.glob("step*"), key=lambda path: int(path.name[4:])):
            name = offline(msprobe, step / rank, golden / step.name / rank)
            if name:
                found.add((rank, step.name, name))
                break
    return found


def first_live(target):
    told = [json.loads(file.read_text()) for file in target.glob("first_divergence.rank*.json")]
    return {(f"rank{each['rank']}", f"step{each['step']}", each["name"]) for each in told}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--level", default="mix")
    parser.add_argument("--msprobe", default=str(ROOT / "build/cli/msprobe"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    same = other = 0
    goldens = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, each in case.all_cases().items():
            if not name.startswith(args.only):
                continue
            key = (each.program, each.edits_both, each.steps)
            if key not in goldens:
                goldens[key] = Path(folder) / f"golden{len(goldens)}"
                recorder.record(job(each, args.level, goldens[key], [], 1))
            golden, target = goldens[key], Path(folder) / name.replace("/", ".")
            threads = each.settings.get("threads", 1)
            began = time.perf_counter()
            answer = recorder.record(
                job(each, args.level, target, each.edits, threads, baseline=str(golden))
            )
            if answer["error"]:
                print(f"{name}: {answer['error'].strip().splitlines()[-1]}", flush=True)
                continue
            live, there = first_live(target), first_offline(args.msprobe, target, golden)
            same += live == there
            other += live != there
            if live != there:
                seconds = time.perf_counter() - began
                print(f"{name}: live {live}, offline {there} ({seconds:.1f} s)", flush=True)
    print(f"{same} of {same + other} cases: the same answer live and offline, level {args.level}")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
