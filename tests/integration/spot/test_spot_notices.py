"""A spot notice of each cloud is seen once it is given, with the time that is left. Nothing is acknowledged."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from support.metadata_services import AwsService, AzureService, Service, an_event, polled, watching


class TestEachCloud:
    def test_a_notice_is_seen_after_it_is_given_and_not_before(self, cloud: str, service: Service) -> None:
        with watching(cloud, service.address) as watched:
            polled(service, times=10)
            seen_before = list(watched.notices)

            service.give_notice()
            notice = watched.notice()

        assert seen_before == []
        assert notice.cloud == cloud
        assert notice.seconds_left == {"aws": 120, "gcp": 30, "azure": 30}[cloud], "the promise, since it says no time"
        assert notice.action == ("terminate" if cloud == "aws" else "preempt")

    def test_no_event_is_acknowledged_and_nothing_else_is_changed(self, cloud: str, service: Service) -> None:
        service.give_notice()

        with watching(cloud, service.address) as watched:
            watched.notice()

        assert {(method, path) for method, path in service.asked if method != "GET"} <= {("PUT", "/latest/api/token")}


class TestAws:
    @pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
    def test_action_and_time_are_those_of_the_notice(self, aws: AwsService, action: str) -> None:
        aws.give_notice(action=action, time=in_seconds(90).strftime("%Y-%m-%dT%H:%M:%SZ"))

        with watching("aws", aws.address) as watched:
            notice = watched.notice()

        assert notice.action == action
        assert notice.seconds_left == pytest.approx(90, abs=10)

    @pytest.mark.parametrize("time", ["soon", "2017-09-18T08:22:00", ""])
    def test_a_time_that_cannot_be_read_hides_no_notice(self, aws: AwsService, time: str) -> None:
        aws.give_notice(time=time)

        with watching("aws", aws.address) as watched:
            assert watched.notice().seconds_left == 120


class TestAzure:
    @pytest.mark.parametrize("kind", ["Preempt", "Terminate"])
    def test_kind_and_time_are_those_of_the_event(self, azure: AzureService, kind: str) -> None:
        azure.events = [an_event(EventType=kind, NotBefore=format_datetime(in_seconds(25), usegmt=True))]

        with watching("azure", azure.address) as watched:
            notice = watched.notice()

        assert notice.action == kind.lower()
        assert notice.seconds_left == pytest.approx(25, abs=10)

    def test_an_event_that_has_started_leaves_no_time(self, azure: AzureService) -> None:
        azure.events = [an_event(EventStatus="Started")]

        with watching("azure", azure.address) as watched:
            assert watched.notice().seconds_left == 0

    @pytest.mark.parametrize(
        "event", [an_event(Resources=["gpu_70", "gpu"]), an_event(EventType="Freeze"), an_event(EventType="Reboot")]
    )
    def test_another_machines_events_and_pauses_are_ignored(
        self, azure: AzureService, event: dict[str, object]
    ) -> None:
        azure.events = [event]

        with watching("azure", azure.address) as watched:
            polled(azure, times=6)
            seen_before = list(watched.notices)
            azure.events = [event, an_event(Resources=["gpu_6", "GPU_7"])]
            watched.notice()

        assert seen_before == []


def in_seconds(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)
