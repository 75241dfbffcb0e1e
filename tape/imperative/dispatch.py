"""Operations on tensors that the user holds: brought onto the tape, or computed plainly where nothing is recorded.

Every operation on a `Variable`, and every one on a tape that is held (see `Tape.hold`), comes through `apply`.
"""

from __future__ import annotations

import operator
from _thread import get_ident
from collections.abc import Callable
from typing import Any

import numpy as np

from tape import inplace, natives, record
from tape.current import current, resumed
from tape.errors import was_cleared
from tape.imperative import face, lifetime
from tape.imperative.unrecorded import array_of, collect, mapped, plainly
from tape.imperative.variable import Parameter, Variable, attach, persistent_tape
from tape.tensor import Tensor
from tape.views import watch
from tape.wengert import CROWDED, PAUSED, WATCHED, Tape


def apply(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Carry out an operation on Tensors: recorded if one of them is recorded or requires a gradient, else plainly."""
    if _writes(function, args):
        return write(args[0], function, args[1:], kwargs)
    found: list[Tensor] = []
    collect(args, found)
    if kwargs:
        collect(kwargs.values(), found)
        if kwargs.get("out") is not None and any(map(_is_apart, _listed(kwargs["out"]))):
            return _into(function, args, kwargs)
    tape = _tape_for(found)
    if tape is None:
        return plainly(function, args, kwargs, found)
    if tape.held:
        _admit(tape)
    if not tape.persistent and current.enabled:
        _refuse_closures(found)
    owners: dict[int, Any] = {}

    def bring(t: Any) -> Any:
        if not isinstance(t, Variable):
            return t if t._tape is tape or t._tape.held & PAUSED == 0 else t._value
        if not t._state.requires_grad or not current.enabled:
            return t._state.array if t._layout.shape else t._state.array[()]
        h = attach(t, tape)
        owners[id(h)] = t
        return h

    given = mapped(args, bring)
    named = {name: mapped(x, bring) for name, x in kwargs.items()} if kwargs else kwargs
    result = _watched(tape, function, given, named) if tape.held & WATCHED else function(*given, **named)
    return _rebased(result, owners) if owners else result


def _refuse_closures(found: list[Tensor]) -> None:
    if any(isinstance(t, Variable) and t._state.requires_grad for t in found):
        raise record.closed_over()


def _listed(out: Any) -> tuple[Any, ...]:
    return out if isinstance(out, tuple) else (out,)


def _is_apart(x: Any) -> bool:
    """Tell whether a target is a tensor that is not simply recorded."""
    return isinstance(x, Variable) or (isinstance(x, Tensor) and bool(x._tape.held & PAUSED))


def _tape_for(found: list[Tensor]) -> Tape | None:
    """Give the tape that an operation on these is recorded on, None if it is not recorded."""
    wanted = False
    recorded: Tape | None = None
    for t in found:
        if isinstance(t, Variable):
            wanted |= t._state.requires_grad
            continue
        tape = t._tape
        if tape.owner != get_ident():
            tape.readable()
            if tape.workspace is None:
                raise was_cleared(f"of shape {t.shape}")
            if tape.held & PAUSED:
                continue
        if recorded is not None and tape is not recorded:
            raise record.different_tapes(recorded, tape)
        recorded = tape
    if recorded is not None:
        return recorded
    if wanted and current.enabled:
        return current.tape or persistent_tape()
    return None


def _admit(tape: Tape) -> None:
    """Let an operation onto a tape that is held, after it was pruned if that is the reason."""
    if tape.held & CROWDED and not tape.pinned:
        lifetime.relieve(tape)


def _watched(tape: Tape, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    tape.free(WATCHED)
    try:
        return current.anomaly.watch(tape, function, args, kwargs)
    finally:
        tape.hold(WATCHED)


def _rebased(result: Any, owners: dict[int, Any]) -> Any:
    """Let views of a variable's handle be views of the variable, and the handle itself the variable."""
    if isinstance(result, Tensor):
        if id(result) in owners:
            return owners[id(result)]
        base = getattr(result, "_base", None)
        if base is not None and id(base[0]) in owners:
            watch(owners[id(base[0])], result, base[1])
    elif type(result) in (tuple, list):
        return type(result)([_rebased(x, owners) for x in result])
    return result


# ---------------------------------------------------------------- writing
def _promote(v: Any, tape: Tape) -> None:
    """Let a variable without a gradient be a value on the tape from now on, and with it what it is a view of."""
    v._check_write()
    base = getattr(v, "_base", None)
    if base is not None:
        if isinstance(base[0], Variable):
            _promote(base[0], tape)
        return
    t = record.leaf_array(tape, v._state.array)
    del v._state
    v.__class__ = Tensor
    v._tape, v._slot, v._value, v._layout = tape, t._slot, t._value, t._layout
    _outdate(v)


def _outdate(v: Any) -> None:
    """Let the views of a variable that was promoted be taken again when they are read."""
    for reference in getattr(v, "_views", None) or ():
        view: Any = reference()
        if type(view) is not Variable or view._base is None or view._base[0] is not v:
            continue
        del view._state
        stale: Any = inplace.Stale
        view.__class__ = stale
        view._tape = v._tape
        _outdate(view)


def write(x: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Carry out a function that writes to its first argument."""
    found: list[Tensor] = []
    collect((*args, *kwargs.values()), found)
    if isinstance(x, Variable):
        x._check_write()
        tape = _tape_of_gradients(found)
        if tape is not None:
            _promote(x, tape)
            return apply(function, (x, *args), kwargs)
        given = mapped(args, array_of)  # before the memory counts as changed: views may be taken again here
        x._state.storage.unshare()
        result = function(x._state.array, *given, **kwargs)
        for v in x._state.storage.tensors():
            inplace.outdate_views(v)
        return result
    # A recorded value under `no_grad`: the gradient goes through as if nothing had been written.
    x._check_write()
    value = np.array(x._value, x._layout.dtype)
    result = function(value, *mapped(args, array_of), **kwargs)
    base = getattr(x, "_base", None)
    if base is None:
        with resumed(x._tape):
            inplace.move_to(x, natives.replaced(x, value))
        return result
    owner, (_, write_back) = base
    write_back(owner, value)
    stale: Any = inplace.Stale
    x.__class__ = stale
    inplace.outdate_views(x)
    return result


def _tape_of_gradients(found: list[Tensor]) -> Tape | None:
    """Give the tape that a write of these is recorded on; None if none of them has a gradient to be lost."""
    tape = _tape_for(found)
    return tape if tape is not None and any(t.requires_grad for t in found) else None


def _writes(function: Any, args: Any) -> bool:
    """Tell whether a function writes to its first argument, and that is a tensor which is not simply recorded."""
    writer = function is operator.setitem or function in _WRITERS or getattr(function, "__name__", "") == "at"
    return writer and _is_apart(args[0])


def assign(v: Any, index: Any, value: Any) -> None:
    """Write elements (``v[index] = value``)."""
    write(v, operator.setitem, (index, value), {})


def _augmented(name: str, ufunc: Any) -> Callable[[Any, Any], Any]:
    in_place = getattr(operator, f"i{name}")

    def method(v: Any, y: Any) -> Any:
        def update(target: Any, other: Any) -> Any:
            return in_place(target, other) if isinstance(target, Tensor) else ufunc(target, other, out=target)

        result = write(v, update, (y,), {})
        # A number becomes a new one, as NumPy's do.
        return v if isinstance(v, Variable) or v._layout.shape else result

    method.__name__ = f"__i{name}__"
    return method


def _into(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Carry out an operation with ``out=`` a tensor: it is computed first and then written."""
    targets = _listed(kwargs["out"])
    rest = {name: x for name, x in kwargs.items() if name != "out"}
    mask = rest.pop("where", True) if isinstance(function, np.ufunc) else True
    found: list[Tensor] = []
    collect((*args, *rest.values(), mask), found)
    if len(targets) == 1 and _tape_of_gradients(found) is None:
        # NumPy itself writes, so that nothing is computed which `where` leaves out.
        if mask is not True:
            rest["where"] = mask
        given = {name: mapped(x, array_of) for name, x in rest.items()}
        write(targets[0], lambda out, *values: function(*values, out=out, **given), args, {})
        return targets[0]
    results = apply(function, args, rest) if found else function(*args, **rest)
    for target, y in zip(targets, results if type(results) is tuple else (results,), strict=False):
        if target is not None:
            if not np.can_cast(y.dtype, target.dtype, "same_kind"):
                raise TypeError(f"Cannot cast output from {y.dtype} to {target.dtype} with casting rule 'same_kind'")
            target[...] = y if mask is True else np.where(mask, y, target)
    return targets if len(targets) > 1 else targets[0]


# ---------------------------------------------------------------- protocols and operators of a variable
_WRITERS = {np.copyto, np.put, np.putmask, np.place, np.fill_diagonal, np.put_along_axis}
"""NumPy functions that write to their first argument."""


def _ufunc(_: Any, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
    """Carry out a ufunc (NumPy's ``__array_ufunc__``)."""
    return apply(ufunc if method == "__call__" else getattr(ufunc, method), inputs, keywords)


def _function(_: Any, function: Any, __: Any, args: Any, kwargs: Any) -> Any:
    """Carry out a NumPy function (NumPy's ``__array_function__``)."""
    return apply(function, args, kwargs)


def _binary(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def plain(x: Any, y: Any) -> Any:
        tape = _simply(x, y)
        if tape is None:
            return apply(function, (x, y), {})
        return function(attach(x, tape), attach(y, tape) if type(y) in _HELD else y)

    def reflected(x: Any, y: Any) -> Any:
        tape = _simply(x, y)
        return apply(function, (y, x), {}) if tape is None else function(y, attach(x, tape))

    return plain, reflected


_HELD = (Variable, Parameter)
_OTHERS = (Tensor, np.ndarray, float, int)


def _simply(x: Any, y: Any) -> Tape | None:
    """Give the tape that an operation on a variable and another value is simply recorded on, if that is so."""
    if not current.enabled or not x._state.requires_grad:
        return None
    kind = type(y)
    if kind is Tensor:
        tape = y._tape
    elif (kind in _HELD and y._state.requires_grad) or kind in _OTHERS:
        tape = current.tape or persistent_tape()
    else:
        return None
    return tape if tape.persistent and tape.owner == get_ident() else None


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: apply(function, (x,), {})


def _float(v: Any) -> float:
    """Give the value of one element, unless a gradient would be lost."""
    if v._state.requires_grad and not v._state.cleared:
        return Tensor.__float__(v)
    return float(v._state.array)


def _as_array(v: Any, dtype: Any = None, copy: Any = None) -> Any:
    """Give a copy of the values, unless a gradient would be lost."""
    if v._state.requires_grad and not v._state.cleared:
        return Tensor.__array__(v, dtype, copy)
    return np.array(v._state.array, dtype)


def _install() -> None:
    names = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
        "mod": np.remainder, "pow": np.power, "matmul": np.matmul, "and": np.bitwise_and, "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }  # fmt: skip
    methods: dict[str, Any] = {}
    for name, ufunc in names.items():
        function = getattr(operator, name if name not in ("and", "or") else f"{name}_")
        methods[f"__{name}__"], methods[f"__r{name}__"] = _binary(function)
        methods[f"__i{name}__"] = _augmented(name, ufunc)
    for name in ("lshift", "rshift"):
        methods[f"__{name}__"], methods[f"__r{name}__"] = _binary(getattr(operator, name))
    methods["__divmod__"], methods["__rdivmod__"] = _binary(divmod)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        methods[f"__{name}__"] = _binary(getattr(operator, name))[0]
    for name in ("neg", "pos", "abs", "invert"):
        methods[f"__{name}__"] = _unary(getattr(operator, name))
    methods |= {
        "__getitem__": lambda x, index: apply(operator.getitem, (x, index), {}),
        "__setitem__": assign,
        "__array_ufunc__": _ufunc,
        "__array_function__": _function,
        "__record__": staticmethod(apply),
        "__float__": _float,
        "__array__": _as_array,
        "__copy__": _unary(operator.pos),
        "__deepcopy__": lambda v, _: v._copied(),
        "__hash__": None,
        "T": property(_unary(np.transpose)),
        "copy": lambda v, order="C": apply(operator.methodcaller("copy", order), (v,), {}),
        "sort": lambda v, *args, **kwargs: write(v, operator.methodcaller("sort", *args, **kwargs), (), {}),
        "fill": lambda v, value: write(v, operator.setitem, (..., value), {}),
    }
    for name, method in methods.items():
        setattr(Variable, name, method)


_install()
face.install()
record.apart = apply
