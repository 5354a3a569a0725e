"""All checks of `producer doctor`, cheap ones first."""

from collections.abc import Sequence

from fleet.doctor.checks import Check, Verdict, ok
from fleet.doctor.disks import scratch_disk_check, state_disk_check
from fleet.doctor.hub import hub_checks
from fleet.doctor.redis_server import redis_checks
from fleet.ledger.rights import PRODUCER
from fleet.settings import Settings
from producer.doctor.fleet_state import fleet_checks
from producer.doctor.places import input_check, output_check
from producer.local.redis_server import find_redis_server

_HUB = "hf://"
_HUB_DATASET = "hf://datasets/"


def producer_checks(
    settings: Settings, *, input_uris: Sequence[str] = (), output_uri: str | None = None
) -> list[Check]:
    """The checks for a run with these places, or for any run if none is named."""
    places = [*input_uris, *([output_uri] if output_uri else [])]
    is_hub_needed = any(uri.startswith(_HUB) for uri in places)
    output_repo = output_uri.removeprefix(_HUB_DATASET) if output_uri and output_uri.startswith(_HUB) else None
    return [
        state_disk_check(settings),
        scratch_disk_check(settings),
        *_redis_checks(settings),
        *(input_check(uri) for uri in input_uris if not uri.startswith(_HUB)),
        *([output_check(output_uri)] if output_uri and not output_repo else []),
        *hub_checks(is_needed=is_hub_needed, output_repo=output_repo),
        *(input_check(uri) for uri in input_uris if uri.startswith(_HUB)),
        *([output_check(output_uri)] if output_uri and output_repo else []),
    ]


def _redis_checks(settings: Settings) -> list[Check]:
    if settings.redis_url is None:
        return [Check(name="redis", look=_own_server, mend="Install one: pip install 'shardsift[local]'.")]
    return [*redis_checks(settings, PRODUCER), *fleet_checks(settings)]


def _own_server() -> Verdict:
    return ok(f"REDIS_URL is not set: `producer run` starts {find_redis_server()}. A fleet needs REDIS_URL.")
