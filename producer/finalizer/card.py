"""The dataset card: YAML that the viewer and `load_dataset` read, and what a reader must know of the data."""

import re

from huggingface_hub import DatasetCardData

from fleet.receipt import Parity, Receipt
from fleet.spec import RunSpec

_SIZES = {  # the Hub's size_categories, by their upper bound
    10**3: "n<1K",
    10**4: "1K<n<10K",
    10**5: "10K<n<100K",
    10**6: "100K<n<1M",
    10**7: "1M<n<10M",
    10**8: "10M<n<100M",
    10**9: "100M<n<1B",
    10**10: "1B<n<10B",
    10**11: "10B<n<100B",
}


def dataset_card(spec: RunSpec, receipts: list[Receipt]) -> bytes:
    """The README.md to publish."""
    return f"---\n{_yaml(spec, receipts)}\n---\n\n{_text(spec, receipts)}".encode()


def _yaml(spec: RunSpec, receipts: list[Receipt]) -> str:
    kept = sum(receipt.rows_kept for receipt in receipts)
    source = _source_dataset(spec)
    card = DatasetCardData(
        task_categories=["text-classification"],
        tags=["shardsift"],
        size_categories=[next((name for bound, name in _SIZES.items() if kept < bound), "100B<n<1T")],
        source_datasets=[source] if source else None,
        configs=[_config("default", "data"), _config("scores", "scores")],
    )
    return str(card.to_yaml())


def _config(name: str, folder: str) -> dict[str, object]:
    config: dict[str, object] = {
        "config_name": name,
        "data_files": [{"split": "train", "path": f"{folder}/**/*.parquet"}],
    }
    return config | ({"default": True} if name == "default" else {})


def _source_dataset(spec: RunSpec) -> str | None:
    found = re.match(r"hf://datasets/([^/@]+/[^/@]+)", spec.input_uris[0])
    return found[1] if found else None


def _text(spec: RunSpec, receipts: list[Receipt]) -> str:
    rows = {
        fate: sum(getattr(receipt, fate) for receipt in receipts)
        for fate in ("rows_in", "rows_kept", "rows_dropped", "rows_errored")
    }
    made = [receipt.provenance for receipt in receipts]
    ways = ", ".join(sorted({f"{way.dtype} on {way.device} ({way.backend})" for way in made}))
    return f"""# {spec.crawl or spec.run_id}, filtered

Every row of the source was scored with a text classifier; the rows that pass the filter are here, in the source's order
and with all its columns.

| | |
|---|---|
| Source | {", ".join(map(_cell, spec.input_uris))} at revision `{spec.input_revision}` |
| Model | `{_model_name(spec)}` at revision `{spec.model.revision}` |
| Scored column | `{spec.text_column}` |
| Filter | {_cell(spec.where) if spec.where else "none: every scored row is kept"} |
| Scored in | {ways} |
| Against float32 | {_parity([way.parity for way in made])} |
| Shards | {len(receipts):,} |
| Rows in | {rows["rows_in"]:,} |
| Kept | {rows["rows_kept"]:,} |
| Dropped | {rows["rows_dropped"]:,} |
| Not scored | {rows["rows_errored"]:,} (the `error` column of `scores/` says why) |
| Run | `{spec.run_id}` |

## Columns

{_columns(spec)}

The config `scores` has a line for *every* row of the source, kept or not, so that another threshold needs no new scoring:
`row` is the row's place in its shard, from 0. `manifest.parquet` lists every file with its sha256 and provenance.

Made with shardsift.
"""


def _cell(text: str) -> str:
    """Text as code in a table, where a bar or the end of a line would end the cell."""
    return f"`{' '.join(text.split())}`".replace("|", "\\|")


def _parity(found: list[Parity | None]) -> str:
    """The worst of what the workers found when they started."""
    tried = [parity for parity in found if parity]
    if not tried:
        return "not tried"
    flipped = [parity.flipped_share for parity in tried if parity.flipped_share is not None]
    verdicts = f"; the filter decides {max(flipped):.2%} of those texts otherwise" if flipped else ""
    return (
        f"logits of {min(parity.rows for parity in tried):,} sample texts within {max(p.max_error for p in tried):.2g}, "
        f"99.9 % of them within {max(p.p999_error for p in tried):.2g}{verdicts}"
    )


def _columns(spec: RunSpec) -> str:
    made = {"none": "raw logit", "sigmoid": "logit through a sigmoid", "softmax": "probability by softmax"}
    kind, outputs = made[spec.function_to_apply], len(spec.model.labels)
    lines = [
        f"- `{spec.score_column}`: the model's {kind}, float32. The filter compares this value, not a rounded one."
    ]
    if outputs > 1:
        lines[0] = f"- `{spec.score_column}`: the highest of the model's {outputs} outputs, float32, each a {kind}."
        lines.append(f"- `{spec.label_column}`: the label of that output, of: {', '.join(spec.model.labels)}.")
    if spec.int_score:
        lines.append(f"- `{spec.int_score_column}`: the score clipped to 0…5 and rounded, as in FineWeb-Edu.")
    return "\n".join(lines)


def _model_name(spec: RunSpec) -> str:
    """A Hub name as it is; of a local folder only its name, since a path tells about the machine."""
    return spec.model.name.rsplit("/", 1)[-1] if spec.model.revision.startswith("sha256-") else spec.model.name
