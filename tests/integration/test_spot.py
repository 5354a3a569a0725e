"""A spot notice of each cloud is seen once it is given, with the time left. A service that fails does not end the watch."""

import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from support.metadata_services import SERVICES, AwsService, AzureService, an_event, polled, serving, watching


@pytest.mark.parametrize("cloud", SERVICES)
def test_a_notice_is_seen_after_it_is_given_and_not_before(cloud: str, caplog: pytest.LogCaptureFixture) -> None:
    with serving(cloud) as service:
        watched = watching(cloud, service.address)
        polled(service)
        seen_before = list(watched.notices)
        service.give_notice()
        watched.has_ended()

    assert seen_before == []
    assert watched.notices == [{"aws": 120, "gcp": 30, "azure": 30}[cloud]], "the promise, since it says no time"
    assert caplog.text.count("The cloud reclaims this machine in") == 1
    changing = {(method, path) for method, path in service.asked if method != "GET"}
    assert changing <= {("PUT", "/latest/api/token")}, "no event is acknowledged"


@pytest.mark.parametrize("cloud", SERVICES)
def test_a_failing_service_costs_one_warning_and_no_later_notice(cloud: str, caplog: pytest.LogCaptureFixture) -> None:
    with serving(cloud) as service:
        service.fails = True
        watched = watching(cloud, service.address)
        polled(service)
        warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        service.fails = False
        service.give_notice()
        watched.seconds_left()

    assert len(warnings) == 1
    assert f"The metadata service of {cloud} fails; polling continues" in warnings[0]


@pytest.mark.parametrize(("time", "seconds"), [("90 s", 90), ("2017-09-18T08:22:00Z", 0), ("soon", 120)])
def test_the_time_that_is_left_on_aws_is_that_of_the_notice(time: str, seconds: float) -> None:
    with serving("aws") as aws:
        assert isinstance(aws, AwsService)
        aws.give_notice(time=f"{in_seconds(90):%Y-%m-%dT%H:%M:%SZ}" if time == "90 s" else time)
        watched = watching("aws", aws.address)
        assert watched.seconds_left() == pytest.approx(seconds, abs=10)


def test_events_of_other_machines_and_other_kinds_are_ignored_on_azure() -> None:
    with serving("azure") as azure:
        assert isinstance(azure, AzureService)
        others = [an_event(Resources=["gpu_70", "gpu"]), an_event(EventType="Freeze")]
        azure.events = others
        watched = watching("azure", azure.address)
        polled(azure)
        seen_before = list(watched.notices)
        azure.events = [*others, an_event(NotBefore=format_datetime(in_seconds(25), usegmt=True))]
        seconds_left = watched.seconds_left()

    assert seen_before == []
    assert seconds_left == pytest.approx(25, abs=10)


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("gcp") as proxy, serving("gcp") as gcp:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.address)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        gcp.give_notice()

        watched = watching("gcp", gcp.address)
        watched.seconds_left()

    assert proxy.asked == []


def in_seconds(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)
