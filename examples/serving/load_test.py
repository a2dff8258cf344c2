"""load_test.py FOLDER [--clients 2] [--seconds 20]: throughput and latency of both servers, as a Markdown table.

FOLDER is what make_model.py wrote. Each server runs in its own process. Each client keeps one connection and sends the
next request when the last one is answered. Rounds alternate between the servers, so other load affects both. `make
bench-serving` installs what this needs, makes the model and runs it.
"""

import argparse
import datetime
import http.client
import importlib.metadata
import io
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def start(model: Path, port: int, threads: int, most: int = 1) -> subprocess.Popen:
    environment = {**os.environ, "MODEL": str(model), "THREADS": str(threads), "MOST_SAMPLES": str(most)}
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(HERE), "server:app", "--port", str(port)]
    process = subprocess.Popen([*command, "--log-level", "error"], env=environment)
    for _ in range(300):
        try:
            http.client.HTTPConnection("127.0.0.1", port, timeout=1).connect()
            return process
        except OSError:
            time.sleep(0.1)
    process.terminate()
    raise RuntimeError(f"the server of {model} does not answer")


def machine() -> str:
    """The CPU, its load before the test, and the versions that were compared."""
    with open("/proc/cpuinfo") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown CPU")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("zeropoint", "onnxruntime"))
    return f"{datetime.date.today()}: {cpu}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {versions}"


def measure(port: int, clients: int, seconds: float, body: bytes) -> list[float]:
    """Seconds of each request."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while time.perf_counter() < end:
            begin = time.perf_counter()
            connection.request("POST", "/predict", body)
            response = connection.getresponse()
            response.read()
            assert response.status == 200, response.status
            times.append(time.perf_counter() - begin)

    workers = [threading.Thread(target=client) for _ in range(clients)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return times


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20, help="for each server")
    parser.add_argument("--threads", type=int, default=1, help="for one inference")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1, help="also a server that runs up to so many requests as one")
    options = parser.parse_args()
    print(f"{machine()}; clients {options.clients}, threads per inference {options.threads}\n")
    written = io.BytesIO()
    np.save(written, np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32))
    models = {"zeropoint": "model.zpt", "ONNX Runtime": "model.onnx"}
    if options.batch > 1:
        models[f"zeropoint, batches of up to {options.batch}"] = "model.zpt"
    servers = {
        name: start(options.folder / file, 8411 + i, options.threads, options.batch if "batches" in name else 1)
        for i, (name, file) in enumerate(models.items())
    }
    try:
        found: dict[str, list[float]] = {name: [] for name in models}
        for i in range(len(models)):
            measure(8411 + i, options.clients, 1, written.getvalue())  # not counted
        for _ in range(options.rounds):
            for i, name in enumerate(models):
                found[name] += measure(8411 + i, options.clients, options.seconds / options.rounds, written.getvalue())
        print("| server | requests/s | median | p99 |\n|---|---|---|---|")
        for name, times in found.items():
            cuts = statistics.quantiles(times, n=100)
            rate = len(times) / options.seconds
            print(f"| {name} | {rate:.1f} | {cuts[49] * 1e3:.1f} ms | {cuts[98] * 1e3:.1f} ms |")
    finally:
        for server in servers.values():
            server.terminate()
            server.wait()
