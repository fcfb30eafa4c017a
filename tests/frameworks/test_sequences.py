"""Each framework's sequence of accesses writes the dumps that its documents show."""

import importlib
import json
import os
from pathlib import Path

import numpy
import pytest
import torch
from recording import digest, forked

import msprobe.pytorch
from frameworks import models, sequences
from msprobe import UnsupportedError, UsageError
from msprobe.pytorch import PrecisionDebugger


def dumps(out):
    """Folder of a dump, from ``out`` -> the names of its entries."""
    return {
        str(path.parent.relative_to(out)): list(json.loads(path.read_text())["data"])
        for path in sorted(Path(out).rglob("dump.json"))
    }


def forwards(names):
    """The calls of the module ``head``, by number."""
    return [n.rsplit(".", 1)[1] for n in names if ".head.Linear.forward." in n]


@forked
def test_verl_writes_a_dump_a_stage(tmp_path):
    sequences.verl(str(tmp_path), "mix")
    found = dumps(tmp_path)
    stages = ("actor_compute_log_prob", "actor_update", "ref_compute_log_prob")
    assert list(found) == [
        f"profile/step_{step}/{stage}/step0/rank" for step in (1, 2) for stage in stages
    ]
    for folder, names in found.items():
        assert forwards(names) == ["0"], folder
        assert any(".backward" in name for name in names) == ("update" in folder)


@forked
def test_verl_patches(tmp_path):
    sequences.verl_worker(str(tmp_path))
    found = dumps(tmp_path)
    assert list(found) == ["dump/generate_sequences/step0/rank", "dump/update_actor/step0/rank"]
    assert all(forwards(names) == ["0"] for names in found.values())


@forked
def test_verl_async_logs_the_steps_that_are_recorded(tmp_path):
    assert sequences.verl_async(str(tmp_path)) == [0, 1]
    assert list(dumps(tmp_path)) == ["dump/step0/rank", "dump/step1/rank"]


@forked
def test_verl_omni(tmp_path):
    assert sequences.verl_omni(str(tmp_path)) == f"{tmp_path}/dump/process"
    assert list(dumps(tmp_path)) == ["dump/process/step0/rank", "dump/process/step1/rank"]


@forked
def test_slime(tmp_path):
    sequences.slime(str(tmp_path))
    found = dumps(tmp_path)
    stages = ("actor_train", "old_log_prob", "ref_compute_log_prob")
    assert list(found) == [f"dump/{s}/step{n}/rank" for s in stages for n in (0, 1)]
    # It resets nothing between the stages: numbers go on.
    assert forwards(found["dump/ref_compute_log_prob/step0/rank"]) == ["0", "0"]
    assert forwards(found["dump/actor_train/step0/rank"]) == ["2", "2"]
    assert forwards(found["dump/ref_compute_log_prob/step1/rank"]) == ["0", "0"]


@forked
def test_mindspeed_rl(tmp_path):
    assert sequences.mindspeed_rl(str(tmp_path)) == 2  # models
    found = dumps(tmp_path)
    assert len(found) == 8  # four tags, two steps
    assert all(forwards(names) == ["0"] for names in found.values())
    data = tmp_path / "dump/data"
    files = sorted(str(path.relative_to(data)) for path in data.rglob("*.*"))
    step = "step1/rank0"
    assert [file for file in files if step in file] == [
        f"log_prob/{step}/micro_step0/log_prob.json",
        f"log_prob/{step}/micro_step0/log_prob.npy",
        f"log_prob/{step}/micro_step1/log_prob.json",
        f"log_prob/{step}/micro_step1/log_prob.npy",
        f"responses/{step}/micro_step0/responses.0.npy",
        f"responses/{step}/micro_step0/responses.1.npy",
        f"responses/{step}/micro_step0/responses.json",
    ]
    saved = numpy.load(data / f"responses/{step}/micro_step0/responses.1.npy")
    assert saved.dtype == numpy.float32 and (saved == (models.tokens() + 1).numpy()).all()


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@forked
def test_vllm_ascend(level, tmp_path):
    sequences.vllm_ascend(str(tmp_path), level)
    found = dumps(tmp_path)
    assert list(found) == ["dump/step0/rank", "dump/step1/rank"]
    kinds = {name.split(".")[0] for names in found.values() for name in names}
    assert ("Module" in kinds) == (level != "L1") and ("Functional" in kinds) == (level != "L0")


