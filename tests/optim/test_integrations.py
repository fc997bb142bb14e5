"""Short real trainings inside the frameworks people use. They are not dependencies of `bort.optim`."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bort

from .cases import assert_same, batch, net, weights

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default", "error:param group")]  # theirs are theirs


def data(size=64):
    x, y = zip(*(batch(step=step) for step in range(size // 16)), strict=True)
    return TensorDataset(torch.cat(x), torch.cat(y))


def plain_training(optimizer_for, epochs=2):
    """The reference: a loop in plain torch over the same batches."""
    model = net()
    optimizer = optimizer_for(model)
    for _ in range(epochs):
        for x, y in DataLoader(data(), batch_size=16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return weights(model)


def test_timm():
    from timm.optim import create_optimizer_v2

    timm_made = plain_training(lambda m: create_optimizer_v2(m, "borts", lr=0.1, momentum=0.9, constraint=0.3))
    ours = plain_training(lambda m: bort.BortS(m.parameters(), lr=0.1, momentum=0.9, constraint=0.3, nesterov=True))
    assert_same(timm_made, ours)


def test_lightning(tmp_path):
    """Lightning calls step with a closure that computes the loss, the gradient and all."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def training_step(self, batch, _):
            x, y = batch
            return nn.functional.cross_entropy(self.net(x), y)

        def configure_optimizers(self):
            return bort.BortA(self.net.parameters(), lr=0.01, constraint=2.0)

    module = Module()
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, DataLoader(data(), batch_size=16))
    assert_same(weights(module.net), plain_training(lambda m: bort.BortA(m.parameters(), lr=0.01, constraint=2.0)))


def test_hugging_face_trainer(tmp_path):
    import transformers

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x, labels):
            logits = self.net(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    model = Classifier()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=2,
        per_device_train_batch_size=16,
        learning_rate=0.01,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        train_sampling_strategy="sequential",
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    rows = [{"x": x, "labels": y} for x, y in data()]
    trainer = transformers.Trainer(
        model,
        arguments,
        train_dataset=rows,
        optimizer_cls_and_kwargs=(bort.BortA, {"lr": 0.01, "constraint": 2.0, "weight_decay": 0.0}),
    )
    trainer.train()
    expected = plain_training(lambda m: bort.BortA(m.parameters(), lr=0.01, constraint=2.0, weight_decay=0.0))
    for a, b in zip(weights(model.net), expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerate(precision):
    import accelerate

    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision=precision)
    raw = net()
    raw_optimizer = bort.BortS(raw.parameters(), lr=0.1, constraint=0.3)
    start = sum(raw_optimizer.residuals().values())
    model, optimizer, loader = accelerator.prepare(raw, raw_optimizer, DataLoader(data(), batch_size=16))
    for _ in range(2):
        for x, y in loader:
            with accelerator.accumulate(model):
                optimizer.zero_grad()
                accelerator.backward(nn.functional.cross_entropy(model(x), y))
                optimizer.step()
    assert sum(raw_optimizer.residuals().values()) < start
    if precision == "no":
        assert_same(weights(raw), plain_training(lambda m: bort.BortS(m.parameters(), lr=0.1, constraint=0.3)))
