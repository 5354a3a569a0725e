"""A metadata service of each cloud."""

from collections.abc import Iterator

import pytest

from support.metadata_services import SERVICES, Service, serving


@pytest.fixture(params=SERVICES)
def cloud(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def service(cloud: str) -> Iterator[Service]:
    with serving(cloud) as service:
        yield service


@pytest.fixture
def aws() -> Iterator[Service]:
    with serving("aws") as service:
        yield service


@pytest.fixture
def gcp() -> Iterator[Service]:
    with serving("gcp") as service:
        yield service


@pytest.fixture
def azure() -> Iterator[Service]:
    with serving("azure") as service:
        yield service
