"""The arena of a program as SVG: memory upwards, steps to the right. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from zeropoint.report.program_facts import Block
from zeropoint.table import readable_bytes


def arena_svg(
    blocks: Sequence[Block],
    instructions: Sequence[int],
    arena: int,
    names: Mapping[int, str],
    width: int = 1000,
    height: int = 240,
) -> str:
    """A rectangle for each stretch of memory, from the instruction that writes it to the last one that uses it.

    Args:
        instructions: the step of each.
        arena: bytes in all.
        names: of the steps, for a tip.

    Example:
        >>> arena_svg([Block(0, 64, 0, 1, 0), Block(64, 64, 1, 2, 1)], [0, 1, 2], 128, {}).count("<rect")
        2
    """
    left, top, bottom = 84, 8, height - 28
    step = (width - left - 4) / max(len(instructions), 1)
    tall = (bottom - top) / max(arena, 1)
    marks = []
    for part in range(5):
        nbytes = arena * part // 4
        y = bottom - nbytes * tall
        marks.append(
            f'<path class="grid" d="M{left} {y:.1f}H{width - 4}"/>'
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{readable_bytes(nbytes)}</text>'
        )
    apart = max(1, -(-len(instructions) // 8))
    for i in range(0, len(instructions), apart):
        if instructions[i] >= 0:
            marks.append(
                f'<text x="{left + i * step + step / 2:.1f}" y="{height - 8}" text-anchor="middle">{instructions[i]}'
                "</text>"
            )
    drawn = []
    for block in blocks:
        x, y = left + block.first * step, bottom - (block.offset + block.nbytes) * tall
        wide, high = (block.last - block.first + 1) * step, block.nbytes * tall
        about = f"{names.get(block.step, 'copies')}: {readable_bytes(block.nbytes)}"
        drawn.append(
            f'<rect class="block" data-step="{block.step}" x="{x:.1f}" y="{y:.1f}" width="{max(wide - 0.6, 0.6):.1f}"'
            f' height="{max(high - 0.6, 0.6):.1f}"><title>{escape(about)}</title></rect>'
        )
    return (
        f'<svg class="arena" viewBox="0 0 {width} {height}" role="img" aria-label="memory over time">'
        f"{''.join(marks)}{''.join(drawn)}</svg>"
    )
