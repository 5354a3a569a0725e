"""Other libraries work with the local Hub as with the real one."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubserver import HubServer
from support.hub_client import CARD, MODEL_SCRIPT, READ_SCRIPT, REPO, run_client, write

# In LFS uploads, the client passes files to httpx2 in a deprecated way.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.mark.slow  # datasets and transformers, each in a process of its own
class TestOtherLibraries:
    def test_pyarrow_and_datasets_read_published_files(self, hub: HubServer, home: Path, tmp_path: Path) -> None:
        for number in range(2):
            table = pa.table({"text": [f"{number} {row}" for row in range(500)], "score": np.arange(500, dtype="f4")})
            write(tmp_path / f"folder/data/{number}.parquet", b"")
            pq.write_table(table, tmp_path / f"folder/data/{number}.parquet")
        write(tmp_path / "folder/README.md", CARD)
        hub.add_folder(REPO, tmp_path / "folder")

        found = run_client(hub, home, READ_SCRIPT, "reader")

        assert found == {"read_table": 500, "load_dataset": 1000, "last_text": "1 499"}

    def test_transformers_loads_an_uploaded_model(self, home: Path, tmp_path: Path) -> None:
        with HubServer(xet=True) as hub:
            hub.create_repo("org/tiny", repo_type="model")

            found = run_client(hub, home, MODEL_SCRIPT, "worker", str(tmp_path / "model"))

            assert found == {"model_type": "bert", "same_weights": True, "tokens": ["hello", "world"]}
            assert "model.safetensors" in hub.files("org/tiny", repo_type="model")
            assert hub.handler_errors == []
