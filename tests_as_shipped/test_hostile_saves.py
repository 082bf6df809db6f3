"""Saved runs and checkpoints that were damaged, or written by somebody else, are refused with a sentence."""

import pickle
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx


def solve(**options):
    return gx.minimize(lambda x: jnp.sum(x**2), [(-2.0, 3.0)] * 2, "de", population=10, generations=20, **options)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return solve(runs=3, polish=False).save(tmp_path_factory.mktemp("saved") / "run")


class Bomb:
    """Unpickling it would raise another error than the one expected."""

    def __reduce__(self):
        return exec, ("raise SystemExit('a pickle was executed')",)


def flip_bit(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("name", ["result.json", "arrays.npz"])
@pytest.mark.parametrize(
    "damage",
    [flip_bit, lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"[" * 200_000],
    ids=["one bit", "truncated", "empty", "deep nesting"],
)  # fmt: skip
def test_a_damaged_file_is_named(name, damage, saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "run")
    (folder / name).write_bytes(damage((folder / name).read_bytes()))
    with pytest.raises(gx.InputError, match=f"{name} is damaged"):
        gx.load(folder)


def test_a_pickle_in_an_archive_is_never_executed(saved, tmp_path):
    folder = shutil.copytree(saved, tmp_path / "run")
    np.savez(folder / "arrays.npz", population=np.array([Bomb()], dtype=object))
    with pytest.raises(gx.InputError, match=r"arrays\.npz is damaged"):
        gx.load(folder)


@pytest.mark.parametrize(
    "damage",
    [flip_bit, lambda data: data[: len(data) // 2], lambda data: pickle.dumps(Bomb())],
    ids=["one bit", "truncated", "a pickle"],
)  # fmt: skip
def test_a_damaged_checkpoint_is_refused(damage, tmp_path):
    file = tmp_path / "run.ckpt"
    solve(checkpoint=file)
    (tmp_path / "run.ckpt.1").unlink(missing_ok=True)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(gx.InputError, match=r"run\.ckpt"):
        solve(resume=file)
