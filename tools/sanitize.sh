#!/usr/bin/env bash
# tools/sanitize.sh PYTHON JOBS [ROOM...]: builds the C++ tests under sanitizers, in build-asan/ (address, undefined) and build-tsan/
# (thread), and runs them all; in build-asan/ also the fuzz targets on their seeds and the program on the end-to-end cases.
# ROOM, a folder of tests/ such as compare: only its tests. UNITY=ON: new folders compile each room as one file.
set -euo pipefail
python=$1 jobs=$2 rooms=("${@:3}")
rooms=("${rooms[@]#*/}")
for room in "${rooms[@]}"; do
  compgen -G "tests/$room/*_test.cc" > /dev/null || { echo "error: tests/$room/ has no tests in C++" >&2; exit 1; }
done
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1

build() {
  echo "== $1: $2"
  # -O1: half the build time, and stacks that match the source.
  [ -f "$1/build.ninja" ] || cmake -S . -B "$1" -G Ninja -DMSPROBE_TESTS=ON "-DMSPROBE_SANITIZE=$2" "-DCMAKE_UNITY_BUILD=${UNITY:-OFF}" \
    "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -D_GLIBCXX_ASSERTIONS" > /dev/null
  ninja -C "$1" -j "$jobs" "${rooms[@]/%/_test}"
}

status=0
tests() { # tests BUILD: names of the tests that were built
  if [ ${#rooms[@]} -gt 0 ]; then
    printf '%s\n' "${rooms[@]}"
  else
    for program in "$1"/tests/*/*_test; do basename "$(dirname "$program")"; done
  fi
}
run() { # run BUILD NAME
  echo "-- $1 $2"
  "$1/tests/$2/$2_test" --gtest_brief=1 || status=1
}

build build-asan address,undefined
for room in $(tests build-asan); do run build-asan "$room"; done
[ ${#rooms[@]} -gt 0 ] || MSPROBE_BUILD_DIR=build-asan MSPROBE_BIN=$PWD/build-asan/cli/msprobe \
  "$python" -m pytest -q tests/python/test_fuzz.py tests/python/test_metric_oracle.py tests/compare || status=1
build build-tsan thread
export GTEST_FILTER=-Damage.*  # these tests read files cut at every byte, on one thread: minutes without a use here
for room in $(tests build-tsan); do run build-tsan "$room"; done
exit $status
