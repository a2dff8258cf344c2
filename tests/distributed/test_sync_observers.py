"""Calibration and training on several processes give every rank what one process would have."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import run_forked
from torch import nn

import zeropoint

WORKER = Path(__file__).with_name("worker.py")


# Ranks as torchrun would start them, in processes that have imported everything.
FORKED = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
import worker
ranks = int(sys.argv[2])
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
children = []
for rank in range(ranks):
    children.append(os.fork())
    if children[-1] == 0:
        os.environ["RANK"] = str(rank)
        code = 1
        try:
            worker.main()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
"""


def forked(ranks: int) -> subprocess.CompletedProcess[str]:
    return run_forked(FORKED, WORKER.parent, ranks)


def torchrun(ranks: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(WORKER)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.mark.parametrize(
    ("start", "ranks"),
    [(forked, 2), *(pytest.param(torchrun, ranks, marks=pytest.mark.thorough) for ranks in (2, 4))],
)
def test_ranks_agree_with_one_process(start: Callable[[int], Any], ranks: int) -> None:
    done = start(ranks)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"all promises kept on {ranks} ranks" in done.stdout


def test_without_a_process_group_says_how_to_make_one() -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        zeropoint.distributed.sync_observers(zeropoint.MinMaxObserver())


def test_data_parallel_keeps_the_buffers_it_was_given() -> None:
    model = nn.Sequential(zeropoint.default_fused_act_fake_quant(), nn.Linear(4, 4), zeropoint.FakeQuantize())
    ids = [id(b) for b in model.buffers()]
    parallel = nn.DataParallel(model)
    for _ in range(3):
        parallel(torch.randn(8, 4)).sum().backward()
    assert [id(b) for b in model.buffers()] == ids
    assert model[0].activation_post_process.min_val < model[0].activation_post_process.max_val


def test_sync_batch_norm_conversion_keeps_the_qconfig() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1))
    model[1].qconfig = zeropoint.default_qconfig
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert isinstance(converted[1], nn.SyncBatchNorm)
    assert zeropoint.qconfig_equals(converted[1].qconfig, zeropoint.default_qconfig)
