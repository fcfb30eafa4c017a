"""The same pairs, compared by msprobe 26 with `-da` (peer.py)."""

import json
import subprocess
import time
from pathlib import Path

import case
import scoring
from recordings import Recordings

HERE = Path(__file__).resolve().parent
LEVEL = "mix"
KINDS = ("statistics", "md5")


class Peer:
    def __init__(self, python: Path, log: Path):
        self.log = open(log, "w")  # noqa: SIM115  closed by close()
        self.process = subprocess.Popen(
            [python, "-W", "ignore", HERE / "peer.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def named(self, target: Path, golden: Path) -> list[str]:
        print(
            json.dumps({"target": str(target), "golden": str(golden)}),
            file=self.process.stdin,
            flush=True,
        )
        text = self.process.stdout.readline()
        answer = json.loads(text) if text else {"error": "the peer died"}
        if answer["error"]:
            raise RuntimeError(answer["error"].strip().rsplit("\n", 1)[-1])
        return answer["named"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.log.close()


def _place_of(rank: Path, name: str) -> dict:
    """A call as a divergence: its module and source lines, from the files beside its dump."""
    parents = json.loads((rank / "construct.json").read_text())
    stacks = json.loads((rank / "stack.json").read_text())
    parent = parents.get(name)
    module = case.module_path(parent) if isinstance(parent, str) else None
    frames = [frame for names, frames in stacks.values() if name in names for frame in frames]
    line = " ".join(_line(frame) for frame in frames if "/diagnosis/" in frame)
    return {
        "target_name": name,
        "golden_name": None,
        "module": f"{module} ()" if module else None,
        "source_line": line.split(" ", 1)[0],
        "caller_line": None,
    }


def _line(frame: str) -> str:
    """`File /a/models/gpt.py, line 12, in forward, ...` -> `/a/models/gpt.py:12`."""
    words = frame.split(",")
    return f"{words[0].removeprefix('File ')}:{words[1].removeprefix(' line ').strip()}"


def _score(peer, each, kind, target, golden) -> scoring.Score:
    made = scoring.Score(each.name, scoring.PEER + kind, LEVEL, said="nothing was blamed")
    began = time.perf_counter()
    for step in sorted(path.name for path in target.glob("step*")):
        names = peer.named(target / step, golden / step)
        if names:
            rank = sorted((target / step).glob("rank*"))[0]
            made.blamed, made.said = True, f"{step}: {names[0]}"
            if isinstance(each, case.Fault):
                hits = [
                    scoring.names_place(each, LEVEL, _place_of(rank, name), {}) for name in names
                ]
                made.place = hits.index(True) + 1 if any(hits) else 0
            break
    made.seconds = time.perf_counter() - began
    return made


def measure(cases, options, failed) -> list:
    recordings, scores = Recordings(options.cache), []
    peer = Peer(options.peer, options.cache / "peer.log")
    try:
        for each in cases:
            for kind in KINDS:
                try:
                    sides = (recordings.target, recordings.golden)
                    target, golden = (side(each, kind, LEVEL) for side in sides)
                    scores.append(_score(peer, each, kind, target, golden))
                except (RuntimeError, OSError) as error:
                    failed.append(f"{each.name}, peer, {kind}: {error}")
    finally:
        peer.close()
        recordings.close()
    return scores
