"""Accuracy on corrupted images: what the network is shown, FGSM on linear networks, batches, and how the model is left."""

import pytest
import torch
from torch import nn

from bort import explain, measure
from bort.data import View
from bort.train import recognised

VIEW = View(8, 3, (0.48, 0.45, 0.4), (0.23, 0.22, 0.25))


class Recorder(nn.Module):
    """Passes its input on and keeps it."""

    def __init__(self):
        super().__init__()
        self.inputs = []

    def forward(self, x):
        self.inputs.append(x.detach().clone())
        return x


def linear(classes=4, dtype=torch.float64):
    return nn.Sequential(Recorder(), nn.Flatten(), nn.Linear(3 * 64, classes)).to(dtype)


@pytest.fixture
def pixels():
    return torch.randint(256, (6, 3, 8, 8), generator=torch.Generator().manual_seed(0)).double() / 255


@pytest.fixture
def labels():
    return torch.tensor([0, 1, 2, 3, 0, 1])


def test_what_the_network_is_shown(pixels, labels):
    """Clean images as they are; all others normalised anew after the corruption, in the order of the kinds."""
    net, x = linear(), VIEW.normalised(pixels)
    kinds = ("noise 0.08", "blur 1.0", "jpeg 25", "noise 0.04")
    result = measure.robustness(net, x, labels, VIEW, kinds, batch=6, seed=3)
    shown = net[0].inputs[-5:]
    assert list(result) == ["clean", *kinds]
    assert torch.equal(shown[0], x)
    for kind, images in zip(kinds, shown[1:], strict=True):
        expected = VIEW.normalised(measure.corrupted(VIEW.pixels(x), kind, seed=3))
        assert torch.equal(images, expected)
        assert result[kind] == (net(expected).argmax(dim=1) == labels).double().mean()


def test_fgsm_of_a_linear_network(pixels, labels):
    """∇ cross-entropy = Wᵀ (p − e_y) / std, in float64."""
    net, x = linear(), VIEW.normalised(pixels)
    result = measure.robustness(net, x, labels, VIEW, ["fgsm 2/255", "fgsm 4/255"], batch=6)
    *_, clean, _, small, large = net[0].inputs  # before the small step the gradient was computed, once for both
    errors = net(x).softmax(dim=1) - torch.eye(4, dtype=torch.float64)[labels]
    slopes = (errors @ net[2].weight).view_as(x) / torch.tensor(VIEW.std).view(-1, 1, 1)
    for epsilon, shown in ((0, clean), (2 / 255, small), (4 / 255, large)):
        torch.testing.assert_close(shown, VIEW.normalised((pixels + epsilon * slopes.sign()).clamp(0, 1)))
    assert result["fgsm 4/255"] == (net(large).argmax(dim=1) == labels).double().mean()


def test_fgsm_of_two_classes_takes_what_the_step_can_take():
    """With two classes the margin w·pixels falls by ε · |w|₁ where no pixel leaves [0, 1]: images with less are lost."""
    weight = torch.randn(3, 8, 8, dtype=torch.float64)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 2)).double()
    view = View(8, 3, (0.0,) * 3, (1.0,) * 3)
    x = 0.5 + 0.8 * (torch.rand(200, 3, 8, 8, dtype=torch.float64) - 0.5)
    with torch.no_grad():
        net[1].weight.copy_(torch.stack([weight.flatten(), -weight.flatten()]) / 2)
        net[1].bias.copy_(torch.tensor([-1.0, 1.0]) * (0.25 * weight.sum()))
    margins = (x * weight).sum(dim=(1, 2, 3)) - 0.5 * weight.sum()
    labels = (margins < 0).long()
    result = measure.robustness(net, x, labels, view, ["fgsm 2/255", "fgsm 4/255"])
    assert result["clean"] == 1
    for epsilon in (2, 4):
        survivors = (margins.abs() > epsilon / 255 * weight.abs().sum()).double().mean().item()
        assert result[f"fgsm {epsilon}/255"] == pytest.approx(survivors)
        assert 0.05 < survivors < 0.95


