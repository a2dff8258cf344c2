"""Old names of PT2E, which PyTorch gave to torchao."""

from __future__ import annotations

from forked import run_forked

CODE = """
import sys
import zeropoint.compat
zeropoint.compat.install()
assert not any(name.startswith("torchao") for name in sys.modules)
from torch.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
from torch.ao.quantization.quantizer import Quantizer
from torch.ao.quantization.quantizer.x86_inductor_quantizer import X86InductorQuantizer
import torchao.quantization.pt2e.quantize_pt2e as theirs
assert prepare_pt2e is theirs.prepare_pt2e and convert_pt2e is theirs.convert_pt2e
assert issubclass(X86InductorQuantizer, Quantizer)
zeropoint.compat.uninstall()
assert "torch.ao.quantization.quantize_pt2e" not in sys.modules
"""


def test_old_names_of_pt2e_are_torchaos_where_pytorch_has_them_no_more() -> None:
    ran = run_forked(CODE)
    assert ran.returncode == 0, ran.stderr
