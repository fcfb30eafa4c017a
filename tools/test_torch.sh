#!/usr/bin/env bash
# tools/test_torch.sh PYTHON FOLDER BUILD VENV [PYTEST ARGUMENTS]: runs the Python tests with the PyTorch of PYTHON. FOLDER becomes an
# environment with that PyTorch and our wheel. Tests that need a newer PyTorch are skipped (tests/python/torch_needs.txt).
# FRAMEWORK=mindspore: FOLDER has that framework in place of PyTorch; tests/mindspore runs, and the arguments are those of tests/run.py.
# SCRIPT=FILE: runs that file instead of the tests.
set -euo pipefail
python=$1 folder=$2 build=$3 venv=$4
shift 4
[ -x "$folder/bin/python" ] || "$python" -m venv --system-site-packages "$folder"
pip=("$folder/bin/python" -m pip --quiet --disable-pip-version-check)
grep -E '^(pytest|hypothesis|jsonschema|scikit-build-core|nanobind)==' packaging/python-requirements.txt > "$folder/requirements.txt"
"${pip[@]}" install -r "$folder/requirements.txt"

echo "== our wheel into $folder/"
kind='import sysconfig; print(sysconfig.get_config_var("SOABI"))'
wheel=(wheel --no-build-isolation --no-deps --wheel-dir "$folder/wheel" .)
rm -rf "$folder/wheel"
if [ "$("$folder/bin/python" -c "$kind")" = "$("$venv/bin/python" -c "$kind")" ]; then
  # Both environments use the same extension: nothing is compiled.
  "$venv/bin/python" -m pip --quiet --disable-pip-version-check "${wheel[@]}" -Cbuild-dir="$build" -Ccmake.define.MSPROBE_TESTS=ON
else
  "${pip[@]}" "${wheel[@]}" -Cbuild-dir=build-torch
fi
"$folder/bin/python" tools/pack_wheel.py --old-names --dist "$folder/wheel" > /dev/null
"${pip[@]}" install --no-deps --no-index --force-reinstall "$folder"/wheel/*.whl

"$folder/bin/python" -c "import ${FRAMEWORK:-torch} as f; print('==', '${SCRIPT:-Python tests}', 'under', f.__name__, f.__version__)"
[ -z "${SCRIPT:-}" ] || exec "$folder/bin/python" "$SCRIPT" "$@"
export MSPROBE_BIN="$PWD/$folder/bin/msprobe" MSPROBE_BUILD_DIR="$PWD/$build" PYTHONHASHSEED=0
[ "${FRAMEWORK:-torch}" != mindspore ] || exec "$folder/bin/python" tests/run.py --build "$build" --mindspore "$@"
[ $# -gt 0 ] || set -- tests/python tests/compat
"$folder/bin/python" -m pytest -q -p no:cacheprovider "$@"
