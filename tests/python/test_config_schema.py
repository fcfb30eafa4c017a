"""config.schema.json, for editors: it accepts what the engine accepts, and names the same keys."""

import json
import re
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from recording import run_forked
from test_config_errors import FILES

from recorded import recorded

SCHEMA = json.loads(resources.files("msprobe").joinpath("config.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
GOLDEN = recorded("dumps/26.2.0/L1_md5/base")
API, MODULE = '"Functional.relu.0.forward"', '"Module.fc.Linear.forward.0"'


def in_task(text, task="statistics"):
    return f'{{"task": "{task}", "{task}": {text}}}'


GOOD = [
    "{}",
    '{"$schema": "config.schema.json"}',
    '{"task": "tensor", "dump_path": "a", "level": "mix"}',
    '{"task": "", "level": "", "risk_level": "", "precision": ""}',
    '{"task": null, "level": null, "rank": null, "statistics": null, "seed": null}',
    '{"rank": [0, "4-6"], "step": [2, "5", 1000000, "0-1000000"]}',
    '{"level": "L2", "acl_config": "acl.json"}',
    '{"level": "debug"}',
    '{"extra_info": false, "async_dump": true, "enable_dataloader": true, "dump_enable": false}',
    '{"seed": 0, "is_deterministic": false, "weights": "first_step"}',
    '{"link_equal_tensors": false, "reuse": false, "sketch": false}',
    '{"tensor_files": "packed"}',
    '{"tensor_files": ""}',
    '{"seed": 4294967295}',
    '{"precision": "high", "risk_level": "CORE", "custom_op_namespaces": []}',
    '{"free_benchmark": {"x": 1}, "tensor": {"list": 7}}',
    in_task('{"scope": [], "list": ["a"], "tensor_list": ["b"], "data_mode": ["all"]}'),
    in_task('{"data_mode": ["forward", "input"], "data_mode_rule": "or", "summary_mode": "xor"}'),
    in_task('{"summary_mode": ["max", "hash"], "request_id": "r", "slice": [{}, {"dim": 1}]}'),
    in_task('{"slice": [{"dim": 0, "size": null, "begin": -2, "end": 4}]}'),
    in_task(f'{{"scope": [{API}, {API}]}}'),
    in_task('{"tensor_list": []}', "tensor"),
    in_task('{"bench_path": "", "diff_nums": 1}', "tensor"),
    in_task(f'{{"bench_path": "{GOLDEN}", "diff_nums": -1, "summary_mode": "md5"}}', "tensor"),
    in_task('{"file_format": "npy", "online_run_ut": false, "port": -1}', "tensor"),
    in_task("{}", "structure"),
    in_task('{"data_mode": ["output"], "tensor_list": ["a"]}', "nan_check"),
    in_task('{"data_mode": ["input", "output"]}', "nan_check"),
    in_task('{"data_mode": ["input", "forward", "backward"], "data_mode_rule": "or"}', "nan_check"),
    in_task('{"grad_level": "L2", "param_list": ["a"], "bounds": [-2.5, 0, 1e3]}', "grad_probe"),
    in_task('{"grad_level": "", "bounds": [], "port": -1}', "grad_probe"),
    in_task('{"overflow_nums": -1, "check_mode": "aicore", "list": ["a"]}', "overflow_check"),
    in_task("{}", "free_benchmark"),
    in_task('{"pert_mode": "to_cpu", "fuzz_device": "cpu", "budget": 0.5}', "free_benchmark"),
    in_task('{"pert_mode": "", "fuzz_stage": "backward", "list": ["a"]}', "free_benchmark"),
    in_task('{"handler_type": "fix", "fuzz_level": "L1", "port": -1}', "free_benchmark"),
    in_task('{"if_preheat": true, "preheat_step": 1, "max_sample": 3}', "free_benchmark"),
    f'{{"level": "L0", "statistics": {{"scope": [{MODULE}]}}}}',
    f'{{"level": "mix", "statistics": {{"scope": [{MODULE}, {API}]}}}}',
    f'{{"level": "L2", "statistics": {{"scope": [{API}]}}}}',
]
BAD = [
    '{"$schema": 1}',
    '{"task": "acc_check"}',
    '{"rank": [-1]}',
    '{"rank": ["-1"]}',
    '{"step": [1000001]}',
    '{"step": ["1-"]}',
    '{"step": [""]}',
    '{"step": [null]}',
    '{"async_dump": 1}',
    '{"link_equal_tensors": "no"}',
    '{"sketch": "no"}',
    '{"tensor_files": "zip"}',
    '{"dump_enable": "true"}',
    '{"enable_dataloader": 0}',
    '{"is_deterministic": 1}',
    '{"seed": -1}',
    '{"seed": 4294967296}',
    '{"seed": true}',
    '{"precision": "middle"}',
    '{"risk_level": "core"}',
    '{"custom_op_namespaces": [1]}',
    '{"acc_check": []}',
    in_task('{"data_mode_rule": "any"}'),
    in_task('{"summary_mode": "max"}'),
    in_task('{"summary_mode": ["sum"]}'),
    in_task('{"slice": [{"dim": -1}]}'),
    in_task('{"slice": [{"from": 1}]}'),
    in_task('{"slice": {"dim": 1}}'),
    in_task('{"request_id": 3}'),
    in_task('{"bench_path": 3}', "tensor"),
    in_task('{"diff_nums": 0}', "tensor"),
    in_task('{"bench_path": "a"}'),
    in_task('{"tensor_list": ["a"]}', "tensor"),
    in_task('{"list": []}', "structure"),
    '{"task": "structure", "extra_info": false}',
    '{"task": "nan_check", "level": "mix"}',
    in_task('{"summary_mode": "md5"}', "nan_check"),
    in_task('{"data_mode": ["input"]}', "nan_check"),
    in_task('{"data_mode": ["input"], "data_mode_rule": "or"}', "nan_check"),
    in_task('{"overflow_nums": 0}', "overflow_check"),
    in_task('{"check_mode": "one"}', "overflow_check"),
    in_task('{"tensor_list": []}', "overflow_check"),
    in_task('{"data_mode": ["input"]}', "overflow_check"),
    in_task('{"pert_mode": "noise"}', "free_benchmark"),
    in_task('{"fuzz_device": "cpu"}', "free_benchmark"),
    in_task('{"pert_mode": "to_cpu", "fuzz_device": "npu"}', "free_benchmark"),
    in_task('{"pert_mode": "add_noise", "handler_type": "fix"}', "free_benchmark"),
    in_task('{"fuzz_stage": "backward", "handler_type": "fix"}', "free_benchmark"),
    in_task('{"budget": -0.5}', "free_benchmark"),
    in_task('{"data_mode": ["all"]}', "free_benchmark"),
    '{"task": "free_benchmark", "level": "mix"}',
    in_task('{"overflow_nums": 1}'),
    in_task('{"bounds": []}'),
    in_task('{"list": []}', "grad_probe"),
    in_task('{"param_list": "a"}', "grad_probe"),
    in_task('{"bounds": [1, 1]}', "grad_probe"),
    in_task('{"bounds": [1e40]}', "grad_probe"),
    f'{{"level": "L0", "statistics": {{"scope": [{API}]}}}}',
    '{"level": "mix", "statistics": {"scope": ["Functional.relu"]}}',
]
# Errors that a schema cannot express, and that the engine refuses.
ENGINE_ONLY = {"step backwards", "key twice", "bounds that descend"}


def test_every_key_has_a_test_of_its_own():
    """A test outside this file that records with the key."""
    here = Path(__file__)
    texts = [file.read_text() for file in here.parent.glob("test_*.py") if file != here]
    keys = SCHEMA["properties"] | SCHEMA["$defs"]["keys"]["properties"]
    sections = {"acc_check", "diff_check", "exception_dump", "run_ut"}
    for key in keys.keys() - sections:
        assert any(
            re.search(rf'"{re.escape(key)}\\?"|\b{re.escape(key)}=', text) for text in texts
        ), key


def answers(folder, texts):
    """The engine's message for each text; None: accepted."""
    from msprobe import ConfigError, _engine

    file = folder / "config.json"
    said = []
    for text in texts:
        file.write_text(text)
        try:
            _engine.configure(str(file), None, None, None, None, "")
        except ConfigError as error:
            said.append(str(error))
        else:
            said.append(None)
    return said


def is_valid(text):
    try:
        return VALIDATOR.is_valid(json.loads(text))
    except json.JSONDecodeError:
        return False


def test_it_is_a_schema_that_documents_every_key():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for key, what in (SCHEMA["properties"] | SCHEMA["$defs"]["keys"]["properties"]).items():
        assert what["description"], key


def test_it_accepts_what_the_engine_accepts(tmp_path):
    wrong = [text for name, (text, _) in FILES.items() if name not in ENGINE_ONLY]
    texts = GOOD + BAD + wrong
    for text, said in zip(texts, run_forked(answers, tmp_path, texts), strict=True):
        assert (said is None) == (text in GOOD), (text, said)
        assert is_valid(text) == (text in GOOD), text


def quoted(message):
    """The words that a message says it expected."""
    return set(re.findall(r'"([^"]*)"', message.split("; expected ")[1].split(", found")[0]))


def test_it_names_the_keys_that_the_engine_names(tmp_path):
    texts = ['{"zzzzzz": 1}', '{"statistics": {"zzzzzz": 1}}']
    top, section = map(quoted, run_forked(answers, tmp_path, [f"{t}" for t in texts]))
    ours = {k for k, v in SCHEMA["properties"].items() if v.get("type") != ["object", "null"]}
    old = {"acl_config"}
    assert ours - old == top
    keys = SCHEMA["$defs"]["keys"]["properties"]
    assert {key for key, what in keys.items() if not what.get("deprecated")} == section


@pytest.mark.parametrize("key", ["task", "level", "precision", "risk_level"])
def test_it_names_the_words_that_the_engine_names(key, tmp_path):
    (message,) = run_forked(answers, tmp_path, [f'{{"{key}": "zzzzzz"}}'])
    words = {word for word in SCHEMA["properties"][key]["enum"] if word}
    assert words - {"L2"} == quoted(message)  # L2 is accepted, but not advised
