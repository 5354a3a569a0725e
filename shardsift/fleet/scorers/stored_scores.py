"""The light half of the scorer `stored-scores`, which reads the scores of a published run instead of a model."""

from shardsift.fleet.errors import UsageError
from shardsift.fleet.run.model import Model
from shardsift.fleet.scorers.kinds import STORED_SCORES, ScorerKind
from shardsift.fleet.storage.manifest import scores_revision
from shardsift.fleet.storage.open_output import Published, manifest_at, published_at
from shardsift.fleet.storage.output import MANIFEST_PATH


def resolve_stored(name: str, revision: str | None) -> Model:
    """Return a model that stands for the run published at a URI. Its revision is a digest of the run's scores.

    `name` is a folder, a bucket or `hf://datasets/…`. Raises UsageError if no run is published there, if its
    manifest is damaged, or if its scores have another digest than `revision`.
    """
    return model_of(published_run(name, revision))


def model_of(published: Published) -> Model:
    labels = tuple(label for scoring in published.spec.scorings for label in scoring.labels)
    return Model(name=published.uri, revision=scores_revision(published.receipts), labels=labels, scorer=STORED_SCORES)


def published_run(uri: str, revision: str | None = None) -> Published:
    """Return the run published at a URI.

    `revision` is the digest that its scores must have, from `scores_revision`; None allows any. Raises UsageError if no run
    is published there, if its manifest is damaged, or if its scores have another digest. Raises TransientError if the
    network fails.
    """
    content = manifest_at(uri)
    if content is None:
        raise UsageError(f"No run is published at {uri}: there is no {MANIFEST_PATH}. `producer runs` lists the runs.")
    published = published_at(uri, content)
    if published is None:
        raise UsageError(
            f"The {MANIFEST_PATH} at {uri} is damaged, or another release of shardsift wrote it. "
            "The command that made the run repairs it."
        )
    if revision not in (None, scores_revision(published.receipts)):
        raise UsageError(
            f"What is published at {uri} has changed since this run was enqueued: repeat the `producer refilter`."
        )
    return published


KIND = ScorerKind(
    resolve=resolve_stored, loader="shardsift.worker.shard.stored_scores:load_stored_scores", uses_gpu=False
)
