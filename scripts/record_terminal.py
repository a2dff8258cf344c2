"""Draws docs/pictures/quickstart.svg: commands of the README, run for real, as an animated picture of a terminal.

``.venv/bin/python scripts/record_terminal.py`` exports a model into a folder of its own, runs the commands there, and
notes when each line came. What is drawn is what was printed; only the typing is made up, and waits of more than three
seconds are cut to three. Each command is followed by the seconds that it really took.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "quickstart.svg"
COMMANDS = (
    "zeropoint quantize mobilenet.pt2 --data images.npy -o mobilenet.zpt",
    "zeropoint run mobilenet.zpt --data images.npy -o results.npy",
    "zeropoint show mobilenet.zpt",
)
WIDTH, COLUMNS, LINE, LEFT, TOP = 860, 100, 19, 18, 54
LONGEST, TYPED, HOLD = 3.0, 0.025, 5.0  # seconds: of a wait, for a letter, at the end


@dataclass(frozen=True)
class Shown:
    """A line and the moment at which it appears."""

    text: str
    kind: str
    at: float


def model(folder: Path) -> None:
    """A MobileNetV2-like model with random weights, and images that are noise."""
    import numpy as np
    import torch

    sys.path.insert(0, str(ROOT / "examples" / "serving"))
    from make_model import mobile_net

    torch.manual_seed(0)
    images = torch.randn(16, 3, 224, 224)
    free = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(mobile_net().eval(), (images[:2],), dynamic_shapes=free)
    torch.export.save(exported, folder / "mobilenet.pt2")
    np.save(folder / "images.npy", images.numpy())


def lines_of(command: str, folder: Path) -> tuple[list[tuple[float, str]], float]:
    """What a command prints to standard output, with seconds since its start, and how long it took."""
    words = [sys.executable, "-m", "zeropoint.cli", *command.split()[1:]]
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "PYTHONUNBUFFERED": "1"}
    begin = time.perf_counter()
    process = subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    errors: Queue[str] = Queue()
    reader = threading.Thread(target=lambda stream: errors.put(stream.read()), args=(process.stderr,))
    reader.start()
    found = [(time.perf_counter() - begin, line.rstrip()) for line in process.stdout]
    code = process.wait()
    reader.join()
    if code:
        raise RuntimeError(f"{command} ended with {code}: {errors.get()}")
    return found, time.perf_counter() - begin


def record(folder: Path) -> list[Shown]:
    shown: list[Shown] = []
    now = 0.6
    for command in COMMANDS:
        shown.append(Shown(f"$ {command}", "typed", now))
        now += TYPED * len(command) + 0.2
        lines, seconds = lines_of(command, folder)
        last = 0.0
        for at, line in lines:
            now += min(at - last, LONGEST)
            last = at
            if line:
                shown.append(Shown(line, "out", now))
        now += 0.1
        shown.append(Shown(f"({seconds:.1f} s)", "soft", now))
        now += 1.0
    return shown


def drawn(shown: list[Shown]) -> str:
    """All lines, each hidden until its moment; then it begins anew. Without animation: all of them."""
    total = shown[-1].at + HOLD
    height = TOP + LINE * len(shown) + 14
    styles, body = [], []
    for i, line in enumerate(shown):
        first = 100 * line.at / total
        frames = f"@keyframes l{i}{{0%,{first:.2f}%{{opacity:0}}{first + 0.01:.2f}%,100%{{opacity:1}}}}"
        extra = ""
        if line.kind == "typed":
            last = 100 * (line.at + TYPED * len(line.text)) / total
            frames += (
                f"@keyframes t{i}{{0%,{first:.2f}%{{clip-path:inset(0 100% 0 0)}}{last:.2f}%,100%"
                "{clip-path:inset(0 0 0 0)}}"
            )
            extra = f",t{i} {total:.1f}s steps({len(line.text)}) infinite"
        styles.append(f"{frames}.l{i}{{animation:l{i} {total:.1f}s step-end infinite{extra}}}")
        words = escape(line.text[:COLUMNS])
        body.append(
            f'<text class="{line.kind} l{i}" x="{LEFT}" y="{TOP + LINE * i + 14}" xml:space="preserve">{words}</text>'
        )
    style = (
        ".out,.soft,.typed{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d6dbe3}"
        ".typed{fill:#fff;font-weight:600}.soft{fill:#8b95a5}"
        f"{''.join(styles)}@media (prefers-reduced-motion: reduce){{text{{animation:none!important}}}}"
    )
    buttons = "".join(f'<circle cx="{22 + 20 * i}" cy="20" r="6" fill="{c}"/>' for i, c in enumerate(
        ("#ff5f57", "#febc2e", "#28c840")))  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img"'
        ' aria-label="A terminal: a model is quantized, run and shown"><style>'
        f'{style}</style><rect width="{WIDTH}" height="{height}" rx="10" fill="#16181d" stroke="#2f343d"/>{buttons}'
        f"{''.join(body)}</svg>\n"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model(Path(folder))
        shown = record(Path(folder))
    PICTURE.write_text(drawn(shown))
    print("\n".join(f"{line.at:6.1f}  {line.text}" for line in shown))


if __name__ == "__main__":
    main()
