#!/bin/sh
# Builds the sdist, from it the wheel, installs that alone into an empty environment, and uses it there.
set -eu

rm -rf dist build/empty
mkdir -p build
PIP_CONSTRAINT=$(pwd)/constraints.txt .venv/bin/python -m build --outdir dist >build/wheel.log 2>&1 || {
    cat build/wheel.log >&2
    exit 1
}
ls -sh dist

.venv/bin/python -m venv build/empty
build/empty/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl

# From another folder, so that nothing of the checkout can be imported by chance.
bin=$(pwd)/build/empty/bin
cd "$(mktemp -d)"
"$bin/python" - <<'PYTHON'
import importlib.util
import pathlib
import sys

import kfp_jax

assert pathlib.Path(kfp_jax.__file__).is_relative_to(sys.prefix), kfp_jax.__file__
extras = [name for name in ("kfp", "jax", "kubernetes") if importlib.util.find_spec(name)]
assert not extras, f"the base install brought {extras}"
PYTHON
"$bin/kfp-jax" --help >/dev/null
"$bin/python" -m pip list --format=freeze | wc -l |
    xargs printf 'the wheel imports and its command line answers, beside %s packages in all\n'
