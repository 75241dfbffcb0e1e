"""The tape as a picture."""

import re
import sys
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from ops.catalog import OPS
from tape import grad, stop_gradient
from tape.draw import Drawing, draw
from tape.errors import InputError, MissingPackageError, StaleTensorError, UnsupportedError

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|->|[{}\[\];,=]|[A-Za-z0-9_.]+|\s+')


class Graph(NamedTuple):
    """What a DOT text says: attributes of each node, and (from, to, attributes) of each edge."""

    nodes: dict
    edges: list


def parse(drawing):
    """Read DOT, as far as drawings use it; raise if it is not valid."""
    source = drawing.source
    tokens, at = [], 0
    while at < len(source):
        found = TOKEN.match(source, at)
        assert found, f"no token of DOT: {source[at : at + 20]!r}"
        tokens.append(found.group())
        at = found.end()
    tokens = [t for t in tokens if not t.isspace()]
    assert tokens[:3] == ["digraph", "tape", "{"] and tokens[-1] == "}"
    tokens = tokens[3:-1]
    graph = Graph({}, [])
    while tokens:
        end = tokens.index(";")
        statement, tokens = tokens[:end], tokens[end + 1 :]
        attributes = {}
        if statement[-1] == "]":
            start = statement.index("[")
            inside, statement = statement[start + 1 : -1], statement[:start]
            inside.append(",")
            while inside:
                key, equals, value, comma, *inside = inside
                assert (equals, comma) == ("=", ",")
                attributes[key] = text(value) if value[0] == '"' else value
        assert not {"[", "]", "{", "}", ";", "=", ","} & set(statement)
        if len(statement) == 3:
            assert statement[1] == "->"
            assert statement[0] in graph.nodes and statement[2] in graph.nodes
            graph.edges.append((statement[0], statement[2], attributes))
            continue
        (name,) = statement
        if name not in ("graph", "node"):
            assert name not in graph.nodes
            graph.nodes[name] = attributes
    return graph


def text(quoted):
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], quoted[1:-1])


def labels(graph):
    return [n["label"] for n in graph.nodes.values()]


def into(graph, name):
    """Give the starts of the edges to a node, dashed ones in brackets."""
    return [f"({a})" if "style" in attributes else a for a, b, attributes in graph.edges if b == name]


X = np.arange(1.0, 5.0).reshape(2, 2)


def test_a_node_for_each_entry_and_an_edge_for_each_operand():
    graph = parse(draw(lambda x: x * np.sin(x), 2.0))
    assert labels(graph) == ["input\n()", "sin\n()", "multiply\n()"]
    assert [(a, b) for a, b, _ in graph.edges] == [("s0", "s1"), ("s0", "s2"), ("s1", "s2")]


def test_edges_stand_in_the_order_of_the_operands():
    graph = parse(draw(lambda x: np.exp(x) - x, 2.0))
    assert into(graph, "s2") == ["s1", "s0"]
    assert into(parse(draw(lambda x: x * x, 2.0)), "s1") == ["s0", "s0"]


def test_what_nodes_look_like():
    graph = parse(draw(lambda x: np.sum(x * np.ones((2, 2)), axis=0), X))
    shapes = {n["label"]: n for n in graph.nodes.values()}
    assert shapes["input\n(2, 2)"]["shape"] == "box" and shapes["input\n(2, 2)"]["style"] == "filled"
    assert shapes["constant\n(2, 2)"]["shape"] == "plaintext"
    assert shapes["sum\n(2,)"]["peripheries"] == "2"
    assert sum("peripheries" in n for n in graph.nodes.values()) == 1
    assert "shape" not in shapes["multiply\n(2, 2)"]
    assert "axis=(0,)" in shapes["sum\n(2,)"]["tooltip"] and "float64" in shapes["sum\n(2,)"]["tooltip"]


def test_values_of_numbers():
    graph = parse(draw(lambda x: np.sum(x) * 0.5, X, values=True))
    assert labels(graph) == ["input\n(2, 2)", "sum\n10", "constant\n0.5", "multiply\n5"]


