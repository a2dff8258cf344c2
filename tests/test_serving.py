"""The server of examples/serving: what clients send wrongly, slowly or in masses is answered in words, and ends."""

from __future__ import annotations

import contextlib
import http.client
import importlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import golden_programs
import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples" / "serving"
MODEL = golden_programs.FOLDER / "image.zpt"
MOST, SECONDS = 200_000, 1.5
SERVER_PARTS = {"batching", "metrics", "open_inference"}  # files beside server.py
X = np.ones((2, 3, 8, 8), np.float32)


class Running:
    def __init__(self, most: int, **environment: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        app = ["uvicorn", "--app-dir", str(EXAMPLES), "server:app"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", *app, "--port", str(self.port), "--log-level", "error"],
            env={**os.environ, "MODEL": str(MODEL), "MOST_BYTES": str(most), "SECONDS": str(SECONDS)} | environment,
        )
        for _ in range(600):
            with contextlib.suppress(OSError):
                return self.connect().close()
            time.sleep(0.05)
        raise RuntimeError("the server does not answer")

    def connect(self, first: bytes = b"") -> socket.socket:
        """A connection on which something was sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.sendall(first)
        return connection

    def ask(self, body: object, path: str = "/predict", method: str = "POST") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()

    def peak(self) -> int:
        """The most memory that the server had, in kB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


@contextlib.contextmanager
def running(most: int = MOST, **environment: str) -> Iterator[Running]:
    server = Running(most, **environment)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as found:
        yield found


def written(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def with_header(text: str, data: bytes, version: int = 1) -> bytes:
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode("latin1") + data


def described(shape: object, descr: object = "<f4", fortran: object = False) -> str:
    return f"{{'descr': {descr!r}, 'fortran_order': {fortran!r}, 'shape': {shape!r}}}\n"


def expected() -> np.ndarray:
    from zeropoint import runtime

    return np.asarray(runtime.load(MODEL)(X))


@pytest.mark.parametrize(
    "body",
    [
        written(X),
        written(np.asfortranarray(X)),
        with_header(described(X.shape), X.tobytes()),
        with_header(" " + described(X.shape), X.tobytes(), 2),  # data at every alignment
        with_header("   " + described(X.shape), X.tobytes()),
    ],
)
def test_an_array_is_answered_with_what_the_program_computes(server: Running, body: bytes) -> None:
    status, answer = server.ask(body)
    assert status == 200, answer
    np.testing.assert_array_equal(np.load(io.BytesIO(answer)), expected())


DATA = X.tobytes()
WRONG = {
    "empty": (b"", "empty"),
    "no array": (b"hello", "numpy.save"),
    "magic alone": (b"\x93NUMPY", "numpy.save"),
    "another version": (b"\x93NUMPY\x09\x00" + bytes(100), "numpy.save"),
    "too many elements": (with_header(described((2**60, 2**60)), DATA), "bytes that follow"),
    "a terabyte": (with_header(described((2**38,)), DATA), "bytes that follow"),
    "too few elements": (with_header(described((1, 3, 8, 8)), DATA), "bytes that follow"),
    "a negative size": (with_header(described((-2, -3, 8, 8)), DATA), "bytes that follow"),
    "no bytes each": (with_header(described((2**62,), "|V0"), b""), "bytes that follow"),
    "objects": (written(np.array([1], dtype=object)), "bytes that follow"),
    "no shape": (with_header("{'descr': '<f4', 'fortran_order': False}", DATA), "numpy.save"),
    "a shape that is none": (with_header(described("x"), DATA), "numpy.save"),
    "unhashable": (with_header("{[]: 1}", DATA), "numpy.save"),
    "no dictionary": (with_header("1", DATA), "numpy.save"),
    "a half dictionary": (with_header("{'descr': ", DATA), "numpy.save"),
    "nested": (with_header("(" * 9000, DATA), "numpy.save"),
    "a long header": (with_header(" " * 60_000, DATA), "numpy.save"),
    "code": (with_header("__import__('os').abort()", DATA), "numpy.save"),
    "another type": (written(X.astype(np.float16)), "float32"),
    "fields": (with_header(described((384,), [("a", "<f4")]), DATA), "float32"),
    "another shape": (written(X[0]), "shape"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_body_is_refused_in_words(server: Running, case: str) -> None:
    body, why = WRONG[case]
    status, answer = server.ask(body)
    assert status == 400
    assert why in answer.decode()
    assert len(answer) < 1500


def test_other_paths_and_methods_are_not_found(server: Running) -> None:
    assert [server.ask(b"", "/")[0], server.ask(None, method="GET")[0]] == [404, 404]


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(server: Running) -> None:
    with server.connect(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000000\r\n\r\n") as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_a_body_without_a_length_is_refused_when_it_is_too_large(server: Running) -> None:
    status, answer = server.ask(iter([bytes(50_000)] * 8))
    assert status == 413
    assert str(MOST) in answer.decode()


@pytest.mark.parametrize("sent", [b"", b"HTTP", b"0", b"\xff" * 100, b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_not_http_does_not_end_the_server(server: Running, sent: bytes) -> None:
    server.connect(sent).close()
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: "
    server.connect(head + b"-1\r\n\r\n").close()
    server.connect(head + b"100\r\n\r\nhalf").close()
    assert server.ask(written(X))[0] == 200


def test_a_client_that_sends_slowly_is_told_so(server: Running) -> None:
    begin = time.monotonic()
    with server.connect(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n") as connection:
        with contextlib.suppress(OSError):
            for _ in range(40):  # a byte now and then does not help
                connection.sendall(b"x")
                time.sleep(0.1)
        assert connection.recv(100).startswith(b"HTTP/1.1 408")
    assert time.monotonic() - begin < SECONDS + 10


def test_many_clients_do_not_take_more_memory_than_eight_bodies() -> None:
    most = 4_000_000
    with running(most) as own:
        assert own.ask(written(X))[0] == 200
        before, statuses = own.peak(), []

        def send() -> None:
            with contextlib.suppress(OSError):  # refused while it is sent
                statuses.append(own.ask(bytes(most))[0])

        clients = [threading.Thread(target=send) for _ in range(30)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert set(statuses) <= {400, 503}
        assert own.peak() - before < 3 * 8 * most // 1000  # and what uvicorn and sockets hold
        assert own.ask(written(X))[0] == 200


def asked(server: Running, change: object = None, **more: object) -> tuple[int, dict[str, object]]:
    """The answer of the Open Inference Protocol to X, with changes of the request or of its input."""
    given = {"name": "image", "shape": list(X.shape), "datatype": "FP32", "data": X.ravel().tolist()}
    request = {"inputs": [{**given, **(change or {})}], **more}  # type: ignore[dict-item]
    status, answer = server.ask(json.dumps(request), "/v2/models/image/infer")
    return status, json.loads(answer)


def test_the_protocol_answers_with_what_the_program_computes(server: Running) -> None:
    wanted = expected()
    for change in ({}, {"data": X.tolist()}):  # flat, or nested as the shape
        status, answer = asked(server, change, id="seven", outputs=[{"name": output_name()}])
        assert status == 200, answer
        (row,) = answer.pop("outputs")  # type: ignore[misc, attr-defined]
        assert answer == {"model_name": "image", "id": "seven"}
        assert (row["name"], row["datatype"], row["shape"]) == (output_name(), "FP32", list(wanted.shape))
        np.testing.assert_array_equal(np.float32(row["data"]).reshape(row["shape"]), wanted)


def output_name() -> str:
    from zeropoint import runtime

    return runtime.load(MODEL).outputs[0][0]


def test_the_protocol_describes_the_model_and_says_that_it_is_ready(server: Running) -> None:
    def get(path: str) -> object:
        status, answer = server.ask(None, path, "GET")
        assert status == 200, answer
        return json.loads(answer)

    assert get("/v2/health/live") == {"live": True}
    assert get("/v2/health/ready") == get("/v2/models/image/ready") == {"ready": True}
    assert get("/v2")["extensions"] == []  # type: ignore[index]
    about = get("/v2/models/image")
    assert about["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 3, -1, -1]}]  # type: ignore[index]
    assert about["outputs"][0]["name"] == output_name()  # type: ignore[index]


SHAPE = list(X.shape)
WRONG_REQUESTS = {
    "no JSON": (b"{", "no JSON"),
    "nested": (b"[" * 20_000, "no JSON"),
    "no object": (b"[]", '"inputs", a list'),
    "no inputs": (b"{}", '"inputs", a list'),
    "another input": ({"name": "z"}, "no input 'z', only image"),
    "another type": ({"datatype": "FP64"}, "has the datatype FP32, got 'FP64'"),
    "no shape": ({"shape": "x"}, "list of sizes"),
    "a negative size": ({"shape": [-2, 3, 8, 8]}, "list of sizes"),
    "too few values": ({"data": [1.0]}, "has 384 values, data has 1"),
    "a terabyte": ({"shape": [2**30, 2**30]}, "values, data has 384"),
    "texts": ({"data": ["1.0"] * 384}, "FP32 was expected, got str"),
    "truths": ({"data": [True] * 384}, "FP32 was expected, got bool"),
    "ragged": ({"data": [[1.0], [1.0, 2.0]]}, "different lengths"),
    "no list": ({"data": 1.0}, "data is a list"),
    "beyond float32": ({"data": [1e39] * 384}, "finite number of FP32"),
    "no number of JSON": ({"data": [float("nan")] * 384}, "finite number of FP32"),
    "a shape that does not fit": ({"shape": [384]}, "shape"),
}


@pytest.mark.parametrize("case", WRONG_REQUESTS)
def test_a_wrong_request_of_the_protocol_is_refused_in_words(server: Running, case: str) -> None:
    body, why = WRONG_REQUESTS[case]
    if isinstance(body, bytes):
        status, text = server.ask(body, "/v2/models/image/infer")
        answer = json.loads(text)
    else:
        status, answer = asked(server, body)
    assert status == 400
    assert why in str(answer["error"])
    assert len(str(answer)) < 1500


def test_the_protocol_has_limits_of_its_own(server: Running) -> None:
    status, answer = server.ask(bytes(MOST // 8 + 1), "/v2/models/image/infer")
    assert (status, str(MOST // 8) in json.loads(answer)["error"]) == (413, True)
    assert asked(server, {}, outputs=[{"name": "other"}])[0] == 400
    status, text = server.ask(b"{}", "/v2/models/other/infer")
    assert (status, "error" in json.loads(text)) == (404, True)
    twice = {"name": "image", "shape": SHAPE, "datatype": "FP32", "data": X.ravel().tolist()}
    body = json.dumps({"inputs": [twice, twice]})
    assert server.ask(body, "/v2/models/image/infer")[0] == 400


# --------------------------------------------------------------------------------------------------- several as one


def test_requests_of_many_clients_run_as_few_calls_and_each_gets_its_own_answer() -> None:
    from zeropoint import runtime

    program, random = runtime.load(MODEL), np.random.default_rng(0)
    sizes, rounds = [1, 1, 2, 1, 3, 1, 1, 1], 5
    wrong = written(random.standard_normal((1, 4, 8, 8)).astype(np.float32))  # one channel too many
    answers: list[tuple[int, bytes, np.ndarray | None]] = []

    def client(own: Running, count: int, seed: int) -> None:
        mine = np.random.default_rng(seed)
        for i in range(rounds):
            if seed == 7 and i % 2:
                answers.append((*own.ask(wrong), None))
                continue
            x = mine.standard_normal((count, 3, 8, 8)).astype(np.float32)
            answers.append((*own.ask(written(x)), x))

    with running(MOST_SAMPLES="4", WAIT="0.3") as own:
        clients = [threading.Thread(target=client, args=(own, count, seed)) for seed, count in enumerate(sizes)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        begin = time.monotonic()
        assert own.ask(written(X))[0] == 200  # nobody else comes
        assert time.monotonic() - begin >= 0.3
        status, asked_of = asked(own)
        assert status == 200, asked_of
        metrics = dict(line.rsplit(" ", 1) for line in own.ask(None, "/metrics", "GET")[1].decode().splitlines())
    assert len(answers) == rounds * len(sizes)
    for status, answer, x in answers:
        if x is None:
            assert status == 400
            assert "shape" in answer.decode()
        else:
            assert status == 200, answer
            np.testing.assert_array_equal(np.load(io.BytesIO(answer)), program(x))
    right = [x for _, _, x in answers if x is not None]
    assert int(metrics["zeropoint_program_samples_total"]) == sum(map(len, right)) + 2 * len(X)
    assert int(metrics["zeropoint_program_calls_total"]) < 0.7 * len(right)


def test_what_fails_in_a_batch_fails_alone() -> None:
    batching = of_examples("batching")
    found = batching.Batching(Picky(), 8, 0.5)
    results: dict[int, object] = {}

    def call(value: int) -> None:
        try:
            results[value] = found(np.full((1, 2), value, np.float32))
        except ValueError as error:
            results[value] = str(error)

    callers = [threading.Thread(target=call, args=(value,)) for value in (1, 2, 3, -1)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert results.pop(-1) == "a value is negative"
    for value, result in results.items():
        np.testing.assert_array_equal(result["twice"], [[2 * value] * 2])  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "why"),
    [("remembering", "state"), ("ranged", "beside others"), ("sized", "beside others"), ("fixed", "fixed")],
)
def test_programs_whose_samples_depend_on_each_other_are_not_batched(name: str, why: str) -> None:
    batching = of_examples("batching")
    from zeropoint import runtime

    program = runtime.load(golden_programs.FOLDER / f"{name}.zpt") if name != "fixed" else Picky(2)
    with pytest.raises(ValueError, match=why):
        batching.Batching(program, 8, 0.1)


class Picky:
    """What stands for a program that refuses some values: the files in tests/golden have none."""

    state = outputs = ()
    example_shapes = ((1, 2),)

    def __init__(self, batch: int | str = "n") -> None:
        self.inputs = (("x", "float32", (batch, 2)),)

    def __call__(self, x: np.ndarray) -> dict[str, np.ndarray]:
        if (x == -1).any():
            raise ValueError("a value is negative")
        return {"twice": 2 * x}


def of_examples(name: str) -> ModuleType:
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))


def test_integers_are_neither_cut_nor_rounded() -> None:
    protocol = of_examples("open_inference").OpenInference(Doubled(), "doubled")
    made = protocol.infer(request_of([1, -128, 127]))
    assert made["outputs"] == [{"name": "y", "datatype": "INT8", "shape": [3], "data": [2, 0, -2]}]  # int8 wraps
    for data, why in (
        ([1.5, 2, 3], "got float"),
        ([1, 2, 128], "between -128 and 127"),
        ([1, 2, 2**70], "between -128 and 127"),
    ):
        with pytest.raises(ValueError, match=why):
            protocol.infer(request_of(data))


class Doubled:
    """What stands for a program of integers: the files in tests/golden have none."""

    inputs = outputs = (("y", "int8", (3,)),)

    def __call__(self, y: np.ndarray) -> np.ndarray:
        return y + y


def request_of(data: object) -> bytes:
    return json.dumps({"inputs": [{"name": "y", "shape": [3], "datatype": "INT8", "data": data}]}).encode()


def test_metrics_count_requests_and_their_time() -> None:
    with running() as own:
        assert [own.ask(written(X))[0], own.ask(b"x")[0], own.ask(None, "/secret", "GET")[0]] == [200, 400, 404]
        status, answer = own.ask(None, "/metrics", "GET")
    lines = answer.decode().splitlines()
    assert status == 200
    assert 'zeropoint_requests_total{route="predict",status="200"} 1' in lines
    assert 'zeropoint_requests_total{route="predict",status="400"} 1' in lines
    assert 'zeropoint_requests_total{route="other",status="404"} 1' in lines
    assert 'zeropoint_request_seconds_bucket{le="+Inf"} 1' in lines
    assert "zeropoint_bytes_held 0" in lines
    assert "secret" not in answer.decode()


def test_the_client_of_the_page_runs(server: Running, tmp_path: Path) -> None:
    (client,) = re.findall(r"```py\n(.*?)```", (EXAMPLES.parents[1] / "docs" / "serving.md").read_text(), re.DOTALL)
    assert len(client.splitlines()) <= 15
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            client.replace("localhost:8000", f"127.0.0.1:{server.port}").replace("models/model", "models/image"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr


def test_the_image_has_the_files_that_the_server_imports() -> None:
    text = (EXAMPLES / "Dockerfile").read_text()
    for name in {"server.py", *(f"{module}.py" for module in SERVER_PARTS)}:
        assert f"examples/serving/{name}" in text
        assert (EXAMPLES / name).exists()
    imported = set(re.findall(r"^from (\w+) import", (EXAMPLES / "server.py").read_text(), re.MULTILINE))
    assert {name for name in imported if (EXAMPLES / f"{name}.py").exists()} == SERVER_PARTS


def test_sigterm_ends_the_server_although_clients_hang() -> None:
    with running() as own:
        head = b"POST /predict HTTP/1.1\r\nHost: x\r\n"
        hanging = [own.connect(first) for first in (b"", head, head + b"Content-Length: 1000\r\n\r\nx")]
        # Asks again and again, and reads no answer.
        hanging.append(own.connect())
        hanging[-1].settimeout(0.3)
        body = written(np.ones((200, 3, 8, 8), np.float32))
        with contextlib.suppress(OSError):
            for _ in range(200):
                hanging[-1].sendall(head + b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
        begin = time.monotonic()
        own.process.send_signal(signal.SIGTERM)
        own.process.wait(timeout=SECONDS + 5)
        assert time.monotonic() - begin < SECONDS + 5
        for connection in hanging:
            connection.close()
