"""One file that holds plain data and arrays, for checkpoints. Reading it runs nothing that is in it.

The file begins with a line that names the format, then a checksum of all that follows: the length of a JSON text, the
text, and the bytes of the arrays that it refers to by number. Tuples, dataclasses and enums are written by name, and
only those named here are made again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from enum import Enum
from typing import Any

import numpy as np

from galapax.core.evaluation import Population, Shape
from galapax.core.stop import Stop
from galapax.engines.journal import Done, Standing
from galapax.engines.outcome import Outcome, Polish, Survivors, Track
from galapax.evaluation.failures import Failed
from galapax.evaluation.worker import Failure

MAGIC = b"galapax checkpoint 1\n"
DIGEST = 32
KINDS: dict[str, Any] = {
    c.__name__: c for c in (Done, Failed, Failure, Outcome, Polish, Population, Shape, Standing, Stop, Survivors, Track)
}
NUMBERS = {np.dtype(kind).str for kind in ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]}
DEEP = 60  # levels of lists in lists


class Damaged(Exception):
    """Why a file cannot be read."""


def pack(data: Any) -> list[bytes]:
    """Chunks of a file with this data."""
    arrays: list[np.ndarray] = []
    text = json.dumps({"data": _plain(data, arrays), "arrays": [[a.dtype.str, list(a.shape)] for a in arrays]}).encode()
    chunks = [len(text).to_bytes(8, "little"), text, *(np.ascontiguousarray(a).tobytes() for a in arrays)]
    sum_of = hashlib.sha256()
    for chunk in chunks:
        sum_of.update(chunk)
    return [MAGIC, sum_of.digest(), *chunks]


def unpack(raw: bytes) -> Any:
    """The data of a file, or Damaged with the reason."""
    family = MAGIC[: MAGIC.rindex(b" ") + 1]
    if not raw.startswith(family):
        raise Damaged("it is not a checkpoint of galapax")
    if not raw.startswith(MAGIC):
        raise Damaged("its format belongs to another version of galapax")
    start = len(MAGIC) + DIGEST
    # not kept: a memoryview in the frames of an exception crashes the garbage collector of Python 3.12.1
    if hashlib.sha256(memoryview(raw)[start:]).digest() != raw[len(MAGIC) : start]:
        raise Damaged("it is damaged: its checksum does not match")
    try:
        at = start + 8
        length = int.from_bytes(raw[start:at], "little")
        read = json.loads(raw[at : at + length])
        arrays, at = [], at + length
        for kind, shape in read["arrays"]:
            if kind not in NUMBERS or not all(isinstance(n, int) and n >= 0 for n in shape):
                raise Damaged(f"it contains an array of unknown type, {kind!r}")
            count = math.prod(shape)
            if at + count * np.dtype(kind).itemsize > len(raw):
                raise Damaged("it is damaged: an array is truncated")
            arrays.append(np.frombuffer(raw, kind, count, at).reshape(shape).copy())
            at += arrays[-1].nbytes
        return _made(read["data"], arrays)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise Damaged(f"it holds something unexpected ({type(error).__name__})") from None


def _plain(value: Any, arrays: list[np.ndarray]) -> Any:
    if value is None or isinstance(value, bool | int | float) or type(value) is str:
        return value
    if isinstance(value, Enum):
        return {"is": type(value).__name__, "parts": value.value}
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "dtype"):
        arrays.append(np.asarray(value))
        return {"is": "array", "parts": len(arrays) - 1}
    if dataclasses.is_dataclass(value):
        parts = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    elif hasattr(value, "_asdict"):
        parts = value._asdict()
    elif isinstance(value, dict):
        return {"is": "dict", "parts": [[_plain(k, arrays), _plain(v, arrays)] for k, v in value.items()]}
    elif isinstance(value, bytes):
        return {"is": "bytes", "parts": value.hex()}
    elif isinstance(value, list | tuple):
        own = [_plain(v, arrays) for v in value]
        return own if isinstance(value, list) else {"is": "tuple", "parts": own}
    else:
        raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")
    return {"is": type(value).__name__, "parts": {name: _plain(part, arrays) for name, part in parts.items()}}


def _made(value: Any, arrays: list[np.ndarray], depth: int = 0) -> Any:
    if depth > DEEP:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_made(part, arrays, depth + 1) for part in value]
    if not isinstance(value, dict):
        return value
    kind, parts = value["is"], value["parts"]
    if kind == "array":
        return arrays[parts]
    if kind == "bytes":
        return bytes.fromhex(parts)
    if kind == "tuple":
        return tuple(_made(part, arrays, depth + 1) for part in parts)
    if kind == "dict":
        return {_made(k, arrays, depth + 1): _made(v, arrays, depth + 1) for k, v in parts}
    made = KINDS[kind]
    if issubclass(made, Enum):
        return made(parts)
    return made(**{name: _made(part, arrays, depth + 1) for name, part in parts.items()})
