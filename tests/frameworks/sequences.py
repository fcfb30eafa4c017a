"""What frameworks do with the debugger, access by access.

docs/howto/record-from-a-framework.md names the versions. Each function trains or serves a
little, and records below ``out``.
"""

import json
import os

import torch

from frameworks.models import model, tokens


def config_in(out, level="L0", **keys):
    """A config.json as the frameworks' documents show it."""
    os.makedirs(out, exist_ok=True)
    path = os.path.join(out, "config.json")
    section = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
    content = {"task": "statistics", "dump_path": os.path.join(out, "dump"), "level": level}
    content |= {"rank": [], "step": [], "async_dump": False, "statistics": section} | keys
    with open(path, "w") as file:
        json.dump(content, file)
    return path


def forward(net):
    with torch.no_grad():
        return net(tokens())


def train(net):
    net(tokens()).pow(2).mean().backward()


def verl(out, level="L0"):
    """verl 0.9.1, precision_debugger_profile.py: a path a stage, no step()."""
    from msprobe.pytorch import PrecisionDebugger

    config = config_in(out, level)
    actor, ref = model(0), model(1)
    debugger = None
    for step in (1, 2):
        for stage, net, run in (
            ("ref_compute_log_prob", ref, forward),
            ("actor_compute_log_prob", actor, forward),
            ("actor_update", actor, train),
        ):
            path = os.path.join(out, "profile", f"step_{step}", stage)
            os.makedirs(path, exist_ok=True)
            if debugger is None:
                debugger = PrecisionDebugger(config_path=config, dump_path=path)
            if hasattr(debugger, "service") and hasattr(debugger.service, "config"):
                debugger.service.config.dump_path = path
            debugger.start(net)
            run(net)
            debugger.stop()
            service = getattr(debugger, "service", None)
            reset = getattr(service, "reset_status", None)
            if callable(reset):
                reset()
            elif callable(getattr(service, "_reset_status", None)):
                service._reset_status()


def verl_worker(out, level="L0"):
    """The patch of verl's FSDP and Megatron workers in msprobe's documents (verl 0.6.1)."""
    from msprobe.pytorch import PrecisionDebugger, seed_all

    seed_all(mode=True)
    debugger = PrecisionDebugger(
        task="tensor", level=level, step=[0], dump_path=os.path.join(out, "dump")
    )
    prefix = debugger.config.dump_path
    rollout, actor = model(0), model(0)
    for _ in range(2):
        debugger.service.config.dump_path = os.path.join(prefix, "generate_sequences")
        debugger.start(model=rollout, token_range=[0, 0])
        for _ in range(3):
            forward(rollout)
        debugger.stop()
        debugger.service._reset_status()
        debugger.service.config.dump_path = os.path.join(prefix, "update_actor")
        debugger.start(model=actor)
        forward(actor)
        debugger.stop()
        debugger.step()


def verl_async(out, level="L0"):
    """The patch of verl 0.8.0's engines: a step a micro batch, and a log beside the dumps."""
    from msprobe.pytorch import PrecisionDebugger, seed_all

    seed_all(mode=True)
    debugger = PrecisionDebugger(config_path=config_in(out, level, step=[0, 1]))
    log_dir = os.path.join(debugger.config.dump_path, str(os.getpid()))
    os.makedirs(log_dir, exist_ok=True)
    net, steps = model(), []
    for _ in range(4):
        debugger.start(model=net)
        train(net)
        if not debugger.service.should_stop_service:
            steps.append(debugger.service.current_iter)
        debugger.stop()
        debugger.step()
    return steps


def verl_omni(out, level="L0"):
    """The instructions for verl-omni: both paths are set, in a folder of the process."""
    from msprobe.pytorch.common.utils import seed_all
    from msprobe.pytorch.debugger.precision_debugger import PrecisionDebugger

    seed_all(mode=True)
    debugger = PrecisionDebugger(config_path=config_in(out, level))
    pid_dump = os.path.join(str(debugger.config.dump_path), "process")
    debugger.config.dump_path = pid_dump
    if getattr(debugger, "service", None) is not None:
        debugger.service.config.dump_path = pid_dump
    net = model()
    for _ in range(2):
        debugger.start(model=net)
        forward(net)
        debugger.stop()
        debugger.step()
    return debugger.config.dump_path


