"""Real trainings with Hugging Face's Trainer; its log history is what is reported."""

import pytest
import torch
from torch import nn

import bort
from bort.monitor import measure
from tests.optim.cases import batch, net

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default", "error:bort.monitor")]  # theirs are theirs

LR, CONSTRAINT = 0.01, 2.0
BORT = (bort.BortA, {"lr": LR, "constraint": CONSTRAINT, "weight_decay": 0.0})


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def trainer_of(folder, *, optimizer=BORT, **options):
    import transformers

    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        **{
            "per_device_train_batch_size": 16,
            "num_train_epochs": 1,
            "learning_rate": LR,
            "lr_scheduler_type": "constant",
            "save_strategy": "no",
            "report_to": [],
            **options,
        },
        use_cpu=True,
        disable_tqdm=True,
    )
    rows = [{"x": x, "labels": y} for step in range(8) for x, y in zip(*batch(step=step), strict=True)]
    return transformers.Trainer(Classifier(), arguments, train_dataset=rows, optimizer_cls_and_kwargs=optimizer)


def logged(trainer, name="bort/pull"):
    return {logs["step"]: logs for logs in trainer.state.log_history if name in logs}


def test_the_log_history_has_the_numbers(tmp_path):
    from bort.monitor.huggingface import TrainerMonitor

    trainer = trainer_of(tmp_path)
    trainer.add_callback(TrainerMonitor(trainer, every=3, layers=True))
    trainer.train()
    logs = logged(trainer)
    assert list(logs) == [0, 3, 6, 8]
    assert [entry["bort/pull"] for entry in logs.values()] == pytest.approx([step * LR * CONSTRAINT for step in logs])
    start, end = measure(bort.BortA(net().parameters(), lr=LR)), measure(trainer.optimizer)
    for name in end.keys() - {"bort/milliseconds"}:
        assert logs[0][name] == pytest.approx(start[name])
        assert logs[8][name] == pytest.approx(end[name])
    assert logs[8]["bort/net.0.weight/residual"] < logs[0]["bort/net.0.weight/residual"]
    assert "train_loss" in trainer.state.log_history[-1]  # the Trainer's own logs go on


def test_accumulated_gradients_and_tensorboard(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from bort.monitor.huggingface import TrainerMonitor

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    trainer = trainer_of(tmp_path, gradient_accumulation_steps=4, num_train_epochs=2, report_to=["tensorboard"])
    trainer.add_callback(TrainerMonitor(trainer, every=2))
    trainer.train()
    expected = {step: step * LR * CONSTRAINT for step in (0, 2, 4)}  # 16 batches, 4 steps
    assert {step: logs["bort/pull"] for step, logs in logged(trainer).items()} == pytest.approx(expected)
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert {event.step: event.value for event in events.Scalars("train/bort/pull")} == pytest.approx(expected)


def test_a_training_that_goes_on(tmp_path):
    from bort.monitor.huggingface import TrainerMonitor

    options = {"save_strategy": "steps", "save_steps": 5, "num_train_epochs": 2}
    trainer = trainer_of(tmp_path, **options, max_steps=5)
    trainer.add_callback(TrainerMonitor(trainer, every=100))
    trainer.train()
    assert list(logged(trainer)) == [0, 5]
    trainer = trainer_of(tmp_path, **options)
    trainer.add_callback(TrainerMonitor(trainer, every=8))
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    logs = logged(trainer)
    assert list(logs) == [0, 5, 8, 10, 15, 16]
    assert [entry["bort/pull"] for entry in logs.values()] == pytest.approx([step * LR * CONSTRAINT for step in logs])


def test_without_bort(tmp_path):
    from bort.monitor.huggingface import TrainerMonitor

    trainer = trainer_of(tmp_path, optimizer=(torch.optim.SGD, {"lr": 0.1}))
    trainer.add_callback(TrainerMonitor(trainer, every=1))
    with pytest.warns(UserWarning, match="not a Bort optimizer") as warned:
        trainer.train()
    assert sum("bort.monitor" in str(each.message) for each in warned) == 1
    trainer = trainer_of(tmp_path, optimizer=(torch.optim.SGD, {"lr": 0.1}))
    trainer.add_callback(TrainerMonitor(trainer, every=4, source=trainer.model))
    trainer.train()
    assert list(logged(trainer, "bort/residual_largest")) == [0, 4, 8]


def test_the_trainer_has_to_be_given():
    from bort.monitor.huggingface import TrainerMonitor

    with pytest.raises(TypeError, match=r"trainer\.add_callback"):
        TrainerMonitor(100)
