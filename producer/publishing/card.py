"""The dataset card: YAML that the viewer and `load_dataset` read, and what a reader must know of the data."""

import re
from collections import Counter

from huggingface_hub import DatasetCardData

from fleet.inputs.formats import kind_of, without_ending
from fleet.process.wording import counted
from fleet.run.model import SEQUENCE_CLASSIFIER, Model
from fleet.run.receipt import Parity, Receipt
from fleet.run.scoring import Scoring
from fleet.run.spec import RunSpec, disclosed_inputs, disclosed_model
from producer.scores.distribution import histograms_of, score_table

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
    source = _hub_dataset(spec)
    card = DatasetCardData(
        pretty_name=_title(spec),
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


def _text(spec: RunSpec, receipts: list[Receipt]) -> str:
    rows = {
        fate: sum(getattr(receipt, fate) for receipt in receipts)
        for fate in ("rows_in", "rows_kept", "rows_dropped", "rows_errored")
    }
    return f"""# {_title(spec)}

{_summary(spec)}

| | |
|---|---|
| Source | {_source(spec)}{_format(receipts)} at revision `{spec.input_revision}`{_changed_files(receipts)} |
{model_rows(spec, receipts)}| Filter | {cell(spec.where) if spec.where else "none: every scored row is kept"} |
| Shards | {len(receipts):,} |
| Rows in | {rows["rows_in"]:,} |
| Kept | {rows["rows_kept"]:,}{_share(rows["rows_kept"], rows["rows_in"])} |
| Dropped | {rows["rows_dropped"]:,}{_share(rows["rows_dropped"], rows["rows_in"])} |
| Not scored | {rows["rows_errored"]:,} (the `error` column of `scores/` says why) |
| Run | `{spec.run_id}` |
{models_section(spec, receipts)}{_how_to_load(spec)}{_scores(spec, receipts)}
## Columns

{_columns(spec)}

The config `scores` has a line for *every* row of the source, kept or not, so that another threshold needs no new scoring:
`shard` and `row` say which row it is.{_join(spec)} `manifest.parquet` lists every file with its sha256 and provenance.

Made with shardsift.
"""


def _title(spec: RunSpec) -> str:
    """Such as `fineweb CC-MAIN-2024-10, filtered with fineweb-edu-classifier`."""
    dataset = _hub_dataset(spec)
    source = dataset.rpartition("/")[2] if dataset else " ".join(_plain_input(spec).split())
    crawl = f" {spec.crawl}" if spec.crawl else ""
    models = [disclosed_model(scoring.model).rstrip("/").rpartition("/")[2] for scoring in spec.scorings]
    return f"{source}{crawl}, {'filtered' if spec.where else 'scored'} with {' and '.join(models)}"


def _plain_input(spec: RunSpec) -> str:
    """The name of the first input: a folder before its wildcards, or a file without its suffix."""
    first = disclosed_inputs(spec)[0]
    fixed = re.split(r"/?[^/]*[*?\[]", first)[0].rstrip("/")
    return without_ending(fixed.rpartition("/")[2]) or f"{kind_of(first)} files"


def _summary(spec: RunSpec) -> str:
    here = "the rows that pass the filter are here" if spec.where else "those that could be scored are here"
    names = [cell(name) for name, _ in spec.columns]
    columns = f"these of its columns: {', '.join(names)}" if spec.only_columns else "all its columns"
    return f"""Every row of the source was scored with {kinds_of_models(spec)}; {here},
in the source's order and with {columns}. Their licence and language are the source's."""


def _source(spec: RunSpec) -> str:
    dataset = _hub_dataset(spec)
    address = ", ".join(map(cell, disclosed_inputs(spec)))
    return f"[{dataset}](https://huggingface.co/datasets/{dataset}), {address}" if dataset else address


def _format(receipts: list[Receipt]) -> str:
    """Such as ` (JSON Lines)`, or of several formats ` (3 files of Parquet, 2 files of JSON Lines)`; nothing for Parquet."""
    kinds = Counter(map(kind_of, dict.fromkeys(receipt.source_uri for receipt in receipts)))
    if len(kinds) > 1:
        told = [f"{counted(files, 'file')} of {kind}" for kind, files in kinds.most_common()]
        return f" ({', '.join(told)})"
    return "".join(f" ({kind})" for kind in kinds if kind != "Parquet")


def _changed_files(receipts: list[Receipt]) -> str:
    changed = len({receipt.source_uri for receipt in receipts if receipt.source_changed})
    if not changed:
        return ""
    return (
        f", but for {changed:,} of the files, replaced after the run was enqueued and read as they were then "
        "(`source_changed` in the manifest)"
    )


def _hub_dataset(spec: RunSpec) -> str | None:
    """The dataset on the Hub that the run reads."""
    found = HUB_DATASET.match(spec.input_uris[0])
    return found[1] if found else None


def _how_to_load(spec: RunSpec) -> str:
    output = HUB_DATASET.match(spec.output_uri)
    if output is None:
        return ""
    return f"""
```python
from datasets import load_dataset

kept = load_dataset("{output[1]}", split="train", streaming=True)
```
"""


def _scores(spec: RunSpec, receipts: list[Receipt]) -> str:
    tables = {column: score_table(histogram) for column, histogram in histograms_of(spec, receipts).items()}
    return "".join(_histogram(column, text) for column, text in tables.items() if text)


def _histogram(column: str, text: str) -> str:
    return f"""
## Scores in `{column}`

Rows of the source by score. The last column is the share with the score at the left edge or more, whatever else a filter asks:

```text
{text}
```
"""


def _share(part: int, whole: int) -> str:
    return f" ({part / whole:.1%})" if whole else ""


def _columns(spec: RunSpec) -> str:
    lines = [line for scoring in spec.scorings for line in _added_columns(scoring, has_filter=spec.where is not None)]
    if spec.row_columns:
        shard, row = map(cell, spec.row_columns)
        lines.append(
            f"- {shard} and {row}: the shard of the source that the row is from, and its place in the file, from 0."
        )
    return "\n".join(lines)


def _added_columns(scoring: Scoring, *, has_filter: bool) -> list[str]:
    raw = "raw logit" if is_classifier(scoring.model) else "score"
    made = {"none": raw, "sigmoid": "logit through a sigmoid", "softmax": "probability by softmax"}
    kind, column = made[scoring.function_to_apply], scoring.score_column
    of_label = f" of the label {scoring.labels[0]}" if scoring.zero_shot else ""
    compared = " The filter compares this value, not a rounded one." if has_filter else ""
    lines = [f"- `{column}`: the model's {kind}{of_label}, float32.{compared}"]
    if scoring.outputs > 1:
        lines[0] = f"- `{column}`: the highest score of the {scoring.outputs} labels, float32, each a {kind}."
        lines.append(f"- `{scoring.label_column}`: the label with that score, of: {', '.join(scoring.labels)}.")
    for name, label in zip(scoring.label_score_columns, scoring.labels, strict=False):
        lines.append(f"- `{name}`: the {kind} of the label {label}.")
    if scoring.int_score:
        lines.append(f"- `{scoring.int_score_column}`: the score clipped to 0…5 and rounded, as in FineWeb-Edu.")
    return lines


def _join(spec: RunSpec) -> str:
    if not spec.row_columns:
        return ""
    return f" A kept row has the same in {' and '.join(map(cell, spec.row_columns))}."


# What the dataset card says of the models: which text each of them scored, where, and how close its scores are to float32.

HUB_DATASET = re.compile(r"hf://datasets/([^/@]+/[^/@]+)")
_NAMES = ("Model", "Scored text", "Zero-shot", "Scores from", "Scored in", "Against float32")  # of rows, in this order


def model_rows(spec: RunSpec, receipts: list[Receipt]) -> str:
    """The rows of the card's table about the model, if there is one: each with the end of its line."""
    if len(spec.scorings) > 1:
        return ""
    return "".join(f"| {name} | {value} |\n" for name, value in _said_of(spec, 0, receipts).items())


def models_section(spec: RunSpec, receipts: list[Receipt]) -> str:
    """A table with a column for each model, if there are several."""
    if len(spec.scorings) == 1:
        return ""
    said = [_said_of(spec, place, receipts) for place in range(len(spec.scorings))]
    names = [name for name in _NAMES if any(name in one for one in said)]
    rows = [("", *(cell(scoring.score_column) for scoring in spec.scorings)), ("---",) * (len(said) + 1)]
    rows += [(name, *(one.get(name, "") for one in said)) for name in names]
    return "\n## Models\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def kinds_of_models(spec: RunSpec) -> str:
    """Such as `a text classifier`, or `2 text classifiers and a zero-shot classifier`."""
    kinds = Counter(map(_kind, spec.scorings))
    return " and ".join(f"a {kind}" if count == 1 else f"{count} {kind}s" for kind, count in kinds.items())


def is_classifier(model: Model) -> bool:
    return model.scorer == SEQUENCE_CLASSIFIER


def cell(text: str) -> str:
    """Text as code in a table, where a bar or the end of a line would end the cell."""
    return f"`{' '.join(text.split())}`".replace("|", "\\|")


def _kind(scoring: Scoring) -> str:
    if scoring.zero_shot:
        return "zero-shot classifier"
    return "text classifier" if is_classifier(scoring.model) else "scorer"


def _said_of(spec: RunSpec, place: int, receipts: list[Receipt]) -> dict[str, str]:
    """The table's rows about a scoring, by their names."""
    scoring = spec.scorings[place]
    said = {
        "Model": f"{_model(scoring.model)} at revision `{scoring.model.revision}`{_of_kind(scoring.model)}",
        "Scored text": _scored_text(scoring),
    }
    if scoring.zero_shot:
        alone = ", each judged by itself" if scoring.zero_shot.judges_each_alone else ""
        said["Zero-shot"] = (
            f"{cell(scoring.zero_shot.hypothesis_template)} with {counted(scoring.outputs, 'label')}{alone}"
        )
    if scoring.scores_from:
        stored = _stored(scoring.scores_from)
        return said | {"Scores from": f"{stored}, whose card says how they were computed"}
    made = [(receipt.scorings[place], receipt.provenance.device) for receipt in receipts]
    said["Scored in"] = ", ".join(sorted({f"{way.format_told} on {device} ({way.backend})" for way, device in made}))
    if is_classifier(scoring.model):
        said["Against float32"] = _parity([way.parity for way, _ in made], has_filter=spec.where is not None)
    return said


def _scored_text(scoring: Scoring) -> str:
    read = (
        cell(scoring.text_template.replace("\n", "\\n"))
        if scoring.text_template
        else " and ".join(map(cell, scoring.text_columns))
    )
    read += f" paired with {cell(scoring.text_pair_column)}" if scoring.text_pair_column else ""
    limit = f", at most {scoring.max_tokens:,} tokens" if scoring.max_tokens else ""
    passages = (
        f", in passages ({scoring.passages}), whose logits are pooled by {scoring.pool}"
        if scoring.passages != "head"
        else ""
    )
    return f"{read}{limit}{passages}"


def _stored(scores_from: Model) -> str:
    name = disclosed_model(scores_from)
    dataset = HUB_DATASET.match(name)
    return f"[{dataset[1]}](https://huggingface.co/datasets/{dataset[1]})" if dataset else cell(name)


def _model(model: Model) -> str:
    name = disclosed_model(model)
    is_on_hub = is_classifier(model) and not model.is_folder
    return f"[{name}](https://huggingface.co/{name})" if is_on_hub else cell(name)


def _of_kind(model: Model) -> str:
    return "" if is_classifier(model) else f" of the scorer `{model.scorer}`"


def _parity(found: list[Parity | None], *, has_filter: bool) -> str:
    """The worst of what the workers found when they started."""
    tried = [parity for parity in found if parity]
    if not tried:
        return "not tried"
    texts = counted(min(parity.rows for parity in tried), "sample text")
    all_of_them, most = (
        f"{max(errors):.2g}" for errors in zip(*((p.max_error, p.p999_error) for p in tried), strict=True)
    )
    closer = f", 99.9 % of them within {most}" if most != all_of_them else ""
    return f"logits of {texts} within {all_of_them}{closer}{_verdicts(tried) if has_filter else ''}"


def _verdicts(tried: list[Parity]) -> str:
    judged = [(parity.flipped_share, parity.rows) for parity in tried if parity.flipped_share is not None]
    if not judged:
        return ""
    share, rows = max(judged)
    return f"; {round(share * rows):,} of {counted(rows, 'text')} on the other side of the filter"
