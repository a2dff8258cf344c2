"""Each undocumented name of PyTorch that graph mode uses, alone: after an upgrade, the test that fails names it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.fx.config
from torch import Tensor, fx, nn

import zeropoint
from zeropoint import torch_versions
from zeropoint.graph import torch_internals as internals
from zeropoint.graph.frontends.export import CaptureError, capture


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


@pytest.fixture
def module() -> Any:
    return torch.jit.script(Layer().eval())._c


def kinds(graph: Any) -> list[str]:
    return [node.kind() for node in graph.nodes()]


def test_torchscript_module(module: Any) -> None:
    assert internals.torchscript_module(module)(torch.ones(1, 2)).shape == (1, 2)


def test_reconstruct(module: Any) -> None:
    model = torch.jit.script(nn.ReLU())
    internals.reconstruct(model, module)
    assert model(torch.ones(1, 2)).shape == (1, 2)


def test_submodules(module: Any) -> None:
    ((name, inner),) = internals.submodules(module)
    assert name == "inner"
    assert isinstance(inner, internals.ScriptModule)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (internals.tensor_type(), torch.ones(1)),
        (internals.int_type(), 1),
        (internals.float_type(), 0.5),
        (internals.string_type(), "text"),
        (internals.list_of_ints_type(), [1, 2]),
    ],
    ids=str,
)
def test_add_attribute(module: Any, kind: Any, value: Any) -> None:
    name = f"added_{type(value).__name__}"  # modules of one class share their attributes
    internals.add_attribute(module, name, kind, value)
    assert module.getattr(name) == value


def test_freeze(module: Any) -> None:
    frozen = internals.freeze(module, [], True, False)
    assert "prim::GetAttr" not in kinds(frozen._get_method("forward").graph)


def test_parse_schema() -> None:
    assert [a.name for a in internals.parse_schema("aten::relu(Tensor self) -> Tensor").arguments] == ["self"]


def test_inline(module: Any) -> None:
    graph = module._get_method("forward").graph.copy()
    assert isinstance(graph, internals.ScriptGraph)
    assert "prim::CallMethod" in kinds(graph)
    internals.inline(graph)
    assert "prim::CallMethod" not in kinds(graph)


def test_inline_forks() -> None:
    @torch.jit.script
    def forked(x: torch.Tensor) -> torch.Tensor:
        return torch.jit.wait(torch.jit.fork(torch.relu, x))

    graph = forked.graph.copy()
    internals.inline_forks(graph)
    assert "prim::fork" not in kinds(graph)


def test_propagate_constants_and_remove_dead_code() -> None:
    @torch.jit.script
    def known(x: torch.Tensor) -> torch.Tensor:
        if 1 + 1 == 2:
            x = x.relu()
        return x

    graph = known.graph.copy()
    internals.propagate_constants(graph)
    internals.remove_dead_code(graph)
    internals.lint(graph)
    assert kinds(graph) == ["aten::relu"]


def test_simplify_peepholes() -> None:
    @torch.jit.script
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x.t().t()

    graph = twice.graph.copy()
    internals.simplify_peepholes(graph)
    internals.lint(graph)
    assert kinds(graph) == []


def test_new_graph() -> None:
    assert kinds(internals.new_graph()) == []


def test_is_operator() -> None:
    assert internals.is_operator(torch.ops.aten.relu.default)
    assert not internals.is_operator(torch.relu)


def test_graphs_keep_their_nesting() -> None:
    exported = torch.export.export(Nested(), (torch.ones(2),)).module()
    graph = exported.graph  # type: ignore[union-attr]
    assert internals.output_nesting(graph, 2) == {"a": 0, "b": (1,)}
    other = fx.Graph()
    internals.copy_codegen(graph, other)
    assert type(internals.codegen(other)) is type(internals.codegen(graph))
    assert internals.output_nesting(fx.Graph(), 1) == 0


class Nested(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return {"a": x + 1, "b": (x + 2,)}


def test_leaves() -> None:
    assert internals.leaves(((1, [2]), {"a": (3, None)})) == [1, 2, 3, None]


def test_map_nodes() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    assert internals.map_nodes(((x, 1), {"a": [x]}), lambda n: n.name) == (("x", 1), {"a": ["x"]})


def test_has_effect() -> None:
    def effect() -> None: ...

    internals.has_effect(effect)
    graph = fx.Graph()
    graph.call_function(effect)
    graph.output(())
    graph.eliminate_dead_code()
    assert len(graph.nodes) == 2


class Annotating(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with internals.annotated({"who": "here"}):
            return x.relu()


def test_annotations_reach_the_nodes_of_an_export() -> None:
    with internals.keeping_annotations():
        exported = torch.export.export(Annotating(), (torch.ones(2),))
    (call,) = (node for node in exported.graph.nodes if node.op == "call_function")
    assert internals.annotation(call)["who"] == "here"


def test_tensors_that_wrap_others_are_taken_apart_and_traced() -> None:
    q = zeropoint.quantize_per_tensor(torch.ones(2), 0.5, 3, zeropoint.quint8)
    assert internals.is_wrapper(q)
    (inner,) = internals.inner_tensors(q)
    assert inner.dtype == torch.uint8
    traced = internals.trace(lambda part: internals.wrap(q, [part]).dequantize(), [inner])
    assert torch.equal(traced(inner), torch.ones(2))
    assert all("zeropoint" in str(n.target) for n in traced.graph.nodes if n.op == "call_function")


SEEN: list[Any] = []


class Asking(nn.Module):
    """Asks about a size as if from another file, and keeps what it saw."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        condition = x.size(0) > 3
        SEEN.append((internals.is_free(condition), str(internals.expression(x.size(0)))))
        return x.relu() if internals.truth(condition, "model.py", 7) else x


