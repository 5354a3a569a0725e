"""A process that lacks what most have: it works, or one sentence says what is missing."""

import subprocess
from pathlib import Path

import pytest

from support.processes import BIN, run_command


def test_help_is_whole_without_docstrings() -> None:
    usual = run_command("producer", "--help", environment={})

    optimized = run_command("producer", "--help", environment={"PYTHONOPTIMIZE": "2"})

    assert "score and filter Parquet datasets" in " ".join(usual.stdout.split())
    assert optimized.stdout == usual.stdout


def test_our_own_files_are_read_in_a_locale_without_unicode(tmp_path: Path) -> None:
    done = with_an_embedded_redis("print(Ledger.connect(Settings(redis_url=url)).run_ids())", tmp_path, LC_ALL="C")

    assert done.stdout == "[]\n", done.stderr


def test_a_long_temporary_folder_holds_no_socket_that_is_too_long(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()

    done = with_an_embedded_redis("print(url)", tmp_path, TMPDIR=str(folder))

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip()) < 100


def with_an_embedded_redis(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    script = f"""
import sys
from pathlib import Path
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.redis import embedded_redis
with embedded_redis(Path(sys.argv[1])) as url:
    {code}
"""
    return run_command("python", "-c", script, folder / "data", environment={"PYTHONUTF8": "0", **environment})


def test_a_user_without_a_home_is_told_to_set_one(tmp_path: Path) -> None:
    in_namespace = ["unshare", "--user", "--map-user=54321"]
    try:
        subprocess.run([*in_namespace, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no user namespaces here")

    asked = [*in_namespace, "env", "-u", "HOME", str(BIN / "producer"), "status"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 2
    assert done.stderr == "producer: This user has no home folder. Set HOME to a folder that it may write.\n"
