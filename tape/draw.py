"""A tape as a picture: the graph of what a result depends on, in the language of Graphviz."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tape import containers
from tape.adjoint import Marks
from tape.arguments import Argnums, is_leaf
from tape.errors import MissingPackageError
from tape.imperative.graph import links, marks_of
from tape.reading import operands
from tape.show import read_entry
from tape.tensor import Tensor
from tape.trace import Trace
from tape.transforms import Transform
from tape.wengert import Tape

_TEXT = (".dot", ".gv")
_PICTURES = (".svg", ".png", ".pdf")


class Drawing:
    """A graph in the language of Graphviz (DOT).

    In a notebook it shows as a picture, if the package ``graphviz`` and the program ``dot`` are installed, else as
    text.

    Attributes
    ----------
    source : str
        The text.
    """

    def __init__(self, source: str) -> None:
        self.source = source

    def __str__(self) -> str:
        return self.source

    __repr__ = __str__

    def _repr_svg_(self) -> str | None:
        try:
            return _rendered(self.source, "svg").decode()
        except MissingPackageError:
            return None

    def save(self, path: str | Path) -> None:
        """Write the graph to a file; its ending says how.

        Parameters
        ----------
        path : str or Path
            ".dot" or ".gv": the text. ".svg", ".png" or ".pdf": a picture.

        Raises
        ------
        MissingPackageError
            If a picture is asked for and Graphviz is not installed.
        ValueError
            If the ending is another one.
        """
        path = Path(path)
        ending = path.suffix.lower()
        if ending in _TEXT:
            path.write_text(self.source, encoding="utf-8")
        elif ending in _PICTURES:
            path.write_bytes(_rendered(self.source, ending[1:]))
        else:
            raise ValueError(f"a drawing is saved as {', '.join(_TEXT + _PICTURES)}, not as {ending or path.name!r}")


def _rendered(source: str, how: str) -> bytes:
    """Have Graphviz make a picture."""
    try:
        graphviz = importlib.import_module("graphviz")
    except ImportError:
        raise MissingPackageError(
            "pictures need the package graphviz: install it (`pip install wengert[draw]`), or save the drawing as .dot"
        ) from None
    try:
        found: bytes = graphviz.Source(source).pipe(format=how)
    except graphviz.ExecutableNotFound:
        raise MissingPackageError(
            "pictures need the program `dot`, which the package graphviz calls: install Graphviz with your system's "
            "package manager, or save the drawing as .dot"
        ) from None
    return found


def draw(
    function: Callable[..., Any] | Tensor,
    *args: Any,
    argnums: Argnums = 0,
    limit: int = 200,
    values: bool = False,
    **kwargs: Any,
) -> Drawing:
    r"""Record a call as `grad` would and draw what its result depends on.

    Parameters
    ----------
    function : callable or Tensor
        What to record; ``grad(f)`` and its kin count as `f`. Inside a function that is being differentiated, any
        Tensor: then the drawing shows what it depends on.
    *args, **kwargs
        What to call it with.
    argnums : int, str, or tuple of them
        Which arguments are inputs, as in `grad`.
    limit : int
        How many entries to draw at most: the last ones.
    values : bool
        Write the values of numbers instead of their shape.

    Returns
    -------
    Drawing
        It prints as DOT text and shows as a picture in a notebook; `Drawing.save` writes it to a file. Inputs are
        filled boxes, constants have no border, the result has a double one. Along dashed edges goes no gradient.

    See Also
    --------
    show : The same as a table, for all that was recorded.

    Examples
    --------
    >>> import numpy as np
    >>> from tape.draw import draw
    >>> draw(lambda x: x * np.sin(x), 2.0)
    digraph tape {
      graph [ordering=in];
      node [shape=ellipse, fontname="Helvetica", fontsize=11];
      s0 [label="input\n()", tooltip="slot 0, float64", shape=box, style=filled, fillcolor="#cfe2f3"];
      s1 [label="sin\n()", tooltip="slot 1, float64"];
      s2 [label="multiply\n()", tooltip="slot 2, float64", peripheries=2];
      s0 -> s1;
      s0 -> s2;
      s1 -> s2;
    }
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    if isinstance(function, Tensor):
        seen = function._inspected()
        tape, slot = seen._tape, seen._slot
        inputs = {s for s in tape.inputs | tape.cleared if not operands(tape, s)}
        return Drawing(_Picture(tape, {slot}, inputs, marks_of(tape, slot), 0, limit).source(values))
    made: Any = function
    if isinstance(made, Transform):
        made, argnums = made.function, made.argnums
    with Trace(made, argnums, args, kwargs) as trace:
        leaves = [trace.result] if is_leaf(trace.result) else containers.flatten(trace.result)[0]
        results = {trace.own(y)._slot for y in leaves if isinstance(y, Tensor)}
        marks = Marks(trace.tape, trace.inputs, max(results, default=0))
        inputs = {t._slot for t in trace.inputs}
        return Drawing(_Picture(trace.tape, results, inputs, marks, trace.first, limit).source(values))


