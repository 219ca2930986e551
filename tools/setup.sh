#!/bin/sh
# Makes .venv and installs this project into it, editable, with the pinned versions of constraints.txt.
#
#   tools/setup.sh PYTHON EXTRAS STAMP
#
# STAMP is written last and holds the folder that the environment was made for (its scripts name that
# folder, so a moved checkout needs a new one). An environment without any stamp was left half made:
# it is made again from nothing.
set -eu

python=$1 extras=$2 stamp=$3
here=$(pwd)
venv=.venv
log=$venv/setup.log

say() { echo "setup: $*"; }
refuse() {
    echo "setup: $*" >&2
    exit 1
}

usable=no
for known in "$venv"/.setup-*; do
    if [ -f "$known" ] && [ "$(cat "$known")" = "$here" ] && "$venv/bin/python" -c '' 2>/dev/null; then
        usable=yes
    fi
done
if [ $usable = no ]; then
    command -v "$python" >/dev/null ||
        refuse "there is no program '$python'; install Python 3.11 or newer, or name one: make setup PYTHON=python3.12"
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        refuse "'$python' is Python $version, but 3.11 or newer is needed; name one: make setup PYTHON=python3.12"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        refuse "'$python' (Python $version) comes without its venv module; install it (on Debian and Ubuntu: apt-get install python3-venv)"
    if [ -e "$venv" ]; then say "$venv is unfinished or was made elsewhere: making it again"; fi
    "$python" -m venv --clear "$venv"
fi
rm -f "$venv"/.setup-*

say "installing kfp-jax[$extras] into $venv with $("$venv/bin/python" --version): takes 1 to 2 GB of disk and 1 to 5 minutes, once"
begun=$(date +%s)
: >"$log"

# A sign of life for a person at a terminal.
ticker=
if [ -t 1 ]; then
    while sleep 1; do
        printf '\rsetup: %d packages found, %d s ' "$(grep -c '^Collecting' "$log")" $(($(date +%s) - begun))
    done &
    ticker=$!
    trap 'kill $ticker 2>/dev/null; echo' EXIT
fi

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
{
    "$venv/bin/python" -m pip install "$(grep '^pip==' constraints.txt)" &&
        "$venv/bin/python" -m pip install -c constraints.txt --build-constraint constraints.txt -e ".[$extras]"
} >>"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    refuse "pip failed (above; all of it is in $log); the next run starts again"
}
if [ -n "$ticker" ]; then
    kill "$ticker"
    trap - EXIT
    echo
fi
echo "$here" >"$stamp"
say "done in $(($(date +%s) - begun)) s"
