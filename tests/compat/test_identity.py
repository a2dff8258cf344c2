"""Dtypes and schemes are to old code what torch's are, while PyTorch has them and when it has not."""

from __future__ import annotations

import pytest
from processes import WITHOUT_THE_OLD_STACK, run

OBJECTS = """
    import copy, dataclasses, io, pickle
    from typing import Any
    import torch, zeropoint.compat
    zeropoint.compat.install()
    import torch.ao.quantization as tq

    DTYPES = [torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4]
    SCHEMES = [torch.per_tensor_affine, torch.per_tensor_symmetric, torch.per_channel_affine,
               torch.per_channel_symmetric, torch.per_channel_affine_float_qparams]
    weight = tq.get_default_qconfig("x86").weight()
    DTYPES += [tq.MinMaxObserver().dtype, tq.FakeQuantize().dtype, weight.dtype]
    SCHEMES += [tq.MinMaxObserver().qscheme, tq.FakeQuantize().qscheme, weight.qscheme]
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    DTYPES.append(tq.quantize_dynamic(model, {torch.nn.Linear}).state_dict()["0._packed_params.dtype"])

    @dataclasses.dataclass(frozen=True)
    class Spec:
        value: Any

    def saved(value, weights_only):
        file = io.BytesIO()
        torch.save({"value": value}, file)
        file.seek(0)
        return torch.load(file, weights_only=weights_only)["value"]
"""
CHECKS = {
    "have torch's classes": """
        assert all(isinstance(d, torch.dtype) and not isinstance(d, torch.qscheme) for d in DTYPES)
        assert all(isinstance(s, torch.qscheme) and not isinstance(s, torch.dtype) for s in SCHEMES)
        assert not any(d.is_floating_point or d.is_complex for d in DTYPES)
    """,
    "are found by the names they print": """
        for value in DTYPES + SCHEMES:
            home, _, name = str(value).partition(".")
            assert home == "torch" and getattr(torch, name) == value and repr(value) == str(value)
    """,
    "are equal to torch's and find them in dictionaries": """
        for value in DTYPES + SCHEMES:
            same = getattr(torch, str(value).split(".")[1])
            assert value == same and same == value and {value: 1}[same] == {same: 1}[value] == 1
            assert value != torch.float32 and value not in (None, "qint8")
    """,
    "are the same after copying": """
        for value in DTYPES + SCHEMES:
            assert copy.copy(value) is value and copy.deepcopy(value) is value
            assert dataclasses.asdict(Spec(value))["value"] is value and dataclasses.replace(Spec(value)) == Spec(value)
    """,
    "are the same after pickling and saving": """
        for value in DTYPES + SCHEMES:
            assert all(pickle.loads(pickle.dumps(value, p)) is value for p in range(pickle.HIGHEST_PROTOCOL + 1))
            assert saved(value, weights_only=False) is value and saved(value, weights_only=True) is value
        assert b"zeropoint" not in pickle.dumps([torch.qint8, torch.per_channel_affine])
    """,
}


@pytest.mark.parametrize("removed", [False, True], ids=["PyTorch has them", "PyTorch has none"])
@pytest.mark.parametrize("what", CHECKS)
def test_dtypes_and_schemes(what: str, removed: bool) -> None:
    run(*[WITHOUT_THE_OLD_STACK] * removed, OBJECTS, CHECKS[what])


def test_they_are_ours_again_after_uninstalling() -> None:
    run(
        WITHOUT_THE_OLD_STACK,
        OBJECTS,
        """
        zeropoint.compat.uninstall()
        assert repr(zeropoint.qint8) == "zeropoint.qint8" and not isinstance(zeropoint.qint8, torch.dtype)
        assert b"zeropoint" in pickle.dumps(zeropoint.qint8) and not hasattr(torch, "qint8")
        """,
    )


QPARAMS = """
    import itertools, torch, zeropoint

    found = {}
    for kind, dtype, scheme, reduce_range in itertools.product(
        ("MinMaxObserver", "MovingAverageMinMaxObserver", "PerChannelMinMaxObserver",
         "MovingAveragePerChannelMinMaxObserver", "HistogramObserver"),
        ("qint8", "quint8", "qint32", "quint4x2", torch.uint8, torch.int8),
        ("per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric"),
        (False, True),
    ):
        try:
            observer = getattr(zeropoint, kind)(dtype=dtype, qscheme=scheme, reduce_range=reduce_range)
            observer(torch.linspace(-1, 2, 24).reshape(4, 6))
            found[kind, dtype, scheme, reduce_range] = [t.tolist() for t in observer.calculate_qparams()]
        except (NotImplementedError, TypeError, ValueError) as error:
            found[kind, dtype, scheme, reduce_range] = type(error).__name__
    print(sum(isinstance(v, list) for v in found.values()), sorted(map(str, found.items())))
"""


def test_observers_find_the_same_numbers_whatever_dtypes_look_like() -> None:
    alone = run(QPARAMS)
    assert int(alone.split()[0]) > 50
    assert run("import torch, zeropoint.compat; zeropoint.compat.install()", QPARAMS) == alone


@pytest.mark.oracle
def test_symmetric_observers_of_unsigned_integers_have_zero_in_the_middle_as_torchs_have() -> None:
    program = """
        import torch.ao.quantization as tq
        observer = tq.MinMaxObserver(dtype=torch.quint8, qscheme=torch.per_tensor_symmetric)
        observer(torch.tensor([-1.0, 2.0]))
        print([t.item() for t in observer.calculate_qparams()])
    """
    theirs = run("import torch", program)
    assert theirs.endswith("128]\n")
    assert run("import torch, zeropoint.compat; zeropoint.compat.install()", program) == theirs
