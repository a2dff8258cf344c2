"""The server of examples/serving: what clients send wrongly, slowly or in masses is answered in words, and ends."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import golden_programs
import numpy as np
import pytest

MODEL = golden_programs.FOLDER / "image.zpt"
MOST, SECONDS = 200_000, 1.5
X = np.ones((2, 3, 8, 8), np.float32)


class Running:
    def __init__(self, most: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        app = ["uvicorn", "--app-dir", str(Path(__file__).parents[1] / "examples" / "serving"), "server:app"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", *app, "--port", str(self.port), "--log-level", "error"],
            env={**os.environ, "MODEL": str(MODEL), "MOST_BYTES": str(most), "SECONDS": str(SECONDS)},
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
def running(most: int = MOST) -> Iterator[Running]:
    server = Running(most)
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
