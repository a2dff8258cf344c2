"""Modules with interfaces. (Their annotations must be the classes themselves, not their names.)"""

import torch
from few_layers import Layers
from torch import Tensor, nn


@torch.jit.interface
class Step(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Layered(Layers):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.fc(x))


class Through(nn.Module):
    step: Step

    def __init__(self) -> None:
        super().__init__()
        self.step = Layered(fc=nn.Linear(4, 4))
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.step.forward(x))
