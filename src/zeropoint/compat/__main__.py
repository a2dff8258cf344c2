"""``python -m zeropoint.compat program.py arguments``, or ``-m package.module arguments``: run old code as it is."""

from __future__ import annotations

import os
import runpy
import sys

from zeropoint.compat import install

_USAGE = "usage: python -m zeropoint.compat (program.py | -m module) [arguments]"


def main(arguments: list[str]) -> None:
    """Install the old names, then run a program with its own arguments, as the main program.

    Example:
        >>> main([])
        Traceback (most recent call last):
        SystemExit: usage: python -m zeropoint.compat (program.py | -m module) [arguments]
    """
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        raise SystemExit(_USAGE)
    if arguments[0] == "-m":
        install()
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    program = arguments[0]
    if not os.path.exists(program):
        raise SystemExit(f"{program} does not exist: pass the path of a script. {_USAGE}")
    install()
    sys.argv = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
