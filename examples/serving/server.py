"""A model behind HTTP: ``MODEL=model.zpt uvicorn --app-dir examples/serving server:app``.

POST /predict takes an array as ``numpy.save`` writes it, and returns one. A file that ends in .onnx is run by ONNX
Runtime instead, for comparison.
"""

import io
import os
from collections.abc import Callable

import numpy as np
from fastapi import FastAPI, HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool


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
    return zeropoint.runtime.load(path)  # PyTorch is never imported


app = FastAPI()
predict = load(os.environ["MODEL"], int(os.environ.get("THREADS", "1")))


@app.post("/predict")
async def answer(request: Request) -> Response:
    try:
        array = np.load(io.BytesIO(await request.body()), allow_pickle=False)
        result = await run_in_threadpool(predict, array)  # a call of a program releases Python's lock
    except (ValueError, TypeError) as error:  # a wrong array: the message says what is expected
        raise HTTPException(400, str(error)) from None
    written = io.BytesIO()
    np.save(written, result)
    return Response(written.getvalue(), media_type="application/octet-stream")
