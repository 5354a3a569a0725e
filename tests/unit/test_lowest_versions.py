"""`make test-lowest` uses the lower bounds of pyproject.toml, and the pinned version of torch."""

from support.lowest_versions import lowest_versions, pinned

PROJECT = {
    "dependencies": ["celery>=5.7,<6", "hf_xet>=1.8"],
    "optional-dependencies": {
        "worker": ["torch>=2.11", "safetensors"],
        "local": ["valkey>=9.1.2.post2; sys_platform == 'linux'", "valkey>=9.1.2.post2; sys_platform == 'darwin'"],
        "dev": ["shardsift[worker]", "celery", "unknown"],
    },
}
PINS = pinned("# a comment\ntorch==2.13.0\nsafetensors==0.8.0\ncelery==5.7.1\n")


def test_a_lower_bound_becomes_the_version_and_what_has_none_is_left_to_pip() -> None:
    found = sorted(lowest_versions(PROJECT, PINS))

    assert found == ["celery==5.7", "hf_xet==1.8", "torch==2.13.0", "valkey==9.1.2.post2"]
