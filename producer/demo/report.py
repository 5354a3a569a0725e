"""What the demo says at its end."""

from pathlib import Path

from producer.demo.command import DemoResult


def demo_report(folder: Path, training: dict[str, float], result: DemoResult) -> str:
    counts = result.status.counts
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    held_out = f"{training['held_out_accuracy']:.1%} of {training['held_out_rows']:.0f} held-out labelled texts"
    samples = [("kept", line) for line in result.kept] + [("dropped", line) for line in result.dropped]
    lines = [
        "",
        f"{counts.rows_in:,} rows in, {counts.rows_kept:,} kept, {counts.rows_dropped:,} dropped, "
        f"{counts.rows_errored:,} errored; {result.status.rows_per_second:,.0f} rows/s",
        "",
        *(f"  {fate:<8}{score:6.2f}  {excerpt}" for fate, (score, excerpt) in samples),
        "",
        f"Right side of the threshold: {result.accuracy:.1%} of these rows, none of whose paragraphs trained the head",
        f"                             {held_out}",
        "This shows that the machinery works; it says nothing about the quality of fineweb-edu-classifier.",
        "",
        f"Shards        {shown}/shards",
        f"Classifier    {shown}/classifier",
        f"Kept rows     {shown}/kept/data",
        f"All scores    {shown}/kept/scores",
        f"Card          {shown}/kept/README.md",
        f"Logs          {shown}/state/logs",
        "",
        "Go on with your own data:  producer run --help",
    ]
    return "\n".join(lines)
