"""An extension in a bucket, and one that is sent by xet, sends the new files alone and makes the dataset of one run."""

import hashlib
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hubserver import HubServer
from shardsift.producer.local.demo_data import write_shards
from shardsift.producer.verify.verify import verify
from support.outputs import Published, data_digests
from support.small_run import Runs

pytestmark = pytest.mark.slow
BASE, ADDED = 20, 5


@pytest.mark.parametrize("files", ["bucket", "hub by xet"], indirect=True)
def test_an_extension_sends_the_new_shards_alone_and_the_whole_is_that_of_one_run(
    files: Published, hubs: Callable[[str], HubServer], runs: Runs, tmp_path: Path
) -> None:
    hub, source = hubs("xet"), tmp_path / "part"
    source.mkdir()
    paths = write_shards(tmp_path / "source", shards=BASE + ADDED, rows=20, seed=11)
    publish = partial(runs.publish, source, output_uri=files.uri, where="score > 2.5", target_file_size="none")
    for file in paths[:BASE]:
        shutil.copy(file, source)
    publish()
    base = files.visible()
    hub.forget_requests()

    for file in paths[BASE:]:
        shutil.copy(file, source)
    publish(extends=True)
    sent = sum(request.bytes_in for request in hub.requests)

    found = files.visible()
    data = {path for path in base if "/" in path}
    assert {path: found[path] for path in data} == {path: base[path] for path in data}
    assert sent < 1.5 * sum(len(content) for path, content in found.items() if path not in data)
    whole = runs.publish(source, "whole", where="score > 2.5", target_file_size="none")
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in found.items() if "/" in path}
    assert digests == data_digests(whole)
    assert verify(files.uri, source=(str(source),)).faults == ()
