"""Dumps of cases, recorded once: a folder is named by a hash of the sources that made it."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import case

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# What decides the content of a dump. engine/compare is not among them.
RECORDING = ("engine/base", "engine/tensor", "engine/kernels", "engine/formats", "engine/model")
RECORDING += ("engine/dump", "engine/stability", "engine/gradients", "python/src", "python/msprobe")
TASKS = {"statistics": "statistics", "tensor": "tensor", "md5": "statistics"}


def _digest(paths) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _sources(folders) -> list[Path]:
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".cc", ".h", ".py", ".yaml"}
    )


class Recordings:
    """A process that records (recorder.py), started when a recording is not in the cache.

    recordings = Recordings(cache_folder)
    folder = recordings.golden(a_case, "tensor", "L1")
    """

    def __init__(self, cache: Path):
        self.cache = cache
        self.arguments = [] if case.folder == HERE else [str(case.folder.relative_to(HERE))]
        self.process = None
        self.seconds = 0.0
        common = [HERE / "recorder.py", HERE / "case.py"]
        self.tool = _digest(_sources(RECORDING) + common)

    def golden(self, each: case.Case, kind: str, level: str) -> Path:
        return self._recorded(each, kind, level, [], 1)

    def target(self, each: case.Case, kind: str, level: str) -> Path:
        threads = each.settings.get("threads", 1)
        return self._recorded(each, kind, level, each.edits, threads)

    def alike(self, target: Path, golden: Path) -> bool:
        """Whether both sides began with the same weights, and ended with nearly the same."""
        a, b = (json.loads((side / "recorded").read_text()) for side in (target, golden))
        began = abs(a["began"] - b["began"]) <= 1e-9 * b["began"]
        return began and abs(a["ended"] - b["ended"]) <= 1e-3 * b["ended"]

    def _recorded(self, each, kind, level, edits, threads) -> Path:
        both = each.edits_both
        job = {"program": each.program, "edits": edits, "both": both, "level": level}
        job |= {"task": TASKS[kind], "summary_mode": "md5" if kind == "md5" else "statistics"}
        job |= {"threads": threads, "steps": each.steps}
        sources = _sources_of(each) if edits or both else [case.program_file(each)]
        words = json.dumps(job, sort_keys=True) + self.tool + _digest(sources)
        name = each.name if edits else both or each.program
        short = hashlib.sha256(words.encode()).hexdigest()[:12]
        folder = self.cache / f"{name.replace('/', '.')}-{kind}-{level}-{short}"
        done = folder / "recorded"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            answer = self._ask(job | {"folder": str(folder)})
            if answer["error"]:
                raise RuntimeError(f"{each.name}: recording failed:\n{answer['error']}")
            self.seconds += answer["seconds"]
            done.write_text(json.dumps(answer))
        return folder

    def _ask(self, job) -> dict:
        if self.process is None:
            self.cache.mkdir(parents=True, exist_ok=True)
            self.log = open(self.cache / "recorder.log", "w")  # noqa: SIM115  closed by close()
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", HERE / "recorder.py", *self.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                text=True,
            )
        print(json.dumps(job), file=self.process.stdin, flush=True)
        text = self.process.stdout.readline()
        return json.loads(text) if text else {"error": (self.cache / "recorder.log").read_text()}

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.log.close()


def _sources_of(each) -> list[Path]:
    return [case.program_file(each), *each.files]
