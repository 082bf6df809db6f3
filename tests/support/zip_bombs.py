"""Archives of arrays that are small and unpack, or say that they unpack, to much more: what loading one costs.

Run as a program, it prints by how many MiB the largest memory of the process grew with each, and what `gx.load` said.
"""

import copy
import io
import json
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np

import galapax as gx
from galapax.storage import result_folder
from support.saved_runs import random_run, sign

MIB = 2**20
UNPACKED = 128 * MIB


def header_of(count):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": (count,)})
    return out.getvalue()


def deflate(file, members=1, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(file, "w", compression) as archive:
        for i in range(members):
            with archive.open(f"{i}.npy" if i else "generation.npy", "w", force_zip64=True) as out:
                out.write(header_of(UNPACKED // members // 8))
                for _ in range(UNPACKED // members // MIB):
                    out.write(bytes(MIB))


def declare_little(file):
    """A bomb whose directory says that it is small."""
    deflate(file)
    with zipfile.ZipFile(file) as archive:
        (member,) = archive.infolist()
    size = struct.pack("<L", member.file_size)
    content = file.read_bytes()
    assert content.count(size)
    file.write_bytes(content.replace(size, struct.pack("<L", 4096)))


def call_it_stored(file):
    """A bomb whose directory says that nothing in it is compressed."""
    deflate(file)
    content = bytearray(file.read_bytes())
    at = content.rindex(b"PK\x01\x02")
    content[at + 10 : at + 12] = bytes(2)
    local = content.index(b"PK\x03\x04")
    content[local + 8 : local + 10] = bytes(2)
    file.write_bytes(content)


def lie_about_the_shape(file):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("generation.npy", header_of(UNPACKED // 8) + bytes(64))


def name_the_same_bytes_often(file):
    """Many entries of the directory share the bytes of one member."""
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("generation.npy", header_of(MIB // 8) + bytes(MIB))
        (member,) = archive.infolist()
        for i in range(UNPACKED // MIB):
            other = copy.copy(member)
            other.filename = f"{i}.npy"
            archive.filelist.append(other)


BOMBS = {
    "deflated": deflate,
    "many members": lambda file: deflate(file, 64),
    "bzip2": lambda file: deflate(file, compression=zipfile.ZIP_BZIP2),
    "lzma": lambda file: deflate(file, compression=zipfile.ZIP_LZMA),
    "declares little": declare_little,
    "called stored": call_it_stored,
    "shape": lie_about_the_shape,
    "shared bytes": name_the_same_bytes_often,
}


def plant(make, folder):
    """A saved run with a bomb in it, and a manifest that lists it, as whoever sends such a folder can write one."""
    file = result_folder.save(random_run(2, runs=3), folder) / "arrays.npz"
    make(file)
    sign(folder)
    assert file.stat().st_size < UNPACKED / 50


def largest_memory():
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (MIB if sys.platform == "darwin" else 1024)


def main(folder):
    gx.load(result_folder.save(random_run(2, runs=3), folder / "whole"))
    for name, make in BOMBS.items():
        plant(make, folder / name)
        before = largest_memory()
        try:
            gx.load(folder / name)
            said = "loaded"
        except gx.InputError as error:
            said = str(error)
        print(json.dumps([name, largest_memory() - before, said]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
