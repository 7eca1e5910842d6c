#!/usr/bin/env bash
# Run the Python tests of the core under AddressSanitizer and UBSan. An environment of its own, because an
# editable install would shadow the sanitized extension; other packages are borrowed from .venv by path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PWD/.venv/bin:$PATH
own=$PWD/build/asan-venv
[ -x "$own/bin/python" ] || .venv/bin/python -m venv --without-pip "$own"
packages=$("$own/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$packages/borrowed.pth"

if [ ! -e "$own/.built" ] || [ -n "$(find CMakeLists.txt cpp python -type f -newer "$own/.built" -not -name '*.pyc' -print -quit)" ]; then
  echo "==> building with sanitizers"
  touch "$own/.started"
  .venv/bin/python -m pip --python "$own/bin/python" install -q --no-build-isolation --no-deps --force-reinstall . \
    -C build-dir=build/asan-{wheel_tag} -C cmake.build-type=RelWithDebInfo -C install.strip=false \
    -C cmake.define.TWOFOLD_SANITIZE=address,undefined
  mv "$own/.started" "$own/.built"
fi

echo "==> tests under sanitizers"
# Python itself keeps memory until it exits, so leaks are left to the C++ tests.
# No fault handler and no capturing of descriptors: both would hide the report.
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc
LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so)" \
  "$own/bin/python" -m pytest -q -p no:cacheprovider -p no:faulthandler --capture=sys "${@:-tests/core}"
