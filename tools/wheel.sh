#!/usr/bin/env bash
# tools/wheel.sh PYTHON DIST: writes two wheels to DIST: msprobe for this version of Python, and msprobe-old-names. The first contains
# every library (MSPROBE_STATIC): it runs on any Linux whose glibc is as new as this machine's or newer, without Debian packages.
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
