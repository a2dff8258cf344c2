"""How messages become the text of a prompt: a few known formats, recognized by their marks.

Templates of model files are programs in a language of their own. They are not run: what a file says selects one of the
formats here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ChatFormat:
    """What stands around messages.

    Args:
        name: of the format.
        around: for each role the text before and behind a message.
        system: the first message if there is no other system message; empty for none.
    """

    name: str
    around: Mapping[str, tuple[str, str]]
    system: str = ""

    def parts(self, messages: Sequence[Mapping[str, str]]) -> list[tuple[str, bool]]:
        """Texts in their order, and whether each is a mark of the format; behind them the assistant goes on. An empty
        system message stands for none, not even that of the model.

        Raises:
            ValueError: if a message is not ``{"role": ..., "content": ...}`` with a known role.

        Example:
            >>> form = recognized("<|im_start|>")
            >>> "".join(text for text, _ in form.parts([{"role": "user", "content": "Hi"}]))
            '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n'
        """
        found: list[tuple[str, bool]] = []
        given = list(messages)
        if self.system and (not given or given[0].get("role") != "system"):
            given.insert(0, {"role": "system", "content": self.system})
        if given and given[0] == {"role": "system", "content": ""}:
            del given[0]
        for message in given:
            role, content = message.get("role"), message.get("content")
            if role is None or role not in self.around or not isinstance(content, str):
                raise ValueError(
                    f"a message must be {{'role': ..., 'content': text}} with a role of {', '.join(self.around)}; got"
                    f" the role {role!r} and a content of type {type(content).__name__}"
                )
            before, behind = self.around[role]
            found += [(before, True), (content, False), (behind, True)]
        return [*found, (self.around["assistant"][0], True)]

    def facts(self) -> dict[str, Any]:
        """The format as JSON has it."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Any) -> ChatFormat:
        """What `facts` gave.

        Raises:
            ValueError: if it is something else.
        """
        try:
            around = {role: (before, behind) for role, (before, behind) in facts["around"].items()}
            texts = [facts["name"], facts["system"], *(text for pair in around.values() for text in pair)]
            if not all(isinstance(text, str) for text in texts) or "assistant" not in around:
                raise TypeError
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ValueError("the chat format of the file is damaged") from None
        return cls(facts["name"], around, facts["system"])


def _same(before: str, behind: str, assistant: str = "assistant") -> dict[str, tuple[str, str]]:
    names = {"system": "system", "user": "user", "assistant": assistant}
    return {role: (before.replace("ROLE", name), behind) for role, name in names.items()}


_USER_TURN = ("<start_of_turn>user\n", "<end_of_turn>\n")
# Marks that all must be in a template, and the format; the first that fits.
_KNOWN = (
    (("<|im_start|>",), ChatFormat("chatml", _same("<|im_start|>ROLE\n", "<|im_end|>\n"))),
    (
        ("<|start_header_id|>",),
        ChatFormat("llama3", _same("<|start_header_id|>ROLE<|end_header_id|>\n\n", "<|eot_id|>")),
    ),
    (
        ("<start_of_turn>",),
        ChatFormat("gemma", {**_same("<start_of_turn>ROLE\n", "<end_of_turn>\n", "model"), "system": _USER_TURN}),
    ),
    (("<|user|>", "<|end|>"), ChatFormat("phi3", _same("<|ROLE|>\n", "<|end|>\n"))),
    (("<|user|>", "<|assistant|>"), ChatFormat("zephyr", _same("<|ROLE|>\n", "</s>\n"))),
    (
        ("[INST]",),
        ChatFormat("mistral", {"system": ("", "\n\n"), "user": ("[INST] ", " [/INST]"), "assistant": (" ", "</s>")}),
    ),
)


def known_format(name: str) -> ChatFormat | None:
    """The format of this name, or None if it is none of those here."""
    return next((form for _, form in _KNOWN if form.name == name), None)


def recognized(template: str) -> ChatFormat | None:
    """The format that a template of a model file writes, or None if it is none of those here."""
    for marks, form in _KNOWN:
        if all(mark in template for mark in marks):
            before, behind = (re.escape(text.strip()) for text in form.around["system"])
            default = re.search(rf"{before}\s*([^{{}}']+?){behind}", template) if before else None
            return ChatFormat(form.name, form.around, default[1] if default else "")
    return None