def test_dashed_edges_carry_no_gradient():
    def f(x):
        return np.where(x > 1.0, x, stop_gradient(np.exp(x)))

    graph = parse(draw(f, X))
    names = {n["label"].split("\n")[0]: name for name, n in graph.nodes.items()}
    assert into(graph, names["where"]) == [f"({names['greater']})", names["input"], f"({names['stop_gradient']})"]
    assert into(graph, names["greater"]) == [f"({names['input']})", f"({names['constant']})"]
    taken = parse(draw(lambda x: x[np.array([1, 0])], X))
    assert [e.startswith("(") for e in into(taken, "s2")] == [False, True]


def test_only_what_the_result_depends_on():
    def f(x):
        np.cos(x)
        return np.sin(x)

    assert labels(parse(draw(f, 2.0))) == ["input\n()", "sin\n()"]
    assert labels(parse(draw(lambda x, y: y * 2.0, 1.0, 5.0, argnums=(0, 1)))) == [
        "input\n()",
        "constant\n()",
        "multiply\n()",
    ]


def test_several_results_and_none():
    graph = parse(draw(lambda x: {"a": np.sin(x), "b": (np.cos(x), x, 1.0)}, 2.0))
    assert [n.get("peripheries") for n in graph.nodes.values()] == ["2", "2", "2"]
    assert parse(draw(lambda x: 1.0, 2.0)) == ({}, [])
    assert parse(draw(lambda x: None, 2.0)) == ({}, [])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.linalg.solve(x @ x.T + np.eye(2), x),
        lambda x: np.concatenate([x, x[:1] * 2.0])[1:],
        lambda x: np.einsum("ij,jk->ik", x, x),
        lambda x: x[0] + np.sort(x, axis=None)[:2],
        lambda x: np.linalg.norm(x) / np.max(x) + np.argmax(x),
        lambda x: x > 1.0,
    ],
)
def test_the_text_is_valid(f):
    graph = parse(draw(f, X, values=True))
    assert any("peripheries" in n for n in graph.nodes.values())
    assert all(
        set(n) <= {"label", "tooltip", "shape", "style", "fillcolor", "peripheries"} for n in graph.nodes.values()
    )


def test_item_assignment():
    def f(x):
        filled = np.zeros(3) * x[0]
        for i in range(3):
            filled[i] = x[2 - i]
        return filled

    graph = parse(draw(f, np.arange(3.0)))
    last = next(name for name, n in graph.nodes.items() if "peripheries" in n)
    assert graph.nodes[last]["label"] == "assign\n(3,)"
    assert len(into(graph, last)) == 4


def chain(x):
    for _ in range(1000):
        x = np.sin(x) + 1.0
    return x


def test_a_long_tape_is_cut_before_the_last_entries():
    graph = parse(draw(chain, 1.0, limit=5))
    assert len(graph.nodes) == 6
    assert graph.nodes["more"]["label"] == "... 1997 more"
    assert "s2001" in graph.nodes and "s0" not in graph.nodes
    assert len(parse(draw(chain, 1.0)).nodes) == 201
    assert "more" not in parse(draw(chain, 1.0, limit=2002)).nodes
    assert "more" in parse(draw(chain, 1.0, limit=2001)).nodes
    with pytest.raises(ValueError, match="at least 1"):
        draw(np.sin, 1.0, limit=0)


def test_edges_from_what_is_left_out():
    graph = parse(draw(lambda x: np.sin(x) * np.cos(x) + 1.0, 2.0, limit=1))
    assert into(graph, "s5") == ["more"]
    graph = parse(draw(lambda x: (x > 1.0) & (x < 2.0), X, limit=1))
    assert into(graph, list(graph.nodes)[-1]) == ["(more)"]


def test_a_name_with_quotes_and_backslashes(monkeypatch):
    odd = 'a "b" \\N c\nd\\'
    monkeypatch.setattr(next(op for op in OPS if op.name == "sin"), "name", odd)
    assert labels(parse(draw(np.sin, X))) == ["input\n(2, 2)", f"{odd}\n(2, 2)"]


def test_functions_that_are_derivatives_count_as_the_function():
    graph = parse(draw(grad(lambda x, y: x * y, argnums=1), 2.0, 3.0, values=True))
    assert sorted(labels(graph)) == ["constant\n2", "input\n3", "multiply\n6"]


