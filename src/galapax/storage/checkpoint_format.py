"""The file format of checkpoints: plain data and arrays in one file. Reading it executes nothing.

The file begins with a line that names the format, then a checksum of all that follows: the length of a JSON text, the
text, and the bytes of the arrays that it refers to by number. Tuples, dataclasses and enums are written by name, and
only those in REGISTERED_TYPES are decoded.
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
from galapax.engines.batch_checkpoint import BatchCheckpoint, FinishedBatch
from galapax.engines.outcome import Outcome, Polish, Survivors, Track
from galapax.evaluation.failures import Failed
from galapax.evaluation.worker import Failure

MAGIC = b"galapax checkpoint 1\n"
DIGEST_BYTES = 32
# names in files; two of the classes had other names when the format was fixed
FILE_NAMES: dict[type, str] = {FinishedBatch: "Done", BatchCheckpoint: "Standing"}
REGISTERED_TYPES: dict[str, Any] = {
    FILE_NAMES.get(c, c.__name__): c
    for c in (
        FinishedBatch,
        Failed,
        Failure,
        Outcome,
        Polish,
        Population,
        Shape,
        BatchCheckpoint,
        Stop,
        Survivors,
        Track,
    )
}
ARRAY_DTYPES = {np.dtype(kind).str for kind in ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]}
MAX_NESTING = 60  # levels of lists in lists


class CorruptFileError(Exception):
    """Raised with the reason why a checkpoint cannot be read."""


def pack(data: Any) -> list[bytes]:
    """Serialise data to the chunks of a file."""
    arrays: list[np.ndarray] = []
    text = json.dumps(
        {"data": _encode(data, arrays), "arrays": [[a.dtype.str, list(a.shape)] for a in arrays]}
    ).encode()
    chunks = [len(text).to_bytes(8, "little"), text, *(np.ascontiguousarray(a).tobytes() for a in arrays)]
    checksum = hashlib.sha256()
    for chunk in chunks:
        checksum.update(chunk)
    return [MAGIC, checksum.digest(), *chunks]


def unpack(raw: bytes) -> Any:
    """Deserialise the bytes of a file; raise CorruptFileError with the reason if that is not possible."""
    prefix = MAGIC[: MAGIC.rindex(b" ") + 1]
    if not raw.startswith(prefix):
        raise CorruptFileError("it is not a checkpoint of galapax")
    if not raw.startswith(MAGIC):
        raise CorruptFileError("its format belongs to another version of galapax")
    start = len(MAGIC) + DIGEST_BYTES
    # not kept: a memoryview in the frames of an exception crashes the garbage collector of Python 3.12.1
    if hashlib.sha256(memoryview(raw)[start:]).digest() != raw[len(MAGIC) : start]:
        raise CorruptFileError("it is damaged: its checksum does not match")
    try:
        offset = start + 8
        length = int.from_bytes(raw[start:offset], "little")
        header = json.loads(raw[offset : offset + length])
        arrays, offset = [], offset + length
        for dtype, shape in header["arrays"]:
            if dtype not in ARRAY_DTYPES or not all(isinstance(n, int) and n >= 0 for n in shape):
                raise CorruptFileError(f"it contains an array of unknown type, {dtype!r}")
            count = math.prod(shape)
            if offset + count * np.dtype(dtype).itemsize > len(raw):
                raise CorruptFileError("it is damaged: an array is truncated")
            arrays.append(np.frombuffer(raw, dtype, count, offset).reshape(shape).copy())
            offset += arrays[-1].nbytes
        return _decode(header["data"], arrays)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise CorruptFileError(f"it holds something unexpected ({type(error).__name__})") from None


def _encode(value: Any, arrays: list[np.ndarray]) -> Any:
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
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    elif hasattr(value, "_asdict"):
        fields = value._asdict()
    elif isinstance(value, dict):
        return {"is": "dict", "parts": [[_encode(k, arrays), _encode(v, arrays)] for k, v in value.items()]}
    elif isinstance(value, bytes):
        return {"is": "bytes", "parts": value.hex()}
    elif isinstance(value, list | tuple):
        items = [_encode(v, arrays) for v in value]
        return items if isinstance(value, list) else {"is": "tuple", "parts": items}
    else:
        raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")
    return {
        "is": FILE_NAMES.get(type(value), type(value).__name__),
        "parts": {name: _encode(field, arrays) for name, field in fields.items()},
    }


def _decode(value: Any, arrays: list[np.ndarray], depth: int = 0) -> Any:
    if depth > MAX_NESTING:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_decode(item, arrays, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    type_name, content = value["is"], value["parts"]
    if type_name == "array":
        return arrays[content]
    if type_name == "bytes":
        return bytes.fromhex(content)
    if type_name == "tuple":
        return tuple(_decode(item, arrays, depth + 1) for item in content)
    if type_name == "dict":
        return {_decode(k, arrays, depth + 1): _decode(v, arrays, depth + 1) for k, v in content}
    registered_type = REGISTERED_TYPES[type_name]
    if issubclass(registered_type, Enum):
        return registered_type(content)
    return registered_type(**{name: _decode(item, arrays, depth + 1) for name, item in content.items()})
