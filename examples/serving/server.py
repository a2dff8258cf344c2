"""A model behind HTTP: ``MODEL=model.zpt uvicorn --app-dir examples/serving server:app``.

POST /predict takes an array as ``numpy.save`` writes it, and returns one. The addresses under /v2 are those of the Open
Inference Protocol, for a model with the name of the file; /metrics is for Prometheus. A file that ends in .onnx is run
by ONNX Runtime instead, for comparison, behind /predict alone. More settings: THREADS of one inference (1), MOST_BYTES
of a request (64 MB; an eighth of it in JSON), SECONDS that a client may take to send it or to read the answer (10), and
MOST_SAMPLES that run as one call of the program (1), for which the first one waits at most WAIT seconds (0.005).
"""

import asyncio
import io
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from batching import Batching
from metrics import Metrics
from open_inference import OpenInference

MOST_BYTES = int(os.environ.get("MOST_BYTES", "64_000_000"))
MOST_JSON = MOST_BYTES // 8  # the lists that it is read to take several times its size
MOST_AT_ONCE = 8 * MOST_BYTES  # of all requests that are being received or answered
SECONDS = float(os.environ.get("SECONDS", "10"))
MOST_SAMPLES = int(os.environ.get("MOST_SAMPLES", "1"))
WAIT = float(os.environ.get("WAIT", "0.005"))
AT_THE_END = min(SECONDS, 5)  # for requests that are being answered when the server is told to end

Message = dict[str, Any]