def test_what_is_asked_about_sizes_is_kept_with_the_line_that_asked() -> None:
    SEEN.clear()
    exported = torch_versions.export(Asking(), (torch.ones(5),), {}, ({0: torch.export.Dim.AUTO},))
    is_free, expression = SEEN[-1]
    assert is_free
    size = next(node for node in exported.graph.nodes if node.op == "placeholder").meta["val"].shape[0]
    guards = [(str(guard), where) for guard, where in internals.shape_guards(size)]
    assert any(where.filename == "model.py" and where.lineno == 7 and expression in guard for guard, where in guards)
    assert not internals.is_free(3)


def test_region_name() -> None:
    class Guarded(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", enabled=False):
                return super().forward(x)

    exported = torch.export.export(Guarded().eval(), (torch.ones(1, 2),), strict=False)
    names = [internals.region_name(node.target) for node in torch_versions.unlifted(exported).graph.nodes]
    assert names.count("wrap_with_autocast") == 1
    assert internals.region_name(torch.ops.aten.relu.default) == ""


def test_code_of_a_graph() -> None:
    module = fx.symbolic_trace(Layer())
    before = internals.forward_of(module)
    assert internals.forward_of(module) is before
    assert torch.equal(internals.graph_code(module.graph)(module, torch.ones(1, 2)), module(torch.ones(1, 2)))
    module.recompile()
    assert internals.forward_of(module) is not before


def test_own_buffers() -> None:
    module = nn.BatchNorm1d(2)
    assert internals.own_buffers(module)["running_mean"] is module.running_mean


def test_plain_arguments() -> None:
    op = torch.ops.aten.leaky_relu.default
    assert internals.plain_arguments(op, ("x",), {}) == (("x", 0.01), {})
    assert internals.plain_arguments(op, ("x",), {"negative_slope": 2}) == (("x", 2), {})
    assert internals.plain_arguments(torch.ops.aten.add.Tensor, ("x", "y"), {}) == (("x", "y"), {"alpha": 1})
    assert internals.plain_arguments(torch.ops.aten.topk.default, ("x", 1), {}) is None  # two results


def test_is_profiled() -> None:
    assert not internals.is_profiled()
    with torch.profiler.profile():
        assert internals.is_profiled()


def test_is_transformed() -> None:
    assert not internals.is_transformed()
    seen = []
    torch.func.vmap(lambda x: (seen.append(internals.is_transformed()), x)[1])(torch.ones(2))
    assert seen == [True]


def test_operators_are_taken_apart_unless_their_parts_depend_on_free_sizes() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.logaddexp(x, x) + x.cumprod(0)

    free = {"x": {0: torch.export.Dim("rows")}}
    graph = torch.export.export(Model(), (torch.randn(5, 3),), dynamic_shapes=free).module()
    value = next(node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder")
    table = internals.decompositions()
    composed, counted = torch.ops.aten.logaddexp.default, torch.ops.aten.cumprod.default
    assert composed in table
    assert internals.is_composed(torch.ops.aten.tensordot.default)
    assert not internals.is_composed(torch.ops.aten.relu.default)
    made = internals.trace_decomposed(lambda x: table[composed](x, x), [value], table)
    assert made is not None
    assert torch.allclose(made(torch.ones(4, 3)), torch.logaddexp(torch.ones(4, 3), torch.ones(4, 3)))
    assert internals.trace_decomposed(lambda x: table[counted](x, 0), [value], table) is None
    assert internals.is_free(value.shape[0])  # nothing was asked about it
    fixed = internals.trace_decomposed(lambda x: table[composed](x, x), [torch.ones(2, 3)], table)
    assert fixed is not None


def test_a_condition_of_free_sizes_is_certain_for_all_of_them_or_not() -> None:
    exported = torch.export.export(nn.Flatten(), (torch.randn(5, 3),), dynamic_shapes=({0: torch.export.Dim("n")},))
    size = next(node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder").shape[0]
    assert internals.is_certain(size + 1 > size)
    assert not internals.is_certain(size > 4)
    assert internals.is_certain(True)
    assert not internals.is_certain(2 > 3)


def test_capture_keeps_no_stacks_and_leaves_the_setting_as_it_was() -> None:
    setting = "do_not_emit_stack_traces"
    before = getattr(torch.fx.config, setting, None)
    if before is None:
        pytest.skip("this release always keeps them")
    graph = capture(nn.Linear(4, 4).eval(), (torch.ones(2, 4),))
    assert not [node for node in graph.graph.nodes if node.stack_trace]
    assert getattr(torch.fx.config, setting) is before
    with pytest.raises(CaptureError):
        capture(_Refuses().eval(), (torch.ones(2, 4),))
    assert getattr(torch.fx.config, setting) is before


class _Refuses(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x
