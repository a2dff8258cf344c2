"""Runs every flow beside it, and prints what each computed as JSON."""

import json
import pathlib
import runpy
import sys

found = {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
    if path.name != "run_all.py":
        values = runpy.run_path(str(path), run_name=path.stem)  # TorchScript wants a name that it can write
        found[path.stem] = {"result": values["RESULT"].flatten().tolist(), "step": values["STEP"]}
print(json.dumps(found))
