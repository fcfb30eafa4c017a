#!/usr/bin/env bash
# The demonstration across frameworks: the demo's transformer in PyTorch, and in MindSpore with one operation subtly wrong.
# demo_mindspore.sh BIN MINDSPORE_BIN [OUTPUT]: BIN contains msprobe and a python with PyTorch, MINDSPORE_BIN one with MindSpore
# (`make demo-mindspore` passes both). OUTPUT (default: demo_output/) is removed first.
set -euo pipefail
bin=$1 mindspore=$2
here=examples/demo
out=${3:-demo_output}
rm -rf "$out"
mkdir -p "$out"

say() { printf '\n\033[1m%s\033[0m\n' "$1"; }
[ -t 1 ] || say() { printf '\n%s\n' "$1"; }

say "1. A training as it should be, in PyTorch:  python $here/train.py --record $out/pytorch"
"$bin/python" "$here/export.py" "$out/weights.npz"
"$bin/python" "$here/train.py" --record "$out/pytorch"

say "2. The same in MindSpore, with one operation subtly wrong:  python $here/train_mindspore.py --record $out/mindspore --fault"
"$mindspore/python" "$here/train_mindspore.py" --weights "$out/weights.npz" --record "$out/mindspore" --fault

say "3. Which one?  msprobe compare $out/mindspore/step0 $out/pytorch/step0 -o $out/compare"
"$bin/msprobe" compare "$out/mindspore/step0" "$out/pytorch/step0" -o "$out/compare"

say "The fault was planted here:"
grep -n -A 1 "The planted fault" "$here/train_mindspore.py" | sed "s|^|$here/train_mindspore.py:|"
