#!/usr/bin/env bash
# The demonstration: two trainings that differ in one operation, and the command that finds this operation.
# demo.sh BIN [OUTPUT]: BIN contains python and msprobe (`make demo` passes .venv/bin). OUTPUT (default: demo_output/)
# is removed first.
set -euo pipefail
bin=$1
here=examples/demo
out=${2:-demo_output}
rm -rf "$out"

say() { printf '\n\033[1m%s\033[0m\n' "$1"; }
[ -t 1 ] || say() { printf '\n%s\n' "$1"; }

say "1. A training as it should be:  python $here/train.py --record $out/right"
"$bin/python" "$here/train.py" --record "$out/right"

say "2. The same with one operation subtly wrong:  python $here/train.py --record $out/wrong --fault"
"$bin/python" "$here/train.py" --record "$out/wrong" --fault

say "3. Which one?  msprobe compare $out/wrong/step0 $out/right/step0 -o $out/compare"
"$bin/msprobe" compare "$out/wrong/step0" "$out/right/step0" -o "$out/compare"

say "The fault was planted here:"
grep -n -A 1 "The planted fault" "$here/train.py" | sed "s|^|$here/train.py:|"
