"""An environment with Ray, Spark, MLflow and trainers beside zeropoint: engines_venv.py build/engines-venv"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from requirements import requirements
from venv_beside import venv_beside

if __name__ == "__main__":
    subprocess.run(
        [*venv_beside(Path(sys.argv[1])), *requirements(["ray", "spark", "mlflow", "lightning", "transformers"])],
        check=True,
    )