def test_a_tensor_inside_a_function():
    seen = []

    def f(x):
        y = np.exp(x) * 2.0
        z = np.sin(y)
        seen.append(draw(y))
        return z

    grad(f)(1.0)
    graph = parse(seen[0])
    assert labels(graph) == ["input\n()", "exp\n()", "constant\n()", "multiply\n()"]
    assert into(graph, "s3") == ["s1", "(s2)"]


def test_a_call_drawn_inside_another_ends_at_its_own_inputs():
    seen = []

    def f(x):
        y = np.exp(x)

        def inner(z):
            seen.append(draw(z * 1.0))
            return np.sin(z) * y

        seen.append(draw(inner, x * 2.0))
        return y

    grad(f)(1.0)
    own, whole = parse(seen[1]), parse(seen[0])
    assert sorted(labels(own)) == ["exp\n()", "input\n()", "multiply\n()", "sin\n()"]
    shapes = {n["label"]: n.get("shape") for n in own.nodes.values()}
    assert (shapes["exp\n()"], shapes["input\n()"]) == ("plaintext", "box")
    assert [e[0] for e in into(own, list(own.nodes)[-1])] == ["s", "("]
    assert labels(whole)[0] == "input\n()" and "positive\n()" in labels(whole)


def test_errors_leave_everything_usable():
    with pytest.raises(ZeroDivisionError):
        draw(lambda x: 1 // 0, 1.0)
    with pytest.raises(InputError, match="argument 0"):
        draw(lambda x: x, np.array([1, 2]))
    kept = []
    grad(lambda x: (kept.append(x), x)[1])(1.0)
    with pytest.raises(StaleTensorError):
        draw(kept[0])
    with pytest.raises((StaleTensorError, UnsupportedError)):
        draw(lambda x: kept[0], 1.0)
    assert grad(np.sin)(0.0) == 1.0


# ---------------------------------------------------------------- files and notebooks
class Missing(Exception):
    """The program `dot` is not there."""


def graphviz_that(pipe):
    return SimpleNamespace(
        Source=lambda source: SimpleNamespace(pipe=lambda format: pipe(source, format)), ExecutableNotFound=Missing
    )


@pytest.fixture
def drawing():
    return Drawing('digraph tape {\n  s0 [label="é"];\n}')


def test_the_text(drawing, tmp_path):
    assert str(drawing) == repr(drawing) == drawing.source
    for ending in (".dot", ".gv", ".DOT"):
        path = tmp_path / f"graph{ending}"
        drawing.save(path)
        assert path.read_text(encoding="utf-8") == drawing.source
    drawing.save(str(tmp_path / "again.dot"))
    for name in ("graph.txt", "graph"):
        with pytest.raises(ValueError, match=r"saved as \.dot, \.gv, \.svg"):
            drawing.save(tmp_path / name)


def test_without_the_package(drawing, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    assert drawing._repr_svg_() is None
    with pytest.raises(MissingPackageError, match=r"wengert\[draw\]"):
        drawing.save(tmp_path / "graph.svg")
    with pytest.raises(ImportError):
        drawing.save(tmp_path / "graph.svg")
    assert not (tmp_path / "graph.svg").exists()


def test_without_the_program(drawing, tmp_path, monkeypatch):
    def pipe(source, format):
        raise Missing

    monkeypatch.setitem(sys.modules, "graphviz", graphviz_that(pipe))
    assert drawing._repr_svg_() is None
    with pytest.raises(MissingPackageError, match="program `dot`"):
        drawing.save(tmp_path / "graph.pdf")


def test_with_graphviz(drawing, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", graphviz_that(lambda source, how: f"<{how}>{source}".encode()))
    assert drawing._repr_svg_() == f"<svg>{drawing.source}"
    drawing.save(tmp_path / "graph.png")
    assert (tmp_path / "graph.png").read_bytes() == f"<png>{drawing.source}".encode()


def test_the_real_package_takes_the_text(tmp_path):
    graphviz = pytest.importorskip("graphviz")
    made = draw(lambda x: np.sum(x * np.sin(x)), X)
    assert graphviz.Source(made.source).source.strip() == made.source
    try:
        graphviz.version()
    except graphviz.ExecutableNotFound:
        assert made._repr_svg_() is None
        with pytest.raises(MissingPackageError, match="program `dot`"):
            made.save(tmp_path / "graph.svg")
    else:
        assert "</svg>" in made._repr_svg_()
