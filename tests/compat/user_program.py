"""A program as people wrote it for torch.ao.quantization: static, in training, dynamic, TorchScript, files.

It knows nothing of zeropoint. `test_user_program.py` runs it on PyTorch's own stack and under `zeropoint.compat`, and
compares what it prints.
"""

import copy
import io
import sys

import torch
import torch.ao.nn.quantized as nnq
import torch.ao.quantization as tq
import torch.nn as nn
from torch.ao.quantization import DeQuantStub, QuantStub

CLASSES = 4


def samples(count, seed):
    """Pictures with a bright corner, which is the class, on noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    images = 0.4 * torch.randn(count, 1, 8, 8, generator=generator)
    for image, label in zip(images, labels.tolist()):
        row, column = divmod(label, 2)
        image[0, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 2.0
    return images, labels


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.conv1, self.bn1, self.relu1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
        self.conv2, self.bn2, self.relu2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
        self.skip = nnq.FloatFunctional()
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Linear(32, CLASSES)

    def forward(self, x):
        x = self.quant(x)
        x = self.relu1(self.bn1(self.conv1(x)))
        x = self.skip.add(x, self.relu2(self.bn2(self.conv2(x))))
        x = torch.flatten(self.pool(x), 1)
        return self.dequant(self.fc(x))


FUSED = [["conv1", "bn1", "relu1"], ["conv2", "bn2", "relu2"]]


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(8, 16), nn.Linear(16, CLASSES)

    def forward(self, x):
        out, _ = self.lstm(x.squeeze(1).permute(1, 0, 2))
        return self.fc(out[-1])


class Scripted(nn.Module):
    """What graph mode quantizes: no stubs."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(16, CLASSES)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv(x)), 3)
        return self.fc(torch.flatten(x, 1))


def train(model, images, labels, steps, rate=0.05):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for step in range(steps):
        chosen = slice(16 * step % 128, 16 * step % 128 + 16)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
        optimizer.step()
    return model


def show(name, logits, labels):
    predicted = logits.argmax(1)
    print("logits", name, logits.flatten().tolist())
    print(name, predicted.tolist(), int((predicted == labels).sum()))


def through_a_file(scripted):
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def main():
    torch.manual_seed(0)
    torch.backends.quantized.engine = "x86"
    images, labels = samples(128, 1)
    test_images, test_labels = samples(24, 2)

    net = train(Net().train(), images, labels, 24).eval()
    show("float  ", net(test_images), test_labels)

    static = tq.fuse_modules(copy.deepcopy(net), FUSED)
    static.qconfig = tq.get_default_qconfig("x86")
    tq.prepare(static, inplace=True)
    static(images)
    tq.convert(static, inplace=True)
    show("static ", static(test_images), test_labels)
    print(type(static.conv1).__name__, type(static.fc).__name__, sorted(static.state_dict())[:6])
    print(static.conv1.weight().dtype, static.conv1.weight().qscheme(), static.quant.zero_point.tolist())
    print(f"{static.fc.scale:.4f} {static.fc.zero_point}")

    buffer = io.BytesIO()
    torch.save(static.state_dict(), buffer)
    buffer.seek(0)
    again = tq.fuse_modules(Net().eval(), FUSED)
    again.qconfig = tq.get_default_qconfig("x86")
    tq.prepare(again, inplace=True)
    again(images)
    tq.convert(again, inplace=True)
    again.load_state_dict(torch.load(buffer, weights_only=True))
    print("loaded ", torch.equal(again(test_images), static(test_images)))

    trained = tq.fuse_modules_qat(copy.deepcopy(net).train(), FUSED)
    trained.qconfig = tq.get_default_qat_qconfig("x86")
    tq.prepare_qat(trained, inplace=True)
    train(trained, images, labels, 12, rate=0.01)
    trained.apply(tq.disable_observer)
    show("trained", tq.convert(trained.eval())(test_images), test_labels)

    torch.manual_seed(1)  # what came before may have taken other random numbers
    reader = train(Reader(), images, labels, 60, rate=0.1).eval()
    dynamic = tq.quantize_dynamic(reader, {nn.LSTM, nn.Linear}, dtype=torch.qint8)
    show("dynamic", dynamic(test_images), test_labels)

    show("script ", through_a_file(torch.jit.script(static))(test_images), test_labels)

    torch.manual_seed(2)
    plain = train(Scripted(), images, labels, 60).eval()
    graph = tq.quantize_jit(
        torch.jit.script(plain), {"": tq.get_default_qconfig("x86")}, lambda model, data: model(data), [images]
    )
    show("graph  ", graph(test_images), test_labels)

    q = torch.quantize_per_tensor(test_images[0, 0, :2, :3], 0.1, 10, torch.quint8)
    print(q)
    print(torch.ops.quantized.add(q, q, 0.2, 5).int_repr().tolist(), q.dtype is torch.quint8)
    return 0


if __name__ == "__main__":
    sys.exit(main())
