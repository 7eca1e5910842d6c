#!/usr/bin/env bash
# Build sdist and wheel into dist/, repair the wheel, and test it where no compiler can be found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PWD/.venv/bin:$PATH
python=$PWD/.venv/bin/python
fresh=$PWD/build/wheel-venv
raw=build/wheel-raw

echo "==> sdist and wheel"
rm -rf dist "$raw" "$fresh"
mkdir -p build
"$python" -m build --outdir "$raw" > build/wheel.log 2>&1 || { tail -n 40 build/wheel.log; exit 1; }
mkdir -p dist
"$python" -m auditwheel repair --wheel-dir dist "$raw"/*.whl
mv "$raw"/*.tar.gz dist/
wheel=$(ls "$PWD"/dist/*.whl)
"$python" -m auditwheel show "$wheel"
ls -l dist

echo "==> fresh environment, no compiler"
"$python" -m venv "$fresh"
"$fresh/bin/pip" install -q --only-binary :all: "$wheel"
echo "installed: $("$fresh/bin/pip" list --format=freeze | grep -vc -E '^(pip|setuptools)==') distributions, $(du -sh "$fresh" | cut -f 1)"
"$fresh/bin/pip" list --format=freeze | grep -i '^torch==' && { echo "torch came along"; exit 1; }
"$fresh/bin/pip" install -q --only-binary :all: pytest pytest-benchmark hypothesis

# Only git is lent from the system: the tests read the tracked files' names.
mkdir -p "$fresh/lent" && ln -sf "$(command -v git)" "$fresh/lent/git"
export PATH=$fresh/bin:$fresh/lent
unset CC CXX PYTHONPATH
for compiler in cc gcc c++ g++ clang; do
  if command -v "$compiler" > /dev/null; then echo "$compiler is on PATH"; exit 1; fi
done
(cd / && "$fresh/bin/python" -c "
import twofold, twofold.core
assert twofold.__file__.startswith('$fresh'), twofold.__file__
print('twofold', twofold.__version__, 'kernel', twofold.core.kernel())")
TWOFOLD_WHEEL=$wheel "$fresh/bin/python" tools/offline.py "$fresh/bin/python" -m pytest -q tests
