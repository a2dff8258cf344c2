"""A cut through a model: its backbone and heads as a program, the rest around it."""

import pytest
import torch
from torch import Tensor, nn

import zeropoint


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1)

    def forward(self, x):
        fine = self.first(x).relu()
        return {"fine": fine, "coarse": self.second(fine).relu()}


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores, self.boxes = nn.Conv2d(8, 2, 1), nn.Conv2d(8, 4, 1)

    def forward(self, features, scale=1.0):
        return [(self.scores(f), self.boxes(f) * scale) for f in features]


class Detector(nn.Module):
    """Takes a list of images, and gives as many boxes as there are: nothing for torch.export."""

    def __init__(self):
        super().__init__()
        self.backbone, self.heads = Backbone(), nn.ModuleDict({"head": Head()})

    def forward(self, images: list[Tensor]):
        features = self.backbone(torch.stack(images))
        found = self.heads["head"](list(features.values()), scale=2.0)
        scores = torch.cat([s.flatten(2).amax(1) for s, _ in found], 1)
        boxes = torch.cat([b.flatten(2) for _, b in found], 2)
        return [b[:, s > s.mean()] for s, b in zip(scores, boxes)]


def _images():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, 16, 16, generator=generator) for _ in range(2)]


def _model():
    torch.manual_seed(0)
    return Detector().eval()


def test_the_rest_goes_on_with_what_a_program_gives():
    model, images = _model(), _images()
    cut = zeropoint.split_at(model, ["backbone", "heads.head"], (images,))
    assert [tuple(x.shape) for x in cut.example_inputs] == [(2, 3, 16, 16)]
    with torch.no_grad():
        for given, expected in zip(cut.joined(cut.part)(images), model(images)):
            assert torch.equal(given, expected)
    quantized = zeropoint.to_int8(cut.part, cut.example_inputs, [cut.example_inputs], progress=False)
    assert quantized.summary().counts() == {"int8": quantized.summary().counts()["int8"]}
    program = zeropoint.compile(quantized, cut.example_inputs)
    by_program, by_graph = cut.joined(program), cut.joined(quantized)
    for given, expected in zip(by_program(images), by_graph(images)):
        assert torch.equal(given, expected)
    assert sum(p.numel() for p in by_program.parameters()) == 0  # the weights are in the program


def test_the_model_is_left_as_it_was():
    model, images = _model().train(), _images()
    before = dict(model.named_modules())
    zeropoint.split_at(model, ["backbone"], (images,)).joined(lambda x: x)
    assert dict(model.named_modules()) == before
    assert model.training
    assert not model.backbone._forward_hooks


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["neck"], "no module 'neck'"),
        ([], "list of names of modules"),
        ("backbone", "list of names of modules"),
        (["heads"], "'heads' was called 0 times"),
        (
            ["backbone.first", "heads.head"],
            "'heads.head' gets a tensor .* that does not come from an earlier path",
        ),
    ],
)
def test_what_cannot_be_cut_is_said(paths, said):
    with pytest.raises(ValueError, match=said):
        zeropoint.split_at(_model(), paths, (_images(),))
