#!/bin/sh
# Prints the interpreter the virtual environment is made from: $PYTHON if set, else the first of the list that is
# Python >= 3.10 with venv and the C headers. `python3` comes first, so the machine's own choice wins.
set -eu

about='
import os, sys, sysconfig
if sys.version_info < (3, 10):
    sys.exit("is Python %d.%d" % sys.version_info[:2])
try:
    import ensurepip, venv
except ImportError:
    sys.exit("has no venv module")
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    sys.exit("has no C headers (Python.h)")
'

rejected=""
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python3.10 python}; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    if reason=$("$candidate" -c "$about" 2>&1); then
        command -v "$candidate"
        exit 0
    fi
    rejected="$rejected
    $(command -v "$candidate"): $(printf '%s\n' "$reason" | tail -n 1)"
done

cat >&2 <<EOF
error: zeropoint needs Python 3.10 or newer, with venv and the C headers, and found none.${rejected:+
  Looked at:$rejected}
  Install it, then run make again (or name one: make setup PYTHON=/path/to/python3):
    Debian, Ubuntu   apt install python3 python3-venv python3-dev
    Fedora           dnf install python3 python3-devel
    macOS            brew install python
EOF
exit 1
