#!/usr/bin/env bash
# tools/build.sh BUILD VENV JOBS [TARGET...]: compiles the targets (default: all) in BUILD and installs the package into VENV.
# UNITY=ON: a new folder BUILD compiles each room as one file. Else each file is compiled for itself (CONTRIBUTING.md).
#
# cmake and ninja are called directly, so that their messages and progress are seen. The wheel is then made in the same
# folder from the compiled files. Neither step does anything when nothing changed.
set -euo pipefail
build=$1 venv=$2 jobs=$3
targets=("${@:4}")
python="$PWD/$venv/bin/python"
stamp="$build/.installed"

if [ -f "$build/Makefile" ]; then
  echo "error: $build/ holds the wheels' build (bash ./configure; cmake ..); type: make clean, or move that folder away" >&2
  exit 1
fi
# A folder in which each file was compiled for itself stays so: its objects are there.
unity=${UNITY:-OFF}
if [ ! -f "$build/build.ninja" ] || { [ "$unity" = OFF ] && ! grep -q '^CMAKE_UNITY_BUILD:[A-Z]*=OFF' "$build/CMakeCache.txt"; }; then
  echo "== configure $build/"
  mkdir -p "$build"
  tools/configure.sh "$build" "$python" "$unity" > "$build/configure.log" || { cat "$build/configure.log"; exit 1; }
fi
echo "== build (log: $build/.ninja_log)"
ninja -C "$build" -j "$jobs" "${targets[@]}"

# Installs again if something is newer than the last installation: a program, a module, a Python file, or a folder in
# which a file was added or removed.
newer=(-newer "$stamp" -print -quit)
[ -f "$stamp" ] || newer=(-print -quit)
programs=("$build"/cli/msprobe "$build"/python/src/_engine*.so)
if [ -n "$(find "${programs[@]}" python packaging/old_names pyproject.toml CMakeLists.txt -not -name __pycache__ "${newer[@]}")" ] \
  || [ ! -x "$venv/bin/msprobe" ]; then
  echo "== install into $venv/"
  # The tests also need the import names of the older tools: packaging/old_names/.
  names=$("$python" tools/pack_wheel.py --old-names --dist "$build/wheels")
  "$python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
    -Cbuild-dir="$build" -Ccmake.define.MSPROBE_TESTS=ON . "$names" > "$build/install.log" 2>&1 \
    || { cat "$build/install.log"; exit 1; }
  touch "$stamp"
fi
