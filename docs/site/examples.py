"""For mkdocstrings: public names, and sections.

Names of `zeropoint` load on first use, so that its parser, which runs nothing, does not see them: they are made known
here, and `::: zeropoint.to_int8` has that heading. Our docstrings head their doctests with "Example:", which its parser
knows as "Examples:".
"""

from __future__ import annotations

from typing import Any

import griffe

import zeropoint
import zeropoint.compat


class PublicNames(griffe.Extension):
    """Adds what `zeropoint` and `zeropoint.compat` export."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        if pkg.path != "zeropoint":
            return
        for name, module in zeropoint._EXPORTS.items():
            if name not in pkg.members:
                pkg.set_member(name, griffe.Alias(name, f"zeropoint.{module}.{name}"))
        for name, module in zeropoint.compat._LAZY.items():
            pkg["compat"].set_member(name, griffe.Alias(name, f"zeropoint.compat.{module}.{name}"))


class Examples(griffe.Extension):
    """Renames the section."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
