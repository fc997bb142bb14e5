"""Real trainings in Lightning, their logs read back from the files."""

import csv

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bort
from bort.monitor import measure
from tests.optim.cases import batch, net

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default", "error:bort.monitor")]  # theirs are theirs

LR, CONSTRAINT = 0.01, 2.0


def data(batches=8):
    x, y = zip(*(batch(step=step) for step in range(batches)), strict=True)
    return DataLoader(TensorDataset(torch.cat(x), torch.cat(y)), batch_size=16)


def module(package="lightning", *, optimizer=None, manual=False):
    lightning = pytest.importorskip("lightning.pytorch" if package == "lightning" else package)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.other = net(), net(seed=1)
            self.automatic_optimization = not manual

        def training_step(self, batch, _):
            x, y = batch
            loss = nn.functional.cross_entropy(self.net(x), y)
            if manual:
                second = nn.functional.cross_entropy(self.other(x), y)
                for each, own in zip(self.optimizers(), (loss, second), strict=True):
                    each.zero_grad()
                    self.manual_backward(own)
                    each.step()
            return loss

        def configure_optimizers(self):
            made = (optimizer or (lambda m: bort.BortA(m.parameters(), lr=LR, constraint=CONSTRAINT)))(self.net)
            return [made, bort.BortA(self.other.parameters(), lr=2 * LR, constraint=CONSTRAINT)] if manual else made

    return lightning, Module()


def fit(lightning, model, callback, tmp_path, *, logger=True, checkpoint=None, batches=8, **options):
    trainer = lightning.Trainer(
        **{"max_epochs": 1, "accelerator": "cpu", "enable_checkpointing": False, **options},
        logger=lightning.loggers.CSVLogger(str(tmp_path), name="", version=0) if logger is True else logger,
        callbacks=[callback],
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(model, data(batches), ckpt_path=checkpoint)
    return trainer


def rows(tmp_path, name="bort/pull"):
    """The rows of the CSV file that have this name, by step."""
    with (tmp_path / "version_0" / "metrics.csv").open() as file:
        return {int(row["step"]): row for row in csv.DictReader(file) if row.get(name)}


@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
def test_the_logger_has_the_numbers(package, tmp_path):
    lightning, model = module(package)
    monitors = __import__(f"bort.monitor.{package}", fromlist=["LightningMonitor"])
    # log_every_n_steps is 50: what the monitor logs does not depend on it.
    trainer = fit(lightning, model, monitors.LightningMonitor(every=3, layers=True), tmp_path)
    logged = rows(tmp_path)
    assert list(logged) == [0, 3, 6, 8]
    assert [float(row["bort/pull"]) for row in logged.values()] == pytest.approx(
        [steps * LR * CONSTRAINT for steps in logged]
    )
    start, end = measure(bort.BortA(net().parameters(), lr=LR)), measure(trainer.optimizers[0])
    for name in end.keys() - {"bort/milliseconds"}:
        assert float(logged[0][name]) == pytest.approx(start[name], rel=1e-6)
        assert float(logged[8][name]) == pytest.approx(end[name], rel=1e-6)
        assert trainer.callback_metrics[name].item() == pytest.approx(end[name], rel=1e-6)
    assert float(logged[8]["bort/net.0.weight/residual"]) < float(logged[0]["bort/net.0.weight/residual"])
    assert not trainer.optimizers[0]._optimizer_step_post_hooks


def test_tensorboard_under_accumulated_gradients(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from bort.monitor.lightning import LightningMonitor

    lightning, model = module()
    logger = lightning.loggers.TensorBoardLogger(str(tmp_path), name="", version="run")
    fit(lightning, model, LightningMonitor(every=2), tmp_path, logger=logger, accumulate_grad_batches=4, max_epochs=3)
    events = EventAccumulator(str(tmp_path / "run"))
    events.Reload()
    pulls = {event.step: event.value for event in events.Scalars("bort/pull")}
    assert pulls == pytest.approx({step: step * LR * CONSTRAINT for step in (0, 2, 4, 6)})  # 24 batches, 6 steps
    residuals = [event.value for event in events.Scalars("bort/residual_largest")]
    assert residuals[-1] == pytest.approx(measure(bort.param_groups(model.net, exclude=()))["bort/residual_largest"])


def test_several_optimizers(tmp_path):
    from bort.monitor.lightning import LightningMonitor

    lightning, model = module(manual=True)
    fit(lightning, model, LightningMonitor(every=4), tmp_path)
    for index, rate in enumerate((LR, 2 * LR)):
        logged = rows(tmp_path, f"bort/{index}/pull")
        assert list(logged) == [0, 4, 8]
        assert float(logged[8][f"bort/{index}/pull"]) == pytest.approx(8 * rate * CONSTRAINT)


def test_a_training_that_goes_on(tmp_path):
    from bort.monitor.lightning import LightningMonitor

    lightning, model = module()
    first = fit(lightning, model, LightningMonitor(every=100), tmp_path, logger=False, max_steps=5)
    first.save_checkpoint(tmp_path / "five.ckpt")
    lightning, model = module()
    fit(
        lightning,
        model,
        LightningMonitor(every=6),
        tmp_path,
        checkpoint=tmp_path / "five.ckpt",
        max_steps=8,
        max_epochs=-1,
    )
    logged = rows(tmp_path)
    assert list(logged) == [6, 8]
    assert float(logged[8]["bort/pull"]) == pytest.approx(8 * LR * CONSTRAINT)


def test_without_bort(tmp_path):
    from bort.monitor.lightning import LightningMonitor

    def plain(m):
        return torch.optim.SGD(m.parameters(), lr=0.1)

    lightning, model = module(optimizer=plain)
    with pytest.warns(UserWarning, match="SGD is not a Bort optimizer") as warned:
        fit(lightning, model, LightningMonitor(every=1), tmp_path, logger=False)
    assert sum("bort.monitor" in str(each.message) for each in warned) == 1
    lightning, model = module(optimizer=plain)
    fit(lightning, model, LightningMonitor(every=4, source=model.net), tmp_path)
    assert list(rows(tmp_path, "bort/residual_largest")) == [0, 4, 8]
