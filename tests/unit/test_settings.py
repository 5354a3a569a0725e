"""Settings come from the environment. A password from a file opens the Redis of REDIS_URL."""

from pathlib import Path

import pytest

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.redis_address import RedisAddress
from shardsift.fleet.process.settings import Settings, check_state_dir, read_settings

ROOT = Path(__file__).parents[2]
ODD_PASSWORD = "p@ss/w:rd #1%?&é"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "REDIS_URL",
        "REDIS_PASSWORD_FILE",
        *(f"SHARDSIFT_{field.upper()}" for field in Settings.model_fields),
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text(f"{ODD_PASSWORD}\n")
    return file


def test_a_password_file_that_cannot_be_read_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")

    for name, why in (("absent", "No such file or directory"), ("binary", "it is not text in UTF-8")):
        with pytest.raises(UsageError, match=f"{name} cannot be read: {why}"):
            _ = Settings(redis_url="redis://host", redis_password_file=tmp_path / name).redis


@pytest.mark.parametrize("seconds", ["inf", "nan", "-1"])
def test_a_time_that_is_none_is_refused(seconds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSIFT_LEASE_SECONDS", seconds)

    with pytest.raises(UsageError, match="SHARDSIFT_LEASE_SECONDS"):
        read_settings()


def test_a_state_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    check_state_dir(Settings(state_dir=tmp_path / "new/folder"))
    with pytest.raises(UsageError, match=r"SHARDSIFT_STATE_DIR is .* nothing can be written \(Not a directory\)"):
        check_state_dir(Settings(state_dir=tmp_path / "file/state"))


@pytest.mark.parametrize("prefix", ["", "SHARDSIFT_"])
def test_redis_and_a_password_have_two_names(monkeypatch: pytest.MonkeyPatch, prefix: str, password_file: Path) -> None:
    monkeypatch.setenv(f"{prefix}REDIS_URL", "redis://host:6379/0")
    monkeypatch.setenv(f"{prefix}REDIS_PASSWORD_FILE", str(password_file))

    settings = Settings()

    assert settings.redis == RedisAddress(host="host", password=ODD_PASSWORD)


def test_a_misspelled_variable_is_reported_with_the_right_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDSIFT_VENV", "a variable of somebody else")
    monkeypatch.setenv("SHARDSIFT_MAX_BATCH_TOKEN", "4096")

    with pytest.raises(
        UsageError, match=r"no setting SHARDSIFT_MAX_BATCH_TOKEN\. Did you mean SHARDSIFT_MAX_BATCH_TOKENS"
    ):
        read_settings()


def test_a_setting_that_says_what_unset_means_shows_no_default() -> None:
    lines = (ROOT / "docs/settings.md").read_text().splitlines()
    rows = [line.split(" | ", 2) for line in lines if "Unset:" in line]

    assert len(rows) > 8
    assert {default for _, default, _ in rows} == {""}
