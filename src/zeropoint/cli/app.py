"""The commands, one file each."""

from __future__ import annotations

import os
import warnings
from importlib import metadata
from typing import Annotated

import typer

from zeropoint.cli.bench import bench
from zeropoint.cli.chat import chat
from zeropoint.cli.compare import compare
from zeropoint.cli.convert import convert
from zeropoint.cli.doctor import doctor
from zeropoint.cli.export import export
from zeropoint.cli.inspect import inspect
from zeropoint.cli.migrate import migrate
from zeropoint.cli.output import show_tracebacks
from zeropoint.cli.quantize import quantize
from zeropoint.cli.report import report
from zeropoint.cli.run import run
from zeropoint.cli.sensitivity import sensitivity
from zeropoint.cli.show import show_program
from zeropoint.cli.tune import tune

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
)
for command in (
    quantize,
    chat,
    tune,
    export,
    inspect,
    run,
    bench,
    compare,
    sensitivity,
    report,
    convert,
    migrate,
    doctor,
):
    app.command()(command)
app.command("show")(show_program)


def _version(wanted: bool) -> None:
    if wanted:
        print(metadata.version("zeropoint"))
        raise typer.Exit


@app.callback()
def zeropoint(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show all calls that led to an error. It may stand behind the command.")
    ] = False,
) -> None:
    """Quantize models to 8 bits, inspect and measure them, and find the layers that lose accuracy.

    A MODEL is a torch.export (`.pt2`), ONNX or TorchScript (`.pt`) file, or `package.module:factory`, a function that
    returns it. DATA is a `.npy`, `.npz` or `.safetensors` file with samples along the first axis, a folder of images,
    or `package.module:iterable`. Code can also be in a file: `path/file.py:name`.
    """
    show_tracebacks(traceback)
    warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)  # torch's, about its own files
    warnings.filterwarnings("ignore", message="qconfig_mapping: these rules match nothing")  # our own
    if context.invoked_subcommand != "bench":
        # Threads of torch that wait for each other spin, which takes minutes where others use the CPU, too.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