@forked
def test_a_dummy_run_does_not_count(tmp_path):
    sequences.vllm_ascend_main(str(tmp_path))
    found = dumps(tmp_path)
    assert {folder: forwards(names) for folder, names in found.items()} == {
        "dump/step0/rank": ["0"],
        "dump/step1/rank": ["0"],
    }


@forked
def test_sglang_after_a_forward_that_raises(tmp_path):
    sequences.sglang(str(tmp_path))
    found = dumps(tmp_path)
    assert [forwards(names) for names in found.values()] == [["0", "1"], ["0"]]


@pytest.mark.parametrize("sequence", [sequences.mindspeed, sequences.ms_swift])
@forked
def test_megatron_and_ms_swift(sequence, tmp_path):
    sequence(str(tmp_path))
    assert list(dumps(tmp_path)) == ["dump/step0/rank", "dump/step1/rank"]


def gradients(net):
    torch.nn.Softmax(-1)(net(models.tokens())).pow(2).mean().backward()
    return [digest(parameter.grad) for parameter in net.parameters()]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@forked
def test_without_a_model_the_first_called_is_it(level, tmp_path):
    plain = gradients(models.model())
    found = []
    for named in (True, False):
        net = models.model()
        debugger = PrecisionDebugger(dump_path=str(tmp_path / "dump"), level=level)
        debugger.service.config.dump_path = tmp_path / str(named)
        debugger.start(net if named else None)
        assert gradients(net) == plain  # the bits of the training
        debugger.stop()
        debugger.service.reset_status()
        PrecisionDebugger._model = None
        (folder,) = tmp_path.glob(f"{named}/step0/rank")
        dump = json.loads((folder / "dump.json").read_text())["data"]
        found.append((dump, (folder / "weights.json").read_text()))
    assert found[0] == found[1]


@forked
def test_without_a_model_and_modules_one_line_says_so(tmp_path, capfd):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0")
    for _ in range(2):
        debugger.start()
        torch.relu(torch.ones(2))
        debugger.stop()
    said = capfd.readouterr().err
    assert said.count("no modules are recorded: start() was given no model") == 1


@forked
def test_a_gradient_of_an_earlier_stage_is_in_no_later_dump(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "a"), level="L1")
    debugger.start()
    loss = torch.ones(2, requires_grad=True).exp().sum()
    debugger.stop()
    debugger.service.reset_status()
    debugger.service.config.dump_path = tmp_path / "b"
    debugger.start()
    loss.backward()
    torch.relu(torch.ones(2))
    debugger.stop()
    assert dumps(tmp_path)["b/step0/rank"] == ["Torch.relu.0.forward"]


@forked
def test_a_stage_in_the_folder_of_another_is_said(tmp_path, capfd):
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    for _ in range(3):
        debugger.start()
        torch.relu(torch.ones(2))
        debugger.stop()
        debugger.service.reset_status()
    assert dumps(tmp_path) == {"step0/rank": ["Torch.relu.0.forward"]}
    assert capfd.readouterr().err.count("holds an earlier stage of this step") == 1


@forked
def test_what_is_read_and_set(tmp_path):
    config = sequences.config_in(str(tmp_path), "L1", step=[2, 3], rank=[])
    debugger = PrecisionDebugger(config)
    service = debugger.service
    assert debugger.config.dump_path == service.config.dump_path == f"{tmp_path}/dump"
    assert (debugger.config.level, debugger.task, debugger.config.framework) == (
        "L1",
        "statistics",
        "pytorch",
    )
    assert (service.config.step, service.config.rank, service.config.list) == ([2, 3], [], [])
    assert service.first_start and service.current_rank is None and service.dump_iter_dir is None
    service.init_step = 2
    assert (service.loop, service.init_step) == (0, 2)
    debugger.config.level = "mix"
    net = models.model()
    service.start(net)
    sequences.forward(net)
    assert (service.current_iter, service.first_start) == (2, False)
    assert service.dump_iter_dir == f"{tmp_path}/dump/step2"
    with pytest.raises(UsageError, match="between stop"):
        debugger.config.level = "L0"
    service.stop()
    service.step()
    assert (service.current_iter, service.loop) == (2, 1)
    service.current_iter = 3
    service.should_stop_service = True
    service.start(net)
    sequences.forward(net)
    service.stop()
    service.should_stop_service = False
    assert list(dumps(tmp_path)) == ["dump/step2/rank"]
    service.start(net)
    sequences.forward(net)
    service.stop()
    service.step()
    assert service.should_stop_service and list(dumps(tmp_path))[1:] == ["dump/step3/rank"]