def slime(out, level="mix"):
    """The patch of slime 0.2.2: chunks of a model, three stages, one step()."""
    from msprobe.pytorch import PrecisionDebugger, seed_all

    seed_all(mode=True)
    debugger = PrecisionDebugger(config_path=config_in(out, level))
    prefix = debugger.config.dump_path
    chunks = [model(0), model(1)]
    for _ in range(2):
        for stage, run in (
            ("ref_compute_log_prob", forward),
            ("old_log_prob", forward),
            ("actor_train", train),
        ):
            debugger.service.config.dump_path = os.path.join(prefix, stage)
            debugger.start(model=chunks)
            for chunk in chunks:
                run(chunk)
            debugger.stop()
        debugger.step()


def mindspeed_rl(out, level="L0"):
    """MindSpeed-RL's class MsProbe: two models, four tags, two steps; key data beside them."""
    from msprobe.core import SingleSave
    from msprobe.pytorch import PrecisionDebugger

    dump_path = os.path.join(out, "dump")
    saver = SingleSave(dump_path)
    debugger = PrecisionDebugger(task="statistics", level=level, step=["0-1"], dump_path=dump_path)
    hooked = []
    actor, ref = model(0), model(1)
    for _ in range(3):
        for tag, net, run in (
            ("actor_generate_sequences", actor, forward),
            ("reference_compute_log_prob", ref, forward),
            ("actor_compute_log_prob", actor, forward),
            ("actor_update", actor, train),
        ):
            debugger.service.first_start = net not in hooked
            debugger.service.config.dump_path = os.path.join(dump_path, tag)
            debugger.start(model=net)
            if not debugger.service.first_start and net not in hooked:
                hooked.append(net)
            run(net)
            debugger.stop()
            debugger.service.reset_status()
        saver.save({"log_prob": forward(actor), "responses": [tokens(), tokens() + 1]})
        saver.save({"log_prob": forward(ref)})
        saver.step()
        debugger.step()
    return len(hooked)


def vllm_ascend(out, level="L0"):
    """vllm-ascend 0.18.0, model_runner_v1.py: the level decides whether the model is named."""
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_in(out, level))
    net = model()
    for _ in range(2):
        config = getattr(debugger, "config", None)
        found = str(getattr(config, "level", "L1")).upper() if config is not None else "L1"
        if found in ("L0", "MIX"):
            debugger.start(model=net)
        else:
            debugger.start()
        forward(net)
        debugger.stop()
        debugger.step()


def vllm_ascend_main(out, level="L0"):
    """vllm-ascend of August 2026, eager: a dummy run ends with step(dump=False)."""
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_in(out, level))
    net = model()
    for dump in (False, True, True):
        debugger.start(net, scheduled_tokens=None)
        forward(net)
        debugger.stop()
        debugger.step(dump=dump)


def sglang(out, level="L0"):
    """sglang 0.5.23: after a forward that raises, the next start() comes without stop()."""
    from msprobe.pytorch import PrecisionDebugger, seed_all

    seed_all(mode=True)
    debugger = PrecisionDebugger(config_path=config_in(out, level))
    net = model()
    for fails in (True, False, False):
        debugger.start(model=net, rank_id=None)
        forward(net)
        if fails:
            continue
        debugger.stop()
        debugger.step()


def mindspeed(out, level="L1"):
    """MindSpeed's --npu-datadump: a list of chunks around train_step."""
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=config_in(out, level, enable_dataloader=False))
    chunks = [model()]
    for _ in range(2):
        debugger.start(model=chunks)
        train(chunks[0])
        debugger.stop()
        debugger.step()


def ms_swift(out, level="mix"):
    """ms-swift's document for Megatron-SWIFT: a debugger made anew in each train_step."""
    from msprobe.pytorch import PrecisionDebugger

    net = model()
    for _ in range(2):
        debugger = PrecisionDebugger(dump_path=os.path.join(out, "dump"), level=level, model=net)
        debugger.start()
        try:
            train(net)
        finally:
            debugger.stop()
            debugger.step()
