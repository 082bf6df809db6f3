"""Hoists constants out of traced functions: captured arrays and numbers in formulas become arguments.

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

SHAPE_PRIMITIVES = {
    "broadcast_in_dim",
    "convert_element_type",
    "copy",
    "reshape",
    "squeeze",
}  # a number goes through unchanged


class Constants(NamedTuple):
    """The hoisted constants of some programs."""

    arrays: tuple[Array | np.ndarray, ...]
    numbers: dict[str, Array | np.ndarray]  # {dtype: (k,)}, one vector each, since one transfer is cheaper than many


class _ShapeStep(NamedTuple):
    """An equation that reads and writes values by name, whatever function it was nested in."""

    equation: JaxprEqn
    inputs: tuple[int | np.ndarray, ...]  # each a name (int), or a number (np.ndarray of no dimension)
    outputs: tuple[int, ...]


class _Slot(NamedTuple):
    """The place of a hoisted number, and the steps that reshape it before it is read."""

    kind: str
    place: int
    inverse: bool
    shaping: tuple[_ShapeStep, ...]


class HoistedPrograms:
    """Programs of one argument as functions of their constants and of that argument (see `call`), and the constants.

    They share one set of constants: an array that two of them read is handed over once, and equal expressions read the
    same number, so that XLA still sees that they are equal and computes them once.
    """

    def __init__(self, programs: Sequence[ClosedJaxpr]) -> None:
        pool = _ConstantPool()
        self._flat = [_FlatJaxpr(program, pool) for program in programs]
        self.constants = pool.constants()

    @property
    def pattern(self) -> Hashable:
        """Which program reads which of the arrays."""
        return tuple(tuple(flat.arrays.items()) for flat in self._flat)

    def programs(self) -> list[Jaxpr]:
        """Trace the programs again as functions of the constants and x; takes as long as the first trace."""
        return [flat.program(self.constants) for flat in self._flat]


class _ConstantPool:
    """Collects the constants of some programs, each array and equal expression once."""

    def __init__(self) -> None:
        self._arrays: dict[int, tuple[int, object]] = {}  # by identity; held, so that no other array takes it over
        self._numbers: dict[str, list[np.ndarray]] = {}
        self._slots: dict[Hashable, tuple[str, int]] = {}
        self._keys: dict[Hashable, int] = {}

    def constants(self) -> Constants:
        # copies of NumPy arrays: while the one that JAX converted lives, it stands for the user's in either precision
        arrays = [a if isinstance(a, jax.Array) else np.array(np.asarray(a)) for _, a in self._arrays.values()]
        return Constants(tuple(arrays), {kind: np.array(self._numbers[kind], kind) for kind in sorted(self._numbers)})

    def array(self, value: object) -> int:
        """Return the place of an array among the constants."""
        return self._arrays.setdefault(id(value), (len(self._arrays), value))[0]

    def number(self, key: Hashable, value: np.ndarray) -> tuple[str, int]:
        """Return the place of a number, the same for the same key."""
        if key not in self._slots:
            column = self._numbers.setdefault(value.dtype.name, [])
            self._slots[key] = (value.dtype.name, len(column))
            column.append(value)
        return self._slots[key]

    def key(self, expression: Hashable) -> int:
        """Return a number that stands for the expression, so that keys of long formulas stay short."""
        return self._keys.setdefault(expression, len(self._keys))


class _FlatJaxpr:
    """A program with nested calls inlined, and the numbers to hoist from it."""

    def __init__(self, closed: ClosedJaxpr, pool: _ConstantPool) -> None:
        self._closed, self._pool = closed, pool
        self._steps: list[_ShapeStep] = []
        self.arrays: dict[int, int] = {}  # name of a value: place among the arrays
        self._count = 0
        self._x = self._new_name()
        self._outputs = self._inline(closed.jaxpr, closed.consts, [self._x])
        self._slots = self._assign_slots()

    def _new_name(self) -> int:
        self._count += 1
        return self._count

    def _add_constant(self, value: object) -> int:
        name = self._new_name()
        self.arrays[name] = self._pool.array(value)
        return name

    def _inline(self, jaxpr: Jaxpr, consts: Sequence[Array], inputs: Sequence[Any]) -> list[Any]:
        """Append the steps of a program and of those that it calls; the names of its outputs."""
        values = dict(zip(jaxpr.constvars, map(self._add_constant, consts), strict=True))
        values.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Any:
            if not isinstance(atom, Literal):
                return values[atom]
            aval: Any = atom.aval
            return np.asarray(atom.val, aval.dtype) if aval.shape == () else self._add_constant(atom.val)

        for equation in jaxpr.eqns:
            inputs_read, nested = [read(atom) for atom in equation.invars], equation.params.get("jaxpr")
            if equation.primitive.name in ("jit", "pjit") and isinstance(nested, ClosedJaxpr):
                outputs = self._inline(nested.jaxpr, nested.consts, inputs_read)
            else:
                outputs = [self._new_name() for _ in equation.outvars]
                self._steps.append(_ShapeStep(equation, tuple(inputs_read), tuple(outputs)))
            values.update(zip(equation.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _assign_slots(self) -> dict[tuple[int, int], _Slot]:
        """Choose the inputs to hoist: {(number of the step, of its input): its slot}."""
        keys: dict[int, Hashable] = {name: ("array", place) for name, place in self.arrays.items()} | {self._x: "x"}
        data_dependent = set(keys)  # what depends on data
        shape_steps: dict[int, _ShapeStep] = {}  # what made it, if it is a number in another shape
        slots: dict[tuple[int, int], _Slot] = {}
        for number, step in enumerate(self._steps):
            input_keys = tuple(keys[v] if isinstance(v, int) else (v.dtype.name, v.tobytes()) for v in step.inputs)
            key = self._pool.key((step.equation.primitive.name, _hashable(step.equation.params), input_keys))
            keys |= {name: (key, i) for i, name in enumerate(step.outputs)}
            if not any(isinstance(v, int) and v in data_dependent for v in step.inputs):
                if step.equation.primitive.name in SHAPE_PRIMITIVES and len(step.inputs) == 1:
                    shape_steps[step.outputs[0]] = step
                continue
            data_dependent.update(step.outputs)
            for i, value in enumerate(step.inputs):
                scalar, shaping = _find_number(value, shape_steps)
                if scalar is not None and _is_data(step.equation, i, scalar):
                    inverse = step.equation.primitive.name == "div" and i == 1 and _has_normal_reciprocal(scalar)
                    stored = np.asarray(1 / scalar, scalar.dtype) if inverse else scalar
                    slots[number, i] = _Slot(*self._pool.number((key, i), stored), inverse, shaping)
        return slots

    def program(self, constants: Constants) -> Jaxpr:
        """Return the program as a function of the constants and x."""
        live = self._live_steps()

        def run(constants: Constants, x: Array) -> list[Array]:
            values: dict[int, Any] = {name: constants.arrays[place] for name, place in self.arrays.items()}
            values[self._x] = x

            def read(value: object) -> Any:
                return values[value] if isinstance(value, int) else value

            for number, step in enumerate(self._steps):
                if number not in live:
                    continue
                slots = [self._slots.get((number, i)) for i in range(len(step.inputs))]
                inputs = [
                    read(value) if slot is None else self._materialize(constants, slot)
                    for value, slot in zip(step.inputs, slots, strict=True)
                ]
                if any(slot is not None and slot.inverse for slot in slots):
                    outputs = [jnp.multiply(*inputs)]
                else:
                    outputs = evaluate_equation(self._closed.jaxpr, step.equation, inputs)
                values.update(zip(step.outputs, outputs, strict=True))
            return [jnp.asarray(read(value)) for value in self._outputs]

        arguments = jax.tree.map(_shape_dtype, (constants, self._closed.in_avals[0]))
        closed = jax.make_jaxpr(run)(*arguments)
        if closed.consts:
            raise AssertionError("a program whose constants are lifted closes over nothing")
        return closed.jaxpr

    def _materialize(self, constants: Constants, slot: _Slot) -> Any:
        """Return a hoisted number in the shape in which it is read."""
        value: Any = lax.index_in_dim(constants.numbers[slot.kind], slot.place, keepdims=False)
        for step in slot.shaping:
            (value,) = evaluate_equation(self._closed.jaxpr, step.equation, [value])
        return value

    def _live_steps(self) -> set[int]:
        """Liveness: the steps that an output or an effect depends on, without those of hoisted numbers."""
        live_values, live_steps = {v for v in self._outputs if isinstance(v, int)}, set()
        for number in reversed(range(len(self._steps))):
            step = self._steps[number]
            if step.equation.effects or live_values.intersection(step.outputs):
                live_steps.add(number)
                live_values |= {
                    v for i, v in enumerate(step.inputs) if isinstance(v, int) and (number, i) not in self._slots
                }
        return live_steps


def call(program: Jaxpr, constants: Constants, x: Array) -> list[Array]:
    """Evaluate a program with its constants at x."""
    return jaxpr_as_fun(ClosedJaxpr(program, []))(*jax.tree.leaves(constants), x)


def _shape_dtype(value: Any) -> jax.ShapeDtypeStruct:
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    return jax.ShapeDtypeStruct(np.shape(value), dtype)


def _find_number(value: Any, shape_steps: dict[int, _ShapeStep]) -> tuple[np.ndarray | None, tuple[_ShapeStep, ...]]:
    """Find the number that a value is, and the steps that shape it; None if it is not a number."""
    shaping: list[_ShapeStep] = []
    while isinstance(value, int):
        if value not in shape_steps:
            return None, ()
        shaping.insert(0, shape_steps[value])
        value = shape_steps[value].inputs[0]
    return value, tuple(shaping)


def _is_data(equation: JaxprEqn, position: int, value: np.ndarray) -> bool:
    """Return whether a number is data rather than part of the program."""
    if not jnp.issubdtype(value.dtype, jnp.floating) or not np.isfinite(value) or float(value) in (-1.0, 0.0, 1.0):
        return False
    if equation.primitive.name != "pow":
        return True
    if position == 1:
        return not float(2 * value).is_integer()
    return math.frexp(value)[0] != 0.5


def _has_normal_reciprocal(value: np.ndarray) -> bool:
    """Return whether the reciprocal is a normal number, as the value itself is."""
    limits = jnp.finfo(value.dtype)
    return bool(limits.tiny <= abs(value) <= 1 / limits.tiny)


def _hashable(params: dict[str, object]) -> Hashable:
    """Return the parameters of an equation, to be compared; where they cannot be, equal only to themselves."""
    items = tuple(sorted(params.items(), key=lambda item: item[0]))
    try:
        hash(items)
    except TypeError:
        return id(params)
    return items
