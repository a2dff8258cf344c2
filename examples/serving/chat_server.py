"""A language model behind OpenAI's chat API: ``MODEL=model.zpt uvicorn --app-dir examples/serving chat_server:app``.

POST /v1/chat/completions takes ``{"messages": [{"role": "user", "content": "Hi"}]}`` and, among others, max_tokens,
temperature, top_p, seed, stop and stream. GET /v1/models names the model. Requests run side by side, as many as the
file was compiled for (``--sequences``). Needs the packages fastapi, uvicorn and tokenizers.
"""

import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zeropoint import generation

try:
    from fastapi import FastAPI, HTTPException
    from fastapi.responses import StreamingResponse
    from pydantic import BaseModel, ConfigDict, Field
except ImportError as error:
    raise SystemExit(f"{error}: pip install fastapi tokenizers") from None

if "MODEL" not in os.environ:
    raise SystemExit("set MODEL to the program of a language model: zeropoint quantize model.gguf -o model.zpt")
PATH = Path(os.environ["MODEL"])
MOST_NEW = int(os.environ.get("MOST_NEW", "1024"))  # tokens of an answer
try:
    model = generation.load(PATH)
except (OSError, ValueError, ImportError) as error:
    raise SystemExit(f"MODEL={PATH}: {error}") from None
app = FastAPI(title=PATH.stem)


class Message(BaseModel):
    """A message of a conversation."""

    role: str
    content: str = Field(max_length=1_000_000)


class Completion(BaseModel):
    """A request. What is not listed here is refused, because it would have no effect."""

    model_config = ConfigDict(extra="forbid")

    messages: list[Message] = Field(min_length=1, max_length=1000)
    model: str = ""
    max_tokens: int = Field(256, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float = Field(0.7, ge=0, le=2)
    top_p: float = Field(0.95, ge=0, le=1)
    seed: int | None = Field(None, ge=0)
    stop: str | list[str] = Field([], max_length=100)
    stream: bool = False
    n: int = Field(1, ge=1, le=1)
    user: str = ""


@app.get("/v1/models")
def models() -> dict[str, Any]:
    """The one model."""
    return {"object": "list", "data": [{"id": PATH.stem, "object": "model", "owned_by": "zeropoint"}]}


@app.post("/v1/chat/completions")
def complete(request: Completion) -> Any:
    """An answer, or with `stream` its pieces as server-sent events."""
    messages = [message.model_dump() for message in request.messages]
    most = min(request.max_completion_tokens or request.max_tokens, MOST_NEW)
    try:
        prompt = model.chat_prompt(messages)
        pieces = model.chat(
            messages,
            most,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
            stop=request.stop,
            stream=True,
        )
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    about = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": PATH.stem}
    if request.stream:
        return StreamingResponse(events(pieces, about), media_type="text/event-stream")
    text = "".join(pieces)
    made = len(model.encode(text))
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    choice["finish_reason"] = "length" if made >= most else "stop"
    usage = {"prompt_tokens": len(prompt), "completion_tokens": made, "total_tokens": len(prompt) + made}
    return {**about, "object": "chat.completion", "choices": [choice], "usage": usage}


def events(pieces: Iterator[str], about: dict[str, Any]) -> Iterator[str]:
    """Pieces as server-sent events."""

    def event(delta: dict[str, str], finished: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finished}
        return f"data: {json.dumps({**about, 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"

    yield event({"role": "assistant", "content": ""})
    for piece in pieces:
        yield event({"content": piece})
    yield event({}, "stop")
    yield "data: [DONE]\n\n"
