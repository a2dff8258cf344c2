"""Draws the pictures of the documentation into docs/pictures: ``.venv/bin/python scripts/pictures.py``.

The report is photographed with Chromium; without it, the other pictures are drawn.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from rich.console import Console

import zeropoint
from zeropoint import demo_digits

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
STYLE = """<style>
  text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #333; }
  .soft { fill: #777; } .line { stroke: #555; stroke-width: 1.5; fill: none; }
  .step { stroke: #2458d3; stroke-width: 1; } .mark { fill: #2458d3; } .bad { fill: #c62828; }
  .bars { fill: #8fb0f5; } .all { fill: none; stroke: #999; stroke-width: 2; stroke-dasharray: 5 4; }
  .chosen { fill: #2458d3; opacity: .13; } .ends { stroke: #2458d3; stroke-width: 2; } .back { fill: #fff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e2e5ea; } .soft { fill: #9aa3b0; } .line { stroke: #aaa; }
    .step, .ends { stroke: #7ea6ff; } .mark { fill: #7ea6ff; } .bad { fill: #ff8a80; } .bars { fill: #5f86d9; }
    .chosen { fill: #7ea6ff; opacity: .2; } .back { fill: #0d1117; }
  }
</style>"""
BACK = '<rect class="back" width="100%" height="100%" rx="8"/>'  # colours follow the system, the page its own switch


def svg(width: int, height: int, body: str) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
    return f"{head}{STYLE}{BACK}{body}</svg>\n"


def affine() -> str:
    """Numbers from -1 to 3 above, integers from 0 to 255 below, a few of the steps between them."""
    low, high, left, right = -1.2, 3.7, 20, 700

    def at(x: float) -> float:
        return left + (x - low) / (high - low) * (right - left)

    scale, zero_point = 4 / 255, 64
    parts = [f'<path class="line" d="M{left} 70H{right}"/>']
    for q in range(0, 256, 4):
        x = at((q - zero_point) * scale)
        parts.append(f'<path class="step" d="M{x:.1f} 70v14"/>')
    for x in (-1, 0, 1, 2, 3):
        parts.append(f'<path class="line" d="M{at(x):.1f} 64v12"/>')
        parts.append(f'<text x="{at(x):.1f}" y="54" text-anchor="middle">{x}</text>')
    for q in (0, zero_point, 128, 192, 255):
        x = at((q - zero_point) * scale)
        parts.append(f'<text class="soft" x="{x:.1f}" y="104" text-anchor="middle">{q}</text>')
    parts.append(f'<circle class="mark" cx="{at(0.3):.1f}" cy="70" r="5"/>')
    parts.append(f'<text x="{at(0.3):.1f}" y="26" text-anchor="middle">0.3 → 83 → 0.298</text>')
    parts.append(f'<path class="line" d="M{at(0.3):.1f} 32V62"/>')
    parts.append(f'<circle class="bad" cx="{at(3.5):.1f}" cy="70" r="5"/>')
    parts.append(f'<text x="{right}" y="26" text-anchor="end">5.0 → 255 → 2.996: clipped</text>')
    parts.append('<text class="soft" x="20" y="128">numbers above, the integers that represent them below; every fourth'
                 " step is drawn</text>")  # fmt: skip
    return svg(720, 140, "".join(parts))


def chosen_range() -> str:
    """A bell with a few values far out: the range of all of them, and one that gives them up."""
    values = torch.randn(20000, generator=torch.Generator().manual_seed(0))
    values[:12] = torch.linspace(8, 14, 12)
    observer = zeropoint.PercentileObserver(percentile=99.9, dtype=zeropoint.quint8)
    observer(values)
    scale, zero_point = (float(v) for v in observer.calculate_qparams())
    low, high = (0 - zero_point) * scale, (255 - zero_point) * scale
    left, right, bottom, first, last = 20.0, 700.0, 170.0, -5.0, 15.0

    def at(x: float) -> float:
        return left + (x - first) / (last - first) * (right - left)

    counts = torch.histc(values, 100, first, last)
    tall = torch.log1p(counts) / torch.log1p(counts.max()) * 120
    bar = (right - left) / 100
    bars = "".join(
        f"M{left + i * bar:.1f} {bottom}v-{float(t):.1f}h{bar - 1:.1f}V{bottom}z" for i, t in enumerate(tall)
    )
    everything = at(float(values.min())), at(float(values.max()))
    body = (
        f'<rect class="chosen" x="{at(low):.1f}" y="40" width="{at(high) - at(low):.1f}" height="{bottom - 40}"/>'
        f'<path class="bars" d="{bars}"/><path class="line" d="M{left} {bottom}H{right}"/>'
        f'<path class="ends" d="M{at(low):.1f} 40V{bottom}M{at(high):.1f} 40V{bottom}"/>'
        f'<rect class="all" x="{everything[0]:.1f}" y="30" width="{everything[1] - everything[0]:.1f}"'
        f' height="{bottom - 30}"/>'
        f'<text x="{at(high) + 8:.1f}" y="90">chosen: steps of {scale:.3f}</text>'
        f'<text x="{everything[1] - 6:.1f}" y="46" text-anchor="end">all values: steps of '
        f"{(float(values.max()) - float(values.min())) / 255:.3f}</text>"
        f'<text class="soft" x="{right}" y="192" text-anchor="end">heights are logarithmic: the bars on the right are'
        " one value each</text>"
    )
    return svg(720, 200, body)


def terminal(result: object) -> str:
    """What a command prints, as a picture of a terminal."""
    console = Console(record=True, width=104, file=io.StringIO(), force_terminal=True)
    console.print("[bold]$ zeropoint compare digits.pt2 --data images.npy[/bold]")
    console.print(result)
    drawn = console.export_svg(title="zeropoint compare")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # fonts from the network


def photograph(page: Path, picture: Path, width: int, height: int) -> None:
    found = next((shutil.which(name) for name in ("chromium", "google-chrome") if shutil.which(name)), None)
    if found is None:
        print(f"no Chromium: {picture.name} stays as it is")
        return
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},{height}"]
    subprocess.run([found, *flags, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)


def program_page(model: torch.nn.Module, images: torch.Tensor, folder: Path) -> None:
    """The page of `zeropoint show` with one step opened. In a frame: Chromium photographs no page that was scrolled."""
    program = zeropoint.compile(zeropoint.to_int8(model, (images,), [images]), (images,))
    zeropoint.write_program_page(folder / "program.html", program, [images], title="digits.zpt")
    frame = '<iframe src="program.html#step=2" style="border:0;width:1180px;height:4000px"></iframe>'
    still = "margin:0;height:1640px;overflow:clip"
    (folder / "frame.html").write_text(f'<html style="{still}"><body style="{still}">{frame}</body></html>')
    photograph(folder / "frame.html", PICTURES / "show.png", 1180, 1640)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "affine.svg").write_text(affine())
    (PICTURES / "range.svg").write_text(chosen_range())
    model = demo_digits.trained(4)
    images = demo_digits.digits()[2].split(100)
    quantized = zeropoint.to_int8(model, (images[0],), images)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        found = zeropoint.write_report(page, model, quantized, images, title="Digits, residual CNN")
        photograph(page, PICTURES / "report.png", 1000, 1240)
        text = page.read_text()
        start, end = text.index("<h2>Distribution of"), text.index("<h2>Speed by")
        head = text[: text.index("<header>")]
        (Path(folder) / "part.html").write_text(
            f"{head}<main><section>{text[start:end]}</section></main></body></html>"
        )
        photograph(Path(folder) / "part.html", PICTURES / "report_histograms.png", 1000, 620)
        program_page(model, images[0], Path(folder))
    (PICTURES / "terminal.svg").write_text(terminal(found.comparison))


if __name__ == "__main__":
    main()
