"""compare.schema.json accepts every JSON document of the cases, and names all their keys."""

import json
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

CASES = Path(__file__).resolve().parent / "cases"
SCHEMA = json.loads(resources.files("msprobe").joinpath("compare.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
DOCUMENTS = [
    path
    for path in sorted(CASES.glob("*/expected.json"))
    if "msprobe compare" in (path.parent / "command").read_text()
]


def resolve(schema):
    if "$ref" in schema:
        return SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
    if "anyOf" in schema:
        return next(
            (found for found in map(resolve, schema["anyOf"]) if "properties" in found), schema
        )
    return schema


def unknown_keys(value, schema, place=""):
    """Keys of a document that the schema does not name."""
    schema = resolve(schema)
    if isinstance(value, list):
        for item in value:
            yield from unknown_keys(item, schema.get("items", {}), place)
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for key, item in value.items():
            if known and key not in known:
                yield f"{place}.{key}"
            yield from unknown_keys(item, known.get(key, {}), f"{place}.{key}")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.parent.name)
def test_documents_are_valid(path):
    document = json.loads(path.read_text())
    errors = [error.message for error in VALIDATOR.iter_errors(document)]
    assert not errors, errors[:3]
    if "schema" in document:
        assert not list(unknown_keys(document, SCHEMA["$defs"]["report"]))


def change(document, *path_and_value):
    *path, last, value = path_and_value
    changed = json.loads(json.dumps(document))
    inner = changed
    for key in path:
        inner = inner[key]
    inner[last] = value
    return changed


def test_wrong_documents_are_refused():
    good = json.loads((CASES / "format_json/expected.json").read_text())
    assert VALIDATOR.is_valid(good)
    wrong = [
        change(good, "verdict", "fine"),
        change(good, "calls", "equal", -1),
        change(good, "schema", "msprobe.compare/1"),
        change(good, "first_divergence", {}),
        {key: value for key, value in good.items() if key != "mode"},
        {"ranks": {"x": good}},
        {"ranks": {}},
    ]
    assert [document for document in wrong if VALIDATOR.is_valid(document)] == []
