"""Inputs that a model is not made for: one sentence that says what is wrong and what to do, whatever the model raises."""

import pytest
import torch
from torch import nn

from bort import audit, explain, invert
from bort._inspect import outputs_of
from tests.functions import FUNCTIONS


def small():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))


@pytest.mark.parametrize(
    "look",
    [
        lambda model, x: audit(model, x),
        lambda model, x: invert.reconstruct(model, x, "0"),
        lambda model, x: explain.rise(model, x, masks=2),
    ],
    ids=["audit", "reconstruct", "rise"],
)
def test_an_input_of_another_precision(look):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3)).double()
    with pytest.raises(ValueError, match=r"The input is torch.float32, the model's weights are torch.float64: convert"):
        look(model, torch.rand(1, 1, 8, 8))


def test_an_image_instead_of_a_batch():
    with pytest.raises(ValueError, match=r"The input has the shape \(1, 8, 8\): give a batch, x\[None\]"):
        audit(small(), torch.rand(1, 8, 8))


def test_inputs_in_a_dict():
    with pytest.raises(
        TypeError, match=r"not dict\. For a model that takes another kind of input write a module around it"
    ):
        audit(nn.Linear(4, 3), {"pixel_values": torch.rand(1, 4)})


def test_bytes():
    with pytest.raises(TypeError, match=r"not torch.uint8\. Convert images and normalise them"):
        explain.cam(small(), torch.zeros(1, 1, 8, 8, dtype=torch.uint8))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_another_number_of_channels(name):
    with pytest.raises(ValueError, match=r"The input has 3 channels, the model's first convolution takes 1"):
        FUNCTIONS[name].call(small(), torch.rand(2, 3, 8, 8))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_another_size(name):
    """With torch's own words, and its error as the cause."""
    with pytest.raises(ValueError, match=r"RuntimeError: .*\. Check that the model takes .* \(\d, 1, 9, 9\)") as told:
        FUNCTIONS[name].call(small(), torch.rand(2, 1, 9, 9))
    assert isinstance(told.value.__cause__, RuntimeError)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, 3)

    def forward(self, tokens):
        return self.head(self.table(tokens).mean(dim=1))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = small()

    def forward(self, images, boxes, *, scale=1.0):
        return self.net(images) + boxes


@pytest.mark.parametrize("name", FUNCTIONS)
def test_models_of_other_inputs(name):
    x = torch.rand(2, 1, 8, 8)
    with pytest.raises(
        ValueError, match=r"It takes the numbers of tokens, which have no pixels: write a module around it"
    ):
        FUNCTIONS[name].call(Tokens(), x)
    with pytest.raises(ValueError, match=r"its forward needs images, boxes: write a module around it"):
        FUNCTIONS[name].call(Two(), x)


def test_a_text_model_of_hugging_face():
    transformers = pytest.importorskip("transformers")
    options = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 8,
        "vocab_size": 9,
    }
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**options))
    with pytest.raises(ValueError, match="It takes the numbers of tokens"):
        explain.cam(model, torch.rand(1, 3, 8, 8))
    with pytest.raises(TypeError, match="numbers of tokens have no pixels to explain"):
        explain.cam(model, torch.ones(1, 4, dtype=torch.long))


@pytest.mark.filterwarnings("ignore")  # torch's own, of making such models
@pytest.mark.parametrize("make", ["script", "export"])
def test_models_without_layers(make):
    x = torch.rand(2, 1, 8, 8)
    model = torch.jit.script(small()) if make == "script" else torch.export.export(small(), (x,)).module()
    for look in (audit, explain.rise, explain.cam, explain.sat):
        with pytest.raises(
            TypeError, match=rf"torch\.{'jit' if make == 'script' else 'export'}, whose layers cannot be"
        ):
            look(model, x)


@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.complex64])
def test_outputs_that_are_no_logits(dtype):
    class Decides(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :3].to(dtype)

    for look in (explain.integrated_gradients, explain.rise):
        with pytest.raises(
            ValueError, match=r"returns numbers in torch\..*, which are no logits: write a module around it"
        ):
            look(Decides(), torch.rand(2, 1, 8, 8))


def test_errors_that_are_passed_on():
    """Those that say nothing about the input, and what a hook raises to end a pass."""

    class Stop(Exception):
        pass

    for error in (Stop(), torch.OutOfMemoryError("full"), MemoryError()):

        class Raises(nn.Module):
            def forward(self, x, error=error):
                raise error

        with pytest.raises(type(error)):
            outputs_of(Raises(), torch.rand(2, 5))


def test_a_layer_without_a_tensor():
    class Inner(nn.Module):
        def forward(self, x):
            return {"features": x}

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x)["features"].flatten(1)

    with pytest.raises(ValueError, match=r"^the layer 'inner' gives no tensor but dict$"):
        invert.reconstruct(Outer(), torch.rand(1, 1, 4, 4), "inner")


def test_a_layer_that_does_not_depend_on_the_input():
    """A table of position biases, as Swin V2 has one: its first dimension is 1, as that of an image."""

    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bias = nn.Conv2d(1, 2, 3), nn.Sequential(nn.Conv2d(1, 2, 3))

        def forward(self, x):
            return (self.conv(x).relu() + self.bias(torch.ones(1, 1, 6, 6))).flatten(1)

    model, x = Biased(), torch.rand(1, 1, 6, 6)
    for k in (None, 2):
        with pytest.raises(
            ValueError, match="the layer 'bias' does not depend on the input, or is computed from it without"
        ):
            invert.reconstruct(model, x, "bias", k)
    assert list(explain.map_layers(model, x)) == ["conv"]
