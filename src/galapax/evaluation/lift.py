"""What a traced function closes over becomes data: its arrays, and the numbers in its formula.

A number that changes from call to call (`lambda x: jnp.sum((x - shift) ** 2)`) is part of the program that JAX traces,
so that each new value would be compiled anew. Here such numbers are taken out of the program and handed to it together
with x. What stays in it, and compiles again when it changes:

- numbers in equations that read neither x nor an array, such as `jnp.sqrt(2.5)`: XLA computes them once, in compiling;
- 0, 1, -1, infinities and NaN, and all that is not a floating-point number;
- exponents that are multiples of 1/2 and bases that are powers of 2: XLA has faster code for those;
- numbers inside loops, branches and functions with their own derivative (scan, while, cond, custom_jvp).

A division by a number is lifted as a multiplication by its reciprocal, which is what XLA makes of it too.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from galapax.numerics.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, evaluate_equation, jaxpr_as_fun

SHAPING = {"broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze"}  # a number goes through unchanged


class Constants(NamedTuple):
    """What programs read besides x, as data."""

    arrays: tuple[Any, ...]
    numbers: dict[str, Any]  # {dtype: (k,)}, one vector each, since one transfer is cheaper than many


class _Step(NamedTuple):
    """An equation that reads and writes values by name, whatever function it was nested in."""

    equation: JaxprEqn
    inputs: tuple[Any, ...]  # each a name (int), or a number (np.ndarray of no dimension)
    outputs: tuple[int, ...]


class _Slot(NamedTuple):
    """Where a lifted number stands, and what shapes it before it is read."""

    kind: str
    place: int
    inverse: bool
    shaping: tuple[_Step, ...]


class Lifted:
    """Programs of one argument as functions of their constants and of that argument (see `call`), and the constants.

    They share one set of constants: an array that two of them read is handed over once, and equal expressions read the
    same number, so that XLA still sees that they are equal and computes them once.
    """

    def __init__(self, programs: Sequence[ClosedJaxpr]) -> None:
        gathered = _Gathered()
        self._flat = [_Flat(program, gathered) for program in programs]
        self.constants = gathered.constants()

    @property
    def pattern(self) -> Hashable:
        """Which program reads which of the arrays."""
        return tuple(tuple(flat.arrays.items()) for flat in self._flat)

    def programs(self) -> list[Jaxpr]:
        """The programs themselves, traced again, which takes a while."""
        return [flat.program(self.constants) for flat in self._flat]


class _Gathered:
    """The arrays and numbers of some programs."""

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[int, Any]] = {}  # by identity; held, so that no other array takes it over
        self._numbers: dict[str, list[np.ndarray]] = {}
        self._slots: dict[Hashable, tuple[str, int]] = {}
        self._keys: dict[Hashable, int] = {}

    def constants(self) -> Constants:
        # copies of NumPy arrays: while the one that JAX converted lives, it stands for the user's in either precision
        arrays = [a if isinstance(a, jax.Array) else np.array(np.asarray(a)) for _, a in self._arrays.values()]
        return Constants(tuple(arrays), {kind: np.array(self._numbers[kind], kind) for kind in sorted(self._numbers)})

    def array(self, value: Any) -> int:
        """The place of an array among the constants."""
        return self._arrays.setdefault(id(value), (len(self._arrays), value))[0]

    def number(self, key: Hashable, value: np.ndarray) -> tuple[str, int]:
        """The place of a number, the same for the same key."""
        if key not in self._slots:
            column = self._numbers.setdefault(value.dtype.name, [])
            self._slots[key] = (value.dtype.name, len(column))
            column.append(value)
        return self._slots[key]

    def key(self, expression: Hashable) -> int:
        """A number that stands for the expression, so that keys of long formulas stay short."""
        return self._keys.setdefault(expression, len(self._keys))


class _Flat:
    """A program without nested calls, and which of its numbers are data."""

    def __init__(self, closed: ClosedJaxpr, gathered: _Gathered) -> None:
        self._closed, self._gathered = closed, gathered
        self._steps: list[_Step] = []
        self.arrays: dict[int, int] = {}  # name of a value: place among the arrays
        self._count = 0
        self._x = self._name()
        self._outputs = self._inline(closed.jaxpr, closed.consts, [self._x])
        self._slots = self._choose()

    def _name(self) -> int:
        self._count += 1
        return self._count

    def _constant(self, value: Any) -> int:
        name = self._name()
        self.arrays[name] = self._gathered.array(value)
        return name

    def _inline(self, jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Append the steps of a program and of those that it calls; the names of its outputs."""
        values = dict(zip(jaxpr.constvars, map(self._constant, consts), strict=True))
        values.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Any:
            if not isinstance(atom, Literal):
                return values[atom]
            kind: Any = atom.aval
            return np.asarray(atom.val, kind.dtype) if kind.shape == () else self._constant(atom.val)

        for equation in jaxpr.eqns:
            given, nested = [read(atom) for atom in equation.invars], equation.params.get("jaxpr")
            if equation.primitive.name in ("jit", "pjit") and isinstance(nested, ClosedJaxpr):
                made = self._inline(nested.jaxpr, nested.consts, given)
            else:
                made = [self._name() for _ in equation.outvars]
                self._steps.append(_Step(equation, tuple(given), tuple(made)))
            values.update(zip(equation.outvars, made, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _choose(self) -> dict[tuple[int, int], _Slot]:
        """Which inputs of which steps are lifted: {(number of the step, of its input): its place}."""
        keys: dict[int, Hashable] = {name: ("array", place) for name, place in self.arrays.items()} | {self._x: "x"}
        moving = set(keys)  # what depends on data
        shaped: dict[int, _Step] = {}  # what made it, if it is a number in another shape
        slots: dict[tuple[int, int], _Slot] = {}
        for number, step in enumerate(self._steps):
            given = tuple(keys[v] if isinstance(v, int) else (v.dtype.name, v.tobytes()) for v in step.inputs)
            key = self._gathered.key((step.equation.primitive.name, _hashable(step.equation.params), given))
            keys |= {name: (key, i) for i, name in enumerate(step.outputs)}
            if not any(isinstance(v, int) and v in moving for v in step.inputs):
                if step.equation.primitive.name in SHAPING and len(step.inputs) == 1:
                    shaped[step.outputs[0]] = step
                continue
            moving.update(step.outputs)
            for i, value in enumerate(step.inputs):
                found, shaping = _number_behind(value, shaped)
                if found is not None and _is_data(step.equation, i, found):
                    inverse = step.equation.primitive.name == "div" and i == 1 and _invertible(found)
                    stored = np.asarray(1 / found, found.dtype) if inverse else found
                    slots[number, i] = _Slot(*self._gathered.number((key, i), stored), inverse, shaping)
        return slots

    def program(self, constants: Constants) -> Jaxpr:
        """The program as a function of the constants and x."""
        needed = self._needed()

        def run(constants: Constants, x: Array) -> list[Any]:
            values: dict[int, Any] = {name: constants.arrays[place] for name, place in self.arrays.items()}
            values[self._x] = x

            def read(value: Any) -> Any:
                return values[value] if isinstance(value, int) else value

            for number, step in enumerate(self._steps):
                if number not in needed:
                    continue
                slots = [self._slots.get((number, i)) for i in range(len(step.inputs))]
                given = [
                    read(value) if slot is None else self._shaped(constants, slot)
                    for value, slot in zip(step.inputs, slots, strict=True)
                ]
                if any(slot is not None and slot.inverse for slot in slots):
                    made = [jnp.multiply(*given)]
                else:
                    made = evaluate_equation(self._closed.jaxpr, step.equation, given)
                values.update(zip(step.outputs, made, strict=True))
            return [jnp.asarray(read(value)) for value in self._outputs]

        described = jax.tree.map(_described, (constants, self._closed.in_avals[0]))
        made = jax.make_jaxpr(run)(*described)
        if made.consts:
            raise AssertionError("a program whose constants are lifted closes over nothing")
        return made.jaxpr

    def _shaped(self, constants: Constants, slot: _Slot) -> Any:
        """A lifted number, in the shape in which it is read."""
        value: Any = lax.index_in_dim(constants.numbers[slot.kind], slot.place, keepdims=False)
        for step in slot.shaping:
            (value,) = evaluate_equation(self._closed.jaxpr, step.equation, [value])
        return value

    def _needed(self) -> set[int]:
        """The steps that an output or an effect depends on, but for those whose number is lifted."""
        wanted, needed = {v for v in self._outputs if isinstance(v, int)}, set()
        for number in reversed(range(len(self._steps))):
            step = self._steps[number]
            if step.equation.effects or wanted.intersection(step.outputs):
                needed.add(number)
                wanted |= {
                    v for i, v in enumerate(step.inputs) if isinstance(v, int) and (number, i) not in self._slots
                }
        return needed


def call(program: Jaxpr, constants: Constants, x: Array) -> list[Any]:
    """The outputs of a lifted program."""
    return jaxpr_as_fun(ClosedJaxpr(program, []))(*jax.tree.leaves(constants), x)


def _described(value: Any) -> jax.ShapeDtypeStruct:
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    return jax.ShapeDtypeStruct(np.shape(value), dtype)


def _number_behind(value: Any, shaped: dict[int, _Step]) -> tuple[np.ndarray | None, tuple[_Step, ...]]:
    """The number that a value is, and the steps that shape it; None if it is not a number."""
    shaping: list[_Step] = []
    while isinstance(value, int):
        if value not in shaped:
            return None, ()
        shaping.insert(0, shaped[value])
        value = shaped[value].inputs[0]
    return value, tuple(shaping)


def _is_data(equation: JaxprEqn, position: int, value: np.ndarray) -> bool:
    """Whether a number is data rather than part of the program."""
    if not jnp.issubdtype(value.dtype, jnp.floating) or not np.isfinite(value) or float(value) in (-1.0, 0.0, 1.0):
        return False
    if equation.primitive.name != "pow":
        return True
    if position == 1:
        return not float(2 * value).is_integer()
    return math.frexp(value)[0] != 0.5


def _invertible(value: np.ndarray) -> bool:
    """Whether the reciprocal is a normal number, as the value itself is."""
    limits = jnp.finfo(value.dtype)
    return bool(limits.tiny <= abs(value) <= 1 / limits.tiny)


def _hashable(params: dict[str, Any]) -> Hashable:
    """The parameters of an equation, to be compared; where they cannot be, equal only to themselves."""
    found = tuple(sorted(params.items(), key=lambda item: item[0]))
    try:
        hash(found)
    except TypeError:
        return id(params)
    return found