class Refused(Exception):
    """A request that is not answered: a status and why, for the client."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def load(path: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    if path.endswith(".onnx"):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options)
        name = session.get_inputs()[0].name
        return lambda x: session.run(None, {name: x})[0]
    import zeropoint

    zeropoint.set_num_threads(threads)
    program = zeropoint.runtime.load(path)  # PyTorch is never imported
    return Batching(program, MOST_SAMPLES, WAIT) if MOST_SAMPLES > 1 else program


def array_of(body: bytes) -> np.ndarray:
    """The array in a body, without a copy. Its header is believed only if it accounts for every byte that follows."""
    file = io.BytesIO(body[:20_000])  # numpy refuses longer headers
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except Exception as error:  # whatever numpy's parser says of it, the client sent it
        raise Refused(400, f"the body must be an array as numpy.save writes it: {error}"[:500]) from None
    left = len(body) - file.tell()
    count = 1
    for size in shape:
        count *= size
    if dtype.hasobject or not dtype.itemsize or min(shape, default=0) < 0 or count * dtype.itemsize != left:
        raise Refused(400, f"the header says {dtype}{list(shape)}, which is not the {left} bytes that follow"[:500])
    return np.frombuffer(body, dtype, count, file.tell()).reshape(shape, order="F" if fortran else "C")


class Server:
    """The application, as ASGI servers call it.

    Args:
        name: of the model in the Open Inference Protocol, which is not there without it.
    """

    def __init__(self, predict: Callable[[np.ndarray], np.ndarray], name: str = "") -> None:
        self._predict = predict
        self._held = 0  # bytes of the requests that are being received or answered
        self._metrics = Metrics()
        self._protocol = OpenInference(predict, name) if name else None  # type: ignore[arg-type]

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Any) -> None:
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        body, begin = bytearray(), time.monotonic()
        route, answered = self._route(scope["method"], scope["path"])
        kind = "text/plain; charset=utf-8"
        more = []
        try:
            if scope["method"] == "POST" and answered is not None:
                await self._read(body, scope, receive, MOST_JSON if route == "infer" else MOST_BYTES)
            if answered is None:
                raise Refused(404, "there is POST /predict, GET /metrics, and what is under /v2")
            status, (answer, kind) = 200, await asyncio.to_thread(answered, body)
        except Refused as error:
            status, answer = error.status, str(error).encode()
            if scope["path"].startswith("/v2"):
                answer, kind = _json({"error": str(error)})
            more.append((b"connection", b"close"))  # what is left of the body is not read
        finally:
            self._held -= len(body)
        self._metrics.count(route, status, time.monotonic() - begin)
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(answer)).encode()), *more]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await asyncio.wait_for(send({"type": "http.response.body", "body": answer}), SECONDS)

    def _route(self, method: str, path: str) -> tuple[str, Callable[[bytes], tuple[bytes, str]] | None]:
        """The name of an address, and what answers it."""
        found: dict[tuple[str, str], tuple[str, Callable[[bytes], tuple[bytes, str]]]] = {
            ("POST", "/predict"): ("predict", self._answer),
            ("GET", "/metrics"): (
                "metrics",
                lambda _: (self._metrics.text(self._held, self._predict).encode(), "text/plain; version=0.0.4"),
            ),
        }
        if self._protocol is not None:
            protocol, model = self._protocol, f"/v2/models/{self._protocol.name}"
            found |= {
                ("GET", "/v2"): ("metadata", lambda _: _json({"name": "zeropoint", "version": "2", "extensions": []})),
                ("GET", "/v2/health/live"): ("health", lambda _: _json({"live": True})),
                ("GET", "/v2/health/ready"): ("health", lambda _: _json({"ready": True})),
                ("GET", model): ("metadata", lambda _: _json(protocol.metadata())),
                ("GET", model + "/ready"): ("health", lambda _: _json({"ready": True})),
                ("POST", model + "/infer"): ("infer", self._infer),
            }
        return found.get((method, path), ("other", None))

    def _infer(self, body: bytes) -> tuple[bytes, str]:
        assert self._protocol is not None
        try:
            return _json(self._protocol.infer(body))  # a program releases Python's lock
        except (ValueError, TypeError) as error:  # a wrong request: the message says what is expected
            raise Refused(400, str(error)) from None
        except MemoryError:
            raise Refused(503, "the server has no memory for a request of this size") from None

    async def _read(
        self, body: bytearray, scope: Message, receive: Callable[[], Awaitable[Message]], most: int
    ) -> None:
        end, more = time.monotonic() + SECONDS, True
        claimed = dict(scope["headers"]).get(b"content-length", b"0")
        if int(claimed) > most:  # before it is sent
            raise Refused(413, f"the body has {int(claimed)} bytes, and the server takes {most}")
        while more:
            try:
                message = await asyncio.wait_for(receive(), max(end - time.monotonic(), 0))
            except (TimeoutError, asyncio.TimeoutError):
                raise Refused(408, f"the body was not there within {SECONDS} seconds") from None
            if message["type"] == "http.disconnect":
                raise Refused(400, "the client left")
            part, more = message.get("body", b""), message.get("more_body", False)
            body += part
            self._held += len(part)
            if len(body) > most:
                raise Refused(413, f"the body has more than the {most} bytes that the server takes")
            if self._held > MOST_AT_ONCE:
                raise Refused(503, "the server has too many requests: try again later")
        if not body:
            raise Refused(400, "the body is empty: send an array as numpy.save writes it, or JSON under /v2")

    def _answer(self, body: bytes) -> tuple[bytes, str]:
        try:
            result = self._predict(array_of(body))  # releases Python's lock
        except (ValueError, TypeError) as error:  # a wrong array: the message says what is expected
            raise Refused(400, str(error)) from None
        except MemoryError:
            raise Refused(503, "the server has no memory for an array of this size") from None
        written = io.BytesIO()
        np.save(written, result, allow_pickle=False)
        return written.getvalue(), "application/octet-stream"

    async def _live(self, receive: Callable[[], Awaitable[Message]], send: Any) -> None:
        while True:
            event = (await receive())["type"]
            if event == "lifespan.startup":
                loop = asyncio.get_running_loop()
                end_in_time(loop)
                if MOST_SAMPLES > 1:  # requests wait for each other in threads
                    loop.set_default_executor(ThreadPoolExecutor(4 * MOST_SAMPLES))
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return


def _json(answer: dict[str, Any]) -> tuple[bytes, str]:
    return json.dumps(answer, allow_nan=False).encode(), "application/json"


def end_in_time(loop: asyncio.AbstractEventLoop) -> None:
    """Let SIGTERM end the server although clients hang: uvicorn waits for them, until it is told with Ctrl-C not to."""
    before = signal.getsignal(signal.SIGTERM)
    if not callable(before):
        return

    def handle(number: int, frame: Any) -> None:
        before(number, frame)
        loop.call_soon_threadsafe(loop.call_later, AT_THE_END, before, signal.SIGINT, None)

    signal.signal(signal.SIGTERM, handle)


if "MODEL" not in os.environ:
    raise SystemExit("set MODEL to a program: zeropoint quantize model.pt2 --data images.npy -o model.zpt")
MODEL = os.environ["MODEL"]
NAME = "" if MODEL.endswith(".onnx") else Path(MODEL).stem
try:
    app = Server(load(MODEL, int(os.environ.get("THREADS", "1"))), NAME)
except (OSError, ValueError) as error:
    raise SystemExit(f"MODEL={MODEL}: {error}") from None
