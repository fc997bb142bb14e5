"""What models return: logits in tensors, tuples, dicts and objects; and outputs that have none."""

from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bort import explain, measure
from bort._outputs import logits_of, per_image
from tests.functions import FUNCTIONS, QUICK

LOGITS = torch.rand(2, 3)
Auxiliary = namedtuple("Auxiliary", ["logits", "aux_logits"])
Scored = namedtuple("Scored", ["class_logits", "features"])


@pytest.mark.parametrize(
    "output",
    [
        LOGITS,
        {"logits": LOGITS},
        {"loss": torch.tensor(0.5), "class_logits": LOGITS, "features": torch.rand(2, 8)},
        SimpleNamespace(logits=LOGITS),
        Auxiliary(LOGITS, torch.rand(2, 3)),
        Scored(LOGITS, torch.rand(2, 8)),
        (LOGITS, None),
        [LOGITS],
        (LOGITS, torch.rand(2, 3)),  # a main head and an auxiliary one
        (torch.tensor(0.5), LOGITS, (torch.rand(2, 4, 8),)),  # loss, logits, hidden states
        (torch.rand(2, 4, 8), LOGITS),
    ],
)
def test_logits(output):
    assert logits_of(output) is LOGITS


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (None, "NoneType: there are no logits in it"),
        ((), "tuple: there are no logits in it"),
        ({"scores": LOGITS}, r"dict of scores \(2, 3\): there are no logits in it"),
        ({"start_logits": LOGITS, "end_logits": LOGITS}, "there are no logits in it"),
        ((LOGITS, torch.rand(2, 8)), r"tuple of \(2, 3\), \(2, 8\): any of them may be the logits"),
        ({"logits": None, "last_hidden_state": torch.rand(2, 4, 8)}, "features, no logits"),
        (OrderedDict(out=torch.rand(2, 3, 8, 8)), "one score for each class and pixel. It segments images"),
        ([{"boxes": torch.rand(1, 4), "labels": torch.ones(1)}], "boxes. It detects objects"),
    ],
)
def test_no_logits(output, reason):
    with pytest.raises(ValueError, match=reason) as told:
        logits_of(output)
    assert "rite a module around it" in str(told.value)


def test_one_row_for_each_image():
    assert per_image(torch.rand(3), 3).shape == (3, 1)
    assert per_image(torch.rand(10), 1).shape == (1, 10)
    assert per_image(torch.rand(()), 1).shape == (1, 1)
    assert per_image(torch.rand(2, 5, 1, 1), 2).shape == (2, 5)
    for other in (torch.rand(2, 5), torch.rand(2, 5, 3), torch.rand(2, 1, 4, 4), torch.rand(6)):
        assert per_image(other, 2) is other


class Returns(nn.Module):
    """A network with its logits in something else."""

    def __init__(self, net, change):
        super().__init__()
        self.net, self.change = net, change

    def forward(self, x):
        return self.change(self.net(x))


def model_output(logits):
    from transformers.modeling_outputs import ImageClassifierOutput

    return ImageClassifierOutput(logits=logits, hidden_states=(logits[:, None, None],))


CHANGES = {
    "ModelOutput": model_output,
    "named tuple": lambda logits: Auxiliary(logits, logits.flip(1)),
    "main and auxiliary": lambda logits: (logits, logits.flip(1)),
    "loss first": lambda logits: (logits.sum(), logits),
    "(N, classes, 1, 1)": lambda logits: logits[:, :, None, None],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function(net, x, name):
    pytest.importorskip("transformers")
    expected = FUNCTIONS[name].call(net, x[:2])
    torch.testing.assert_close(FUNCTIONS[name].call(Returns(net, model_output), x[:2]), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("change", list(CHANGES)[1:])
@pytest.mark.parametrize("name", QUICK)
def test_every_kind_of_output(net, x, name, change):
    expected = FUNCTIONS[name].call(net, x[:2])
    result = FUNCTIONS[name].call(Returns(net, CHANGES[change]), x[:2])
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in QUICK if name not in ("audit", "robustness")])
def test_a_squeezed_logit(x, name):
    """(N,) of a head with one logit is (N, 1)."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)
    ).double()
    expected = FUNCTIONS[name].call(net, x[:2])
    result = FUNCTIONS[name].call(Returns(net, lambda logits: logits.squeeze()), x[:2])
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("audit", "reconstruct_layer")])
def test_segmentation_is_refused(net, x, name):
    """The first class and place would be explained as if they were everything."""
    segments = Returns(net, lambda logits: OrderedDict(out=logits[:, :, None, None].expand(-1, -1, 4, 4)))
    with pytest.raises(ValueError, match="It segments images and does not classify them"):
        FUNCTIONS[name].call(segments, x[:2])


def test_outputs_for_each_place(net, x):
    places = Returns(net, lambda logits: logits[:, :, None, None].expand(-1, -1, 4, 4))
    for name in ("cam", "ig", "rise", "deletion and insertion", "evaluate"):
        with pytest.raises(ValueError, match=r"\(\d, 10, 4, 4\), not \(N, classes\): write a module around it"):
            FUNCTIONS[name].call(places, x[:2])
    with pytest.raises(ValueError, match=r"not \(N, classes\)"):
        explain.sat(places, x, 3)


def test_another_number_of_outputs(net, x):
    with pytest.raises(ValueError, match=r"outputs of shape \(1, 10\) for 3 images"):
        explain.integrated_gradients(Returns(net, lambda logits: logits.mean(dim=0, keepdim=True)), x, steps=2)


@pytest.mark.parametrize("name", ["cam", "ig", "guided-ig", "rise", "xrai", "deletion and insertion", "evaluate"])
def test_outputs_that_are_not_finite(net, x, name):
    with pytest.raises(ValueError, match="the model's outputs have NaN or Inf for 2 of 2 images"):
        FUNCTIONS[name].call(Returns(net, lambda logits: logits / 0), x[:2])


def test_not_finite_without_pixels(x):
    """The clean image is fine."""

    class Divides(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :3] / x.sum(dim=(1, 2, 3)).abs()[:, None]

    with pytest.raises(ValueError, match="outputs without some pixels have NaN or Inf for 3 of 3 images"):
        measure.deletion_insertion(Divides(), x, x[:, 0], steps=4, score="logit")


@pytest.mark.parametrize("name", ["ig", "guided-ig", "xrai"])
def test_logits_without_a_gradient(net, x, name):
    class Frozen(nn.Module):
        def forward(self, x):
            with torch.no_grad():
                return net(x)

    with pytest.raises(ValueError, match=r"the model's logits have no gradient.* RISE needs no gradient"):
        FUNCTIONS[name].call(Frozen(), x[:2])
    assert explain.rise(Frozen(), x[:2], masks=4).shape == (2, 28, 28)


@pytest.mark.parametrize("name", ["ig", "guided-ig"])
def test_a_logit_that_does_not_depend_on_the_image(x, name):
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.logits = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))

        def forward(self, x):
            return self.logits.expand(len(x), 2)

    maps = FUNCTIONS[name].call(Constant(), x[:2])
    assert explain.constant(maps).all()


def test_scores_of_the_wrong_shape(net, x):
    with pytest.raises(
        ValueError, match=r"the score function returns \(4, 1\) for 4 images: it must return one number"
    ):
        explain.rise(net, x[:1], masks=4, score=lambda logits, classes: logits[:, :1])
    with pytest.raises(ValueError, match="the score function returns float"):
        measure.deletion_insertion(net, x[:1], x[:1, 0], steps=3, score=lambda logits, classes: 1.0)
