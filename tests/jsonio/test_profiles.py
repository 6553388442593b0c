"""Profile files."""

import json

import jsonschema
import pytest
from hypothesis import given

from planner import InvalidInputError, Profile
from planner.jsonio import decode_profile, encode_profile, schema
from tests.strategies import profiles

LAYER = {"name": "a", "forward_ns": 1, "backward_ns": 2, "parameter_bytes": 3}
MINIMAL = {
    "name": "m",
    "provenance": {"kind": "synthetic", "source": "a test"},
    "layers": [LAYER],
}


@given(profiles())
def test_round_trip(profile: Profile) -> None:
    text = encode_profile(profile)
    assert decode_profile(text.encode("utf-8", "surrogatepass")) == profile
    jsonschema.validate(json.loads(text), schema("profile"), jsonschema.Draft202012Validator)


def test_gradients_are_as_large_as_parameters_unless_said_otherwise() -> None:
    layer = decode_profile(json.dumps(MINIMAL).encode()).layers[0]
    assert layer.pushed_bytes == 3


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"layers": []}, "layers"),
        ({"layers": [{"name": "a"}]}, "layers[0].forward_ns"),
        ({"layers": [{**LAYER, "forward_ns": -1}]}, "layers[0].forward_ns"),
        ({"layers": [{**LAYER, "foward": 1}]}, "layers[0].foward"),
        ({"batch_size": 0}, "batch_size"),
        ({"provenance": {"kind": "guessed", "source": ""}}, "provenance.kind"),
        ({"provenance": {"kind": "measured"}}, "provenance.source"),
        ({"nam": 1}, "nam"),
        (
            {"provenance": {"kind": "measured", "source": "", "versions": {"a": "1", "b": 2}}},
            "provenance.versions.b",
        ),
    ],
)
def test_bad_profiles(change: dict[str, object], path: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        decode_profile(json.dumps({**MINIMAL, **change}).encode())
    assert caught.value.path == path
