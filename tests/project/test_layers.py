"""The layers: which package may import from which, and what a user sees of them."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import galapax as gx

SOURCE = Path(gx.__file__).parent
# a package imports only from packages above it; "root" are the modules beside them
PACKAGES = ["version", "core", "numerics", "metrics", "operators", "local", "problems", "algorithms", "objective",
         "results", "execution", "fused", "api", "root", "storage", "view", "papers", "compat", "cli", "__init__",
         "__main__"]  # fmt: skip
# scipy.stats takes half a second to import, which most sessions never need
EXTRAS = {
    "scipy",
    "matplotlib",
    "pandas",
    "PIL",
    "starlette",
    "uvicorn",
    "moocore",
    "typer",
    "rich",
    "cupy",
    "pebble",
    "cloudpickle",
    "pymoo",
    "mlflow",
    "tensorboard",
    "wandb",
}


# Result.plot, .save and .to_dataframe, the progress line and the live page import what they need when called
USERS_OF_VIEWS = ("core", "results", "execution")


def package_of(file):
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return parts[0] if len(parts) > 1 or parts[0] in PACKAGES else "root"


def imported(node):
    """Modules of galapax that an import statement names, as parts of their path."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif node.module == "galapax":
        names = [f"galapax.{alias.name}" for alias in node.names]
    else:
        names = [node.module or ""]
    return [name.split(".")[1:] for name in names if name.split(".")[0] == "galapax"]


@cache
def parsed(file):
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imports(file):
    """(node, whether it stands inside a function) of each import statement that runs."""
    found = []

    def look(node, inside):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append((node, inside))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):  # no expression holds an import
                look(child, inside or isinstance(node, ast.FunctionDef))

    look(parsed(file), False)
    return found


def test_a_package_imports_only_from_packages_above_it():
    wrong = []
    for file in SOURCE.rglob("*.py"):
        own = PACKAGES.index(package_of(file))
        for node, inside in imports(file):
            if inside and package_of(file) in USERS_OF_VIEWS:
                continue
            for path in imported(node):
                other = path[0] if path and path[0] in PACKAGES else "root" if path else "__init__"
                if PACKAGES.index(other) > own:
                    wrong.append(f"{file.relative_to(SOURCE)}:{node.lineno} imports {'.'.join(path)}")
    assert wrong == []


def test_only_optional_extras_are_imported_inside_functions():
    """Or what few runs need: the pictures, the live page's server, the compiler of fused kernels, models."""
    wrong = []
    for file in SOURCE.rglob("*.py"):
        for node, inside in imports(file):
            if not inside or package_of(file) in ("cli", "papers", "__main__"):
                continue
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            few = ("galapax.view", "galapax.storage", "galapax.fused", "galapax.local.few_evaluations",
                       "galapax.local.noise")  # fmt: skip
            if not any(name.split(".")[0] in EXTRAS or name.startswith(few) for name in names):
                wrong.append(f"{file.relative_to(SOURCE)}:{node.lineno}")
    assert wrong == []


def test_nothing_but_devices_asks_jax_for_its_backend():
    """`jax.default_backend()` is wrong under `jax.default_device`."""
    asking = [f for f in SOURCE.rglob("*.py") if "default_backend" in f.read_text(encoding="utf-8")]
    assert asking == []


def test_files_and_functions_are_of_a_size_to_read():
    """At most 700 lines and 100; what lists data may be longer."""
    for file in SOURCE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if package_of(file) == "problems":
            continue
        assert len(text.splitlines()) <= 700, file
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.FunctionDef) and node.name not in ("minimize", "minimax", "solve", "page"):
                body = node.body[-1].end_lineno - node.body[0].lineno
                assert body <= 100, (file, node.name)


def test_a_user_sees_public_names_only():
    assert set(dir(gx)) == set(gx.__all__)


def test_importing_galapax_loads_no_optional_extra():
    extras = (
        "matplotlib",
        "starlette",
        "typer",
        "moocore",
        "PIL",
        "pebble",
        "distributed",
        "concurrent.futures.process",
    )
    code = f"import sys, galapax; print([m for m in {extras} if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "[]"
