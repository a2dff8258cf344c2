"""Load for a chat server: ``python examples/serving/chat_load_test.py http://localhost:8000 [CLIENTS] [REQUESTS]``.

Every client asks one question after the other, every second one as a stream, and checks each answer: greedy answers to
one question are equal, whoever else asks. Prints tokens a second and the times to the first piece.
"""

import json
import statistics
import sys
import threading
import time
import urllib.request

QUESTIONS = ["Name three colours.", "What is two plus two?", "Write a sentence about the sea.", "Who wrote Hamlet?"]


def ask(server: str, question: str, stream: bool) -> tuple[str, float]:
    """The answer, and the seconds to its first piece."""
    messages = [{"role": "user", "content": question}]
    body = {"messages": messages, "max_tokens": 48, "temperature": 0, "stream": stream}
    request = urllib.request.Request(
        f"{server}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    start, first, text = time.perf_counter(), 0.0, ""
    with urllib.request.urlopen(request, timeout=300) as answer:
        if not stream:
            text = json.load(answer)["choices"][0]["message"]["content"]
            return text, time.perf_counter() - start
        ended = False
        for line in answer:
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                ended = True
                break
            first = first or time.perf_counter() - start
            text += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
    assert ended, "a stream ended early"
    return text, first


def main() -> None:
    server = sys.argv[1]
    clients, requests = (int(text) for text in [*sys.argv[2:4], "8", "4"][:2])
    want = {question: ask(server, question, False)[0] for question in QUESTIONS}
    first: list[float] = []
    failures: list[str] = []

    def client(number: int) -> None:
        for at in range(requests):
            question = QUESTIONS[(number + at) % len(QUESTIONS)]
            try:
                text, seconds = ask(server, question, stream=at % 2 == 0)
                if text != want[question]:
                    failures.append(f"another answer: {text!r}")
                first.append(seconds)
            except Exception as error:
                failures.append(repr(error))

    start = time.perf_counter()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    count = clients * requests
    print(f"{count} requests of {clients} clients in {seconds:.1f} s, {len(failures)} failed")
    print(f"first piece after {statistics.median(first):.2f} s (median), {max(first):.2f} s (most)")
    sys.exit("\n".join(failures[:5]) or 0)


if __name__ == "__main__":
    main()