@pytest.mark.parametrize(
    "access, text",
    [
        (lambda d: d.service.data_collector, "debugger.service.data_collector does not exist"),
        (lambda d: d.config.nothing, "there is async_dump, baseline, bench_path"),
        (lambda d: d.module_dumper, "PrecisionDebugger.module_dumper does not exist"),
        (lambda d: setattr(d.config, "list", ["relu"]), "dump_path, level, step, task can"),
        (lambda d: setattr(d.service, "config", 1), "current_iter, first_start, init_step"),
        (lambda d: setattr(d, "service", 1), "debugger.service cannot be set"),
    ],
)
@forked
def test_an_unknown_attribute_names_what_exists(access, text, tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    with pytest.raises(AttributeError) as error:
        access(debugger)
    assert text in str(error.value) and "\n" not in str(error.value)


@forked
def test_a_wrong_value_is_refused(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    with pytest.raises(UsageError, match="dump_path"):
        debugger.service.config.dump_path = None
    with pytest.raises(UsageError, match="level"):
        debugger.config.level = "L7"


PATHS = {
    "msprobe.pytorch.common.utils": "seed_all",
    "msprobe.pytorch.common.log": "logger",
    "msprobe.pytorch.debugger.precision_debugger": "PrecisionDebugger",
    "msprobe.pytorch.dump.debugger.precision_debugger": "PrecisionDebugger",
    "msprobe.core": "SingleComparator",
    "msprobe.core.single_save.single_saver": "SingleSave",
    "msprobe.core.single_save.single_comparator": "SingleComparator",
}
MISSING = {
    "msprobe.core.config_check": "ConfigChecker",
    "msprobe.core.common.megatron_utils": "ParallelConfig",
    "msprobe.core.monitor_v2.trainer": "TrainerMonitorV2",
    "msprobe.core.monitor.anomaly_processor": "AnomalyScanner",
    "msprobe.pytorch.monitor.module_hook": "TrainerMon",
    "msprobe.pytorch.monitor.csv2tb": "csv2tensorboard_by_step",
    "msprobe.pytorch.compile_accuracy_checker.precision_checker": "PrecisionChecker",
    "msprobe.response_anomaly": "analyze_output_anomaly",
}


def test_import_paths():
    for module, name in PATHS.items():
        found = getattr(importlib.import_module(module), name)
        if name in ("PrecisionDebugger", "seed_all"):
            assert found is getattr(msprobe.pytorch, name)


def test_a_missing_name_says_what_there_is_in_its_place():
    names = [getattr(importlib.import_module(module), name) for module, name in MISSING.items()]
    graphs = ("AclGraphDumper", "acl_save", "set_ge_dump_config", "set_fx_dump_config")
    for missing in names + [getattr(msprobe.pytorch, name) for name in graphs]:
        with pytest.raises(UnsupportedError, match="does not exist in this version") as error:
            missing("config.json")
        assert "\n" not in str(error.value)
        with pytest.raises(AttributeError, match="does not exist in this version"):
            missing.start  # noqa: B018
        assert not hasattr(missing, "start")


def test_the_logger_writes_our_lines(capfd):
    from msprobe.pytorch.common.log import logger

    logger.warning("of the program")
    logger.info_on_rank_0("on rank 0")
    said = capfd.readouterr().err
    assert "[WARNING] of the program" in said and "[INFO] on rank 0" in said
    assert os.getpid() in [int(line.split("(")[1].split(")")[0]) for line in said.splitlines()]
