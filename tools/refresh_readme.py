"""Copies the output of the demo's comparison into both READMEs. Type: make demo, then this.

.venv/bin/python tools/refresh_readme.py
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "<!-- demo output: refreshed by tools/refresh_readme.py -->\n"
END = "<!-- end of demo output -->"


def main() -> int:
    step = "step0"
    program = Path(sys.executable).parent / "msprobe"
    command = ["compare", f"demo_output/wrong/{step}", f"demo_output/right/{step}"]
    command += ["-o", "demo_output/compare"]
    done = subprocess.run([program, *command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr, "type first: make demo", sep="", file=sys.stderr)
        return 1
    output = done.stdout.replace(f"{ROOT}/", "").strip("\n")
    text = "\n".join(line.rstrip() for line in output.split("\n"))
    picture = f"```text\n$ msprobe {' '.join(command)}\n{text}\n```\n"
    for name in ("README.md", "README.zh.md"):
        readme = ROOT / name
        before, rest = readme.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        readme.write_text(before + BEGIN + picture + END + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
