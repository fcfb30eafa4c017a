"""Callbacks for trainers that own the loop: with fakes, and with the libraries where installed."""

import pickle
import sys
import types

import pytest
import torch
from recording import forked, read_dump

from msprobe import UsageError
from msprobe.pytorch import MsprobeCallback, PrecisionDebugger

MODEL = torch.nn.Sequential(torch.nn.Linear(2, 1))
X = torch.ones(4, 2)


def fake(monkeypatch, name, **attributes):
    module = types.ModuleType(name)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)
    return module


class Base:
    """In place of the base class of the library."""


def steps(folder):
    return sorted(int(path.name[4:]) for path in folder.iterdir())


def fake_trainer_train(callback, optimizer_steps, micro_batches, begin=0):
    """The calls that transformers.Trainer makes, in its order."""
    state = types.SimpleNamespace(global_step=begin)
    told = {"args": None, "state": state, "control": None}
    callback.on_train_begin(**told, model=MODEL)
    for _ in range(optimizer_steps):
        callback.on_step_begin(**told, model=MODEL, optimizer=None)
        for _ in range(micro_batches):
            MODEL(X).sum().backward()
        state.global_step += 1
        callback.on_step_end(**told, model=MODEL)
        torch.tanh(X)  # evaluation
    callback.on_train_end(**told, model=MODEL)


@forked
def test_a_step_of_transformers_is_one_of_the_optimizer(tmp_path, monkeypatch):
    fake(monkeypatch, "transformers", TrainerCallback=Base)
    PrecisionDebugger(dump_path=str(tmp_path), level="mix")
    fake_trainer_train(MsprobeCallback(), optimizer_steps=2, micro_batches=3)
    assert steps(tmp_path) == [0, 1]
    names = read_dump(tmp_path, step=1).names
    assert "Module.0.Linear.forward.2" in names and "Module.0.Linear.forward.3" not in names
    assert not any("tanh" in name for name in names)


@forked
def test_a_resumed_training_goes_on_counting(tmp_path, monkeypatch):
    fake(monkeypatch, "transformers", TrainerCallback=Base)
    PrecisionDebugger(dump_path=str(tmp_path), level="L1")
    fake_trainer_train(MsprobeCallback(), optimizer_steps=2, micro_batches=1, begin=7)
    assert steps(tmp_path) == [7, 8]


def fake_lightning_fit(callback, batches, accumulate):
    """The calls that lightning.Trainer makes, in its order."""
    trainer = types.SimpleNamespace(global_step=0)
    callback.on_train_start(trainer, MODEL)
    for index in range(batches):
        callback.on_train_batch_start(trainer, MODEL, X, index)
        MODEL(X).sum().backward()
        trainer.global_step += (index + 1) % accumulate == 0
        callback.on_train_batch_end(trainer, MODEL, None, X, index)
        torch.tanh(X)  # validation
    callback.on_train_end(trainer, MODEL)


@forked
def test_a_step_of_lightning_is_one_of_the_optimizer(tmp_path, monkeypatch):
    pytorch = fake(monkeypatch, "lightning.pytorch", Callback=Base)
    fake(monkeypatch, "lightning", pytorch=pytorch)
    PrecisionDebugger(dump_path=str(tmp_path), level="mix")
    fake_lightning_fit(MsprobeCallback(), batches=4, accumulate=2)
    assert steps(tmp_path) == [0, 1]
    names = read_dump(tmp_path, step=0).names
    assert "Module.0.Linear.forward.1" in names and "Module.0.Linear.forward.2" not in names
    assert not any("tanh" in name for name in names)


@forked
def test_the_older_name_of_lightning(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    fake(monkeypatch, "pytorch_lightning", Callback=Base)
    callback = MsprobeCallback()
    assert isinstance(callback, Base)
    assert type(pickle.loads(pickle.dumps(callback))).__mro__[1:] == type(callback).__mro__[1:]


@forked
def test_a_callback_needs_a_debugger(monkeypatch):
    fake(monkeypatch, "transformers", TrainerCallback=Base)
    with pytest.raises(UsageError, match="add `PrecisionDebugger"):
        fake_trainer_train(MsprobeCallback(), 1, 1)


@forked
def test_a_callback_needs_a_library():
    assert not {"transformers", "lightning", "pytorch_lightning"} & sys.modules.keys()
    with pytest.raises(UsageError, match="expected `import transformers` or `import lightning`"):
        MsprobeCallback()


@forked
def test_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2, 1)

        def forward(self, x):
            return {"loss": self.fc(x).sum()}

    PrecisionDebugger(dump_path=str(tmp_path / "dump"), level="mix")
    settings = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=3,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        remove_unused_columns=False,
    )
    data = [{"x": torch.ones(2)} for _ in range(12)]
    transformers.Trainer(
        Model(), settings, train_dataset=data, callbacks=[MsprobeCallback()]
    ).train()
    assert steps(tmp_path / "dump") == [0, 1, 2]
    names = read_dump(tmp_path / "dump", step=2).names
    assert "Module.fc.Linear.forward.1" in names and "Module.fc.Linear.forward.2" not in names


@forked
def test_lightning(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2, 1)

        def training_step(self, batch, index):
            return self.fc(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    PrecisionDebugger(dump_path=str(tmp_path / "dump"), level="mix")
    trainer = lightning.Trainer(
        max_epochs=1,
        accumulate_grad_batches=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=str(tmp_path),
        callbacks=[MsprobeCallback()],
    )
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(12, 2), batch_size=2))
    assert steps(tmp_path / "dump") == [0, 1, 2]
    names = read_dump(tmp_path / "dump", step=2).names
    assert "Module.fc.Linear.forward.1" in names and "Module.fc.Linear.forward.2" not in names
