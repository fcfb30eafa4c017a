#!/usr/bin/env bash
# tools/configure.sh BUILD PYTHON UNITY: configures the folder BUILD for the program, the extension and the tests. UNITY is ON, and
# each room is compiled as one file, or OFF: CONTRIBUTING.md says when.
set -euo pipefail
build=$1 python=$2 unity=$3
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMSPROBE_TESTS=ON -DMSPROBE_PYTHON=ON -DMSPROBE_WERROR=ON \
  -DCMAKE_UNITY_BUILD="$unity" -DPython_EXECUTABLE="$python" -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)"
