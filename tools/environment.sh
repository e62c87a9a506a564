#!/bin/sh
# Make the tools' virtual environment at $1 from requirements.lock: whole or not at all.
#
# It is built under a temporary name and renamed, so that a half-made one is never used and two makes at once
# do not disturb each other. Everything in it is run as `python -m`, which survives the rename.
set -eu
venv=$1
lock=$2

python=
for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "error: no Python 3.11 or newer found on PATH (tried ${PYTHON:-python3, python3.11 to python3.14}); install one, or name it: make PYTHON=/path/to/python3.11" >&2
    exit 1
fi

echo "tools: making their environment with $("$python" --version), once for this lock (about 20 s) ..." >&2
mkdir -p "$(dirname "$venv")"
temporary=$(mktemp -d "$venv.XXXXXX")
trap 'rm -rf "$temporary"' EXIT
trap 'exit 130' INT TERM
if ! "$python" -m venv --clear "$temporary" >"$temporary.log" 2>&1; then
    cat "$temporary.log" >&2
    rm -f "$temporary.log"
    echo "error: $python cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2
    exit 1
fi
rm -f "$temporary.log"
if ! "$temporary/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --only-binary :all: \
    --require-hashes -r "$lock"; then
    echo "error: the tools' packages could not be installed from $lock; this step needs a package index once" >&2
    exit 1
fi
# A whole one that is already there was made by another make meanwhile; a broken one lost its base Python.
"$venv/bin/python" -c '' 2>/dev/null || { rm -rf "$venv" && mv "$temporary" "$venv"; }
echo "tools: ready" >&2
