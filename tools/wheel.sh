#!/usr/bin/env bash
# tools/wheel.sh PYTHON DIST: two wheels in DIST, msprobe's for this version of Python and msprobe-old-names. msprobe's contains
# every library (MSPROBE_STATIC): any Linux with glibc of this machine's version or newer runs it, without a Debian package of ours.
set -euo pipefail
python=$1 dist=$2
build=build-wheel

echo "== the wheel (log: $build/wheel.log)"
mkdir -p "$build"
rm -rf "$build/wheels"
"$python" -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$build/wheels" \
  -Cbuild-dir="$build/$("$python" -c 'import sys; print(sys.implementation.cache_tag)')" -Ccmake.define.MSPROBE_STATIC=ON . \
  > "$build/wheel.log" 2>&1 || { cat "$build/wheel.log"; exit 1; }
"$python" tools/pack_wheel.py --portable "$build"/wheels/*.whl --dist "$dist"
"$python" tools/pack_wheel.py --old-names --dist "$dist"