class _Picture:
    """What results depend on, back to the inputs and to what stands before slot `first`.

    Attributes
    ----------
    edges : dict
        For each entry that is drawn, the last one first, its operands and whether a gradient goes to them.
    hidden : int
        The number of entries that are left out.
    """

    def __init__(
        self, tape: Tape, results: Collection[int], inputs: Collection[int], marks: Marks, first: int, limit: int
    ) -> None:
        self.tape, self.results, self.inputs, self.first = tape, results, inputs, first
        self.edges: dict[int, list[tuple[int, bool]]] = {}
        self.hidden = 0
        slot = max(results, default=-1)
        reached = bytearray(slot + 1)
        for s in results:
            reached[s] = 1
        while slot >= 0:
            found = [] if slot in inputs or slot < first else links(tape, slot, marks)
            for s, _ in found:
                reached[s] = 1
            if len(self.edges) < limit:
                self.edges[slot] = found
            else:
                self.hidden += 1
            slot = reached.rfind(1, 0, slot)

    def source(self, values: bool) -> str:
        """Write it in DOT."""
        # Edges are drawn in the order in which they are written: so operands stand from left to right.
        lines = ["graph [ordering=in];", 'node [shape=ellipse, fontname="Helvetica", fontsize=11];']
        if self.hidden:
            lines.append(f"more [label={_quoted(f'... {self.hidden} more')}, shape=plaintext];")
        slots = sorted(self.edges)
        lines += [self._node(slot, values) for slot in slots]
        for slot in slots:
            lines += self._arrows(slot)
        return "\n".join(["digraph tape {", *(f"  {line}" for line in lines), "}"])

    def _node(self, slot: int, values: bool) -> str:
        e = read_entry(self.tape, slot, self.inputs)
        below = f"{e.value:.6g}" if values and e.value is not None else str(e.shape)
        label = f"{'input' if slot in self.inputs else e.op}\n{below}"
        about = f"slot {slot}, {e.dtype}" + (f", {e.note}" if e.note else "")
        attributes = [f"label={_quoted(label)}", f"tooltip={_quoted(about)}"]
        if slot in self.inputs:
            attributes += ["shape=box", "style=filled", 'fillcolor="#cfe2f3"']
        elif not e.operands or slot < self.first:
            attributes.append("shape=plaintext")
        if slot in self.results:
            attributes.append("peripheries=2")
        return f"s{slot} [{', '.join(attributes)}];"

    def _arrows(self, slot: int) -> list[str]:
        """Write the edges to an entry: one for all operands that are left out, then the others in their order."""
        found = self.edges[slot]
        arrows = [(f"s{s}", carries) for s, carries in found if s in self.edges]
        hidden = [carries for s, carries in found if s not in self.edges]
        if hidden:
            arrows.insert(0, ("more", any(hidden)))
        return [f"{start} -> s{slot}{'' if carries else ' [style=dashed]'};" for start, carries in arrows]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
