"""Programs against src/zeropoint/runtime/program.schema.json.

Run this file to write the names of the steps there anew:  .venv/bin/python tests/program_schema.py
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema

from zeropoint import _native, runtime

PATH = Path(runtime.__file__).parent / "program.schema.json"


@functools.cache
def _validators() -> tuple[Any, Any]:
    schema = json.loads(PATH.read_text())
    result = {"$ref": "#/$defs/result", "$defs": schema["$defs"]}
    return jsonschema.Draft202012Validator(schema), jsonschema.Draft202012Validator(result)


def check_program(program: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError unless `program`, and the result that it describes, fit the schema."""
    whole, result = _validators()
    whole.validate(program)
    if program.get("result"):
        result.validate(json.loads(program["result"]))


def expected() -> str:
    """The schema with the steps of the native core."""
    schema = json.loads(PATH.read_text())
    schema["$defs"]["step"]["properties"]["op"]["enum"] = _native.engine_steps()
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    PATH.write_text(expected())
