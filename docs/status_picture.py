"""Draw pictures/status.svg: `producer status --watch` in the middle of a real run with the model of the demo.

`python docs/status_picture.py FOLDER` starts that run below FOLDER, and stops it when the picture is drawn: after about
four minutes on two CPU cores. The picture shows the path of FOLDER. The command replaces what an earlier call left
there.
"""

import io
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

from shardsift.fleet.ledger import Ledger
from shardsift.fleet.process.command_line import say
from shardsift.fleet.process.settings import Settings
from shardsift.producer.local.demo import fit_classifier
from shardsift.producer.local.demo_data import write_labelled, write_shards
from shardsift.producer.local.run import run_locally
from shardsift.producer.planning.options import RunOptions
from shardsift.producer.planning.plan import Plan, plan_run
from shardsift.producer.status import RunStatus, run_status
from shardsift.producer.status.watch import screen_text

PICTURE = Path(__file__).parent / "pictures/status.svg"
_TITLE = "producer status --watch"
_SHARDS, _ROWS, _LABELLED_ROWS, _WORKERS, _SEED = 20, 150, 600, 2, 20_241
_SHARE_DONE = 0.4  # of the shards, when the picture is drawn
_LEAST_ROWS = 50  # of each running shard, so that each worker has reported its speed

# Rich's own format without its web font: a picture in a page should load nothing.
_FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.{unique_id}-title {{ font: bold 18px system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class _Drawn(Exception):
    """The signal that the picture is written and the run may end."""


def main(folder: Path) -> None:
    plan = _plan(folder)
    settings = Settings(redis_url=None, state_dir=folder / "state")
    try:
        run_locally(plan, settings, workers=_WORKERS, on_poll=_look)
    except _Drawn:
        say(f"Wrote {PICTURE}")
    else:
        sys.exit("The run ended before both workers were in the middle of a shard.")


def picture_of(status: RunStatus) -> str:
    screen = screen_text(status, width=240)
    console = Console(record=True, width=max(map(len, screen.plain.splitlines())), file=io.StringIO())
    console.print(screen)
    return console.export_svg(title=_TITLE, theme=SVG_EXPORT_THEME, code_format=_FORMAT, unique_id="status")


def _plan(folder: Path) -> Plan:
    for made in ("shards", "classifier", "state", "kept"):
        shutil.rmtree(folder / made, ignore_errors=True)
    write_shards(folder / "shards", shards=_SHARDS, rows=_ROWS, seed=_SEED)
    write_labelled(folder / "labelled.parquet", rows=_LABELLED_ROWS, seed=_SEED)
    say("Fitting the classifier")
    fit_classifier(folder)
    return plan_run(
        RunOptions(
            input_uris=(str(folder / "shards"),),
            models=(str(folder / "classifier"),),
            min_score=3.0,
            output_uri=str(folder / "kept"),
        )
    )


def _look(ledger: Ledger, run_id: str) -> None:
    """Draw the picture when enough shards are done and each worker is in the middle of a shard. Then raise _Drawn."""
    status = run_status(ledger, run_id)
    is_midway = status.counts.done >= _SHARE_DONE * status.counts.shards
    if is_midway and [shard.rows >= _LEAST_ROWS for shard in status.running] == [True] * _WORKERS:
        PICTURE.write_text(picture_of(status))
        raise _Drawn


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
