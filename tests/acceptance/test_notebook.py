"""A run in a cell of a notebook, in a real kernel: with ipywidgets and without."""

import re
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from support.crawls import copy_shards

WITHOUT_WIDGETS = "import sys\nsys.modules['ipywidgets'] = None"  # as if it were not installed
RUN = """
import shardsift
ended = shardsift.run(input="./shards/*.parquet", output="./kept", model={model!r}, where="score > -100", workers=1)
ended.word
"""


@pytest.mark.usefixtures("on_machine")
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(WITHOUT_WIDGETS, id="without ipywidgets"),
        pytest.param("import ipywidgets", id="with ipywidgets", marks=pytest.mark.slow),
    ],
)
def test_a_run_in_a_notebook_shows_its_progress(before: str, shards: Path, tiny_model: Path, tmp_path: Path) -> None:
    copy_shards(shards, tmp_path / "shards", count=2)

    messages = outputs_of([before, RUN.format(model=str(tiny_model))], folder=tmp_path)

    assert [content["data"]["text/plain"] for kind, content in messages if kind == "execute_result"] == ["'published'"]
    (first,) = (content for kind, content in messages if kind == "display_data")
    updates = [content for kind, content in messages if kind == "update_display_data"]
    assert {update["transient"]["display_id"] for update in updates} == {first["transient"]["display_id"]}
    assert any("% of shards done" in update["data"]["text/plain"] for update in updates)
    assert re.match(r"(\x1b\[[\d;]*m)*published\b", updates[-1]["data"]["text/plain"])
    assert "<pre" in updates[-1]["data"]["text/html"]
    printed = [content["text"] for kind, content in messages if kind == "stream"]
    assert [text for text in printed if "TqdmWarning" not in text] == []  # huggingface_hub's, if there are no widgets
    assert [content["evalue"] for kind, content in messages if kind == "error"] == []


def outputs_of(cells: list[str], *, folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """What the kernel sends for the cells: kind and content of each message."""
    found: list[tuple[str, dict[str, Any]]] = []
    kernel, client = start_new_kernel(cwd=str(folder))
    try:
        for cell in cells:
            client.execute_interactive(
                cell, output_hook=lambda message: found.append((message["msg_type"], message["content"])), timeout=240
            )
    finally:
        client.stop_channels()
        kernel.shutdown_kernel()
    return found
