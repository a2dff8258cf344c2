"""Files of several kinds with contents by chance, for a model that tells kinds of files apart."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import struct
import wave
import zipfile
import zlib
from collections.abc import Iterator

__all__ = ["made_files"]

_NAMES = ("alpha", "beta", "gamma", "delta", "count", "total", "width", "height", "index", "value", "left", "right")

# A beginning, a part for each name, an end: A to D are names, N is the name of the part, 0 a number.
_TEXTS = (
    ("import os\n\n\n", "def N(A, B):\n    return [A + 0 for C in range(B)]\n\n\n", "print(A(1, 2))\n"),
    ("<!DOCTYPE html>\n<html><head><title>A</title></head>\n<body>", "<p class='N'>B and C</p>\n", "</body></html>"),
    ("N,A,B\n", "N,0,0.5\nC,0,D\n", ""),
    ("#include <stdio.h>\n\n", 'static int N(int A, char *B) {\n  printf("%d", A);\n  return A * 0;\n}\n\n', ""),
    ("<?xml version='1.1'?>\n<list>\n", "<item id='0'><N>A</N></item>\n", "</list>\n"),
    ("#!/bin/sh\nset -e\n", 'for N in *.txt; do\n  echo "$N" >> A.log\ndone\n', "exit 0\n"),
    ("CREATE TABLE A (id INTEGER, B TEXT);\n", "INSERT INTO A VALUES (0, 'N');\nSELECT B FROM A WHERE id = 0;\n", ""),
    (
        "package A;\n\nimport java.util.List;\n\npublic class Main {\n",
        "  public static int N(List<String> B) {\n    return B.size() + 0;\n  }\n",
        "}\n",
    ),
    ('package main\n\nimport "fmt"\n\n', "func N(A int) int {\n\tfmt.Println(A)\n\treturn A + 0\n}\n\n", ""),
    ("# A\n\nWhat B is, and *why*.\n\n", "## N\n\n- one C of 0\n- see `D`\n\n", "```sh\nmake A\n```\n"),
    ("[A]\n", "N = 0\n", "\n[B]\nC = true\n"),
)


def made_files(seed: int) -> Iterator[bytes]:
    """One file of each kind."""
    generator = random.Random(seed)
    names = generator.sample(_NAMES, 8)
    for beginning, part, end in _TEXTS:
        yield "".join(_filled(text, names, generator) for text in (beginning, *[part] * 8, end)).encode()
    yield json.dumps({name: [generator.randrange(1000) for _ in range(8)] for name in names}, indent=2).encode()
    noise = generator.randbytes(3000)
    yield gzip.compress(noise, mtime=seed)
    yield bz2.compress(noise)
    yield _zip(names, noise)
    yield _sound(noise)
    yield _picture(noise)


def _filled(text: str, names: list[str], generator: random.Random) -> str:
    for letter, name in zip("ABCD", names):
        text = "".join(name if c == letter and not near else c for c, near in zip(text, _in_words(text)))
    part = generator.choice(names)
    text = "".join(part if c == "N" and not near else c for c, near in zip(text, _in_words(text)))
    return "".join(
        str(generator.randrange(1000)) if c == "0" and not near else c for c, near in zip(text, _in_words(text))
    )


def _in_words(text: str) -> list[bool]:
    """For each character, whether it has a letter or a digit beside it."""
    wide = f" {text} "
    return [wide[i].isalnum() or wide[i + 2].isalnum() for i in range(len(text))]


def _zip(names: list[str], noise: bytes) -> bytes:
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names[:3]:
            archive.writestr(zipfile.ZipInfo(f"{name}.txt"), noise[:500])
    return stored.getvalue()


def _sound(noise: bytes) -> bytes:
    stored = io.BytesIO()
    with wave.open(stored, "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", ""))
        sound.writeframes(noise)
    return stored.getvalue()


def _picture(noise: bytes) -> bytes:
    """A PNG of 40 by 24 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + noise[i * 120 : (i + 1) * 120] for i in range(24))
    head = struct.pack(">IIBBBBB", 40, 24, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