def test_fgsm_of_a_network_that_is_sure():
    """Logits so far apart that the gradient of the cross-entropy is rounded to 0, while a step still turns the answer."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(3, 2, bias=False))
    with torch.no_grad():
        net[1].weight.copy_(torch.tensor([[1e5, 1e5, 1e5], [-1e5, -1e5, -1e5]]))
    view = View(1, 3, (0.5,) * 3, (1.0,) * 3)
    x = torch.full((2, 3, 1, 1), 0.005)
    probability = net(x).double().log_softmax(dim=1).exp()[:, 1]
    assert probability.max() == 0, "else this test tests nothing"
    result = measure.robustness(net, x, torch.tensor([0, 0]), view, ["fgsm 1/255", "fgsm 2/255"])
    assert result == {"clean": 1.0, "fgsm 1/255": 1.0, "fgsm 2/255": 0.0}


def test_no_strength_changes_nothing(net, x):
    view = View(28, 1, (0.1307,), (0.3081,))
    images, labels = view.normalised(x), net(view.normalised(x)).argmax(dim=1)
    result = measure.robustness(net, images, labels, view, ["noise 0", "blur 0", "fgsm 0"])
    assert result == {"clean": 1.0, "noise 0": 1.0, "blur 0": 1.0, "fgsm 0": 1.0}


def convolutional():
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(216, 4),
    )
    return nn.Sequential(Recorder(), *layers).double()


def test_batches_change_nothing(pixels, labels):
    x = VIEW.normalised(pixels)
    results, calls = [], []
    for batch in (6, 4, 1):
        net = convolutional()
        results.append(measure.robustness(net, x, labels, VIEW, batch=batch, progress=lambda *call: calls.append(call)))
        shown = net[0].inputs[-12 * (-(-6 // batch)) :]
        if batch == 1:
            assert all(len(images) == 1 for images in shown)
    assert results[0] == results[1] == results[2]
    assert list(results[0]) == ["clean", *measure.CORRUPTIONS]
    assert calls == [(6, 6), (4, 6), (6, 6), *((n, 6) for n in range(1, 7))]
    with explain.memory_budget(forward=1, kept=1):
        assert measure.robustness(convolutional(), x, labels, VIEW) == results[0]


def test_the_memory_budget_holds(pixels, labels):
    net, x = convolutional(), VIEW.normalised(pixels)
    with explain.memory_budget(forward=2 * 216):
        measure.robustness(net, x, labels, VIEW, ["blur 1.0"])
    assert max(len(images) for images in net[0].inputs) == 2


def test_the_same_every_time_and_whatever_else_is_measured(pixels, labels):
    net, x = convolutional(), VIEW.normalised(pixels)
    whole = measure.robustness(net, x, labels, VIEW)
    torch.rand(3)
    assert measure.robustness(net, x, labels, VIEW) == whole
    assert measure.robustness(net, x, labels, VIEW, "noise 0.12") == {k: whole[k] for k in ("clean", "noise 0.12")}
    assert measure.robustness(net, x, labels, VIEW, whole) == whole


def test_the_model_is_left_as_it_was(pixels, labels):
    net, x = convolutional(), VIEW.normalised(pixels).requires_grad_()
    net[2].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with torch.no_grad():
        measure.robustness(net, x, labels, VIEW)
    assert [module.training for module in net] == [True, True, False, True, True, True, True]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert x.grad is None
    for module in net.modules():
        assert not module._forward_hooks
        assert not module._backward_hooks
    for parameter in net.parameters():
        assert parameter.grad is None
        assert parameter.requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(pixels, labels, dtype):
    """The corruption is computed in float32 and rounded once, when the network sees it."""
    net = linear(dtype=dtype)
    x = VIEW.normalised(pixels.float()).to(dtype)
    result = measure.robustness(net, x, labels, VIEW, ["noise 0.08", "fgsm 2/255"], batch=6)
    assert set(result) == {"clean", "noise 0.08", "fgsm 2/255"}
    noisy = VIEW.normalised(measure.corrupted(VIEW.pixels(x.float()), "noise 0.08")).to(dtype)
    assert any(torch.equal(images, noisy) for images in net[0].inputs)
    changed = VIEW.pixels(net[0].inputs[-1].float()) - VIEW.pixels(x.float())
    assert changed.abs().median().item() == pytest.approx(2 / 255, abs=2e-3)


def test_autocast(pixels, labels):
    net, x = convolutional().float(), VIEW.normalised(pixels.float())
    with torch.autocast("cpu", torch.bfloat16):
        result = measure.robustness(net, x, labels, VIEW, ["noise 0.08", "fgsm 2/255"])
        noisy = VIEW.normalised(measure.corrupted(VIEW.pixels(x), "noise 0.08"))
        logits = net.eval()(noisy)
    assert logits.dtype == torch.bfloat16
    assert result["noise 0.08"] == recognised(logits, labels).mean()
    assert any(torch.equal(images, noisy) for images in net[0].inputs), "what the network is shown is not rounded"


def test_ties_and_networks_that_have_diverged(pixels, labels):
    class Constant(nn.Module):
        def __init__(self, value):
            super().__init__()
            self.value = value

        def forward(self, x):
            return (0 * x.sum(dim=(1, 2, 3)) + self.value)[:, None].expand(-1, 4)

    x = VIEW.normalised(pixels)
    assert set(measure.robustness(Constant(1.0), x, labels, VIEW).values()) == {0.25}
    assert set(measure.robustness(Constant(torch.nan), x, labels, VIEW).values()) == {0.0}


def test_mistakes(pixels, labels):
    net, x = linear(), VIEW.normalised(pixels)
    with pytest.raises(ValueError, match="'fog 1' is not a corruption"):
        measure.robustness(net, x, labels, VIEW, ["fog 1"])
    with pytest.raises(ValueError, match="leave the range of pixels"):
        measure.robustness(net, 3 * x, labels, VIEW)
    with pytest.raises(ValueError, match="the view is of images with 1 channels, these have 3"):
        measure.robustness(net, x, labels, View(8, 1, (0.5,), (0.5,)))
    with pytest.raises(ValueError, match="label 4: the network has 4 classes"):
        measure.robustness(net, x, labels + 1, VIEW)
    with pytest.raises(ValueError, match=r"labels of shape \(5,\)"):
        measure.robustness(net, x, labels[:5], VIEW)
    with pytest.raises(ValueError, match="batch=0: must be 1 or more"):
        measure.robustness(net, x, labels, VIEW, batch=0)

    class Cut(nn.Module):
        def forward(self, x):
            return x.detach().flatten(1)[:, :4]

    with pytest.raises(ValueError, match="have no gradient, which fgsm needs"):
        measure.robustness(Cut(), x, labels, VIEW)
    assert "blur 1.0" in measure.robustness(Cut(), x, labels, VIEW, ["blur 1.0"])
