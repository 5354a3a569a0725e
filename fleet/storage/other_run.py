"""The refusal of an output that another run has, with what makes it another."""

from dataclasses import replace

from fleet.disclosure import disclosed_spec
from fleet.errors import UsageError
from fleet.spec import RunSpec
from fleet.spec_difference import differences


def other_run(uri: str, run_id: str, there: RunSpec | None, here: RunSpec) -> UsageError:
    """`there` is what the other run's output discloses of its spec, if it can be read."""
    return UsageError(
        f"The output {uri} holds the data of another run, {run_id}.{_difference(there, here)} "
        "Choose another --output, or repeat that run's options to go on with it."
    )


def _difference(there: RunSpec | None, here: RunSpec) -> str:
    if there is None:
        return ""
    as_disclosed = disclosed_spec(replace(here, publish_paths=there.publish_paths))
    found = differences(there, replace(as_disclosed, publish_paths=here.publish_paths))
    return f" What differs is {'; '.join(found) or 'where the input or the model lies'}."
