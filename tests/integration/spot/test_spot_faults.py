"""A metadata service that fails, lies or is silent costs one warning, and a later notice is still seen."""

import logging

import pytest

from support.metadata_services import GcpService, Handler, Misbehaviour, Reply, Service, polled, watching
from support.waiting import wait_until


def fails(handler: Handler) -> None:
    handler.answer(Reply(500, "out of order"))


def speaks_garbage(handler: Handler) -> None:
    handler.answer(Reply(body='<html lang="en">Please log in.</html>'))


def answers_json_of_another_shape(handler: Handler) -> None:
    handler.answer(Reply(body='["TRUE"]'))


def hangs_up(handler: Handler) -> None:
    handler.close_connection = True


def redirects(handler: Handler) -> None:
    handler.answer(Reply(307, headers={"Location": f"{handler.server.address}/elsewhere"}))


def says_nothing(handler: Handler) -> None:
    handler.server.closing.wait(60)


class TestBrokenService:
    @pytest.mark.parametrize("fault", [fails, speaks_garbage, answers_json_of_another_shape, hangs_up, redirects])
    def test_a_fault_costs_one_warning_and_a_later_notice_is_seen(
        self, cloud: str, service: Service, fault: Misbehaviour, caplog: pytest.LogCaptureFixture
    ) -> None:
        service.misbehaviour = fault

        with watching(cloud, service.address) as watched:
            polled(service, times=6)
            warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
            service.misbehaviour = None
            service.give_notice()
            watched.notice()

        assert len(warnings) == 1
        assert f"The metadata service of {cloud} fails; polling continues" in warnings[0]
        assert ("GET", "/elsewhere") not in service.asked

    def test_a_silent_service_is_given_up_after_two_seconds_and_a_later_notice_is_seen(
        self, gcp: GcpService, caplog: pytest.LogCaptureFixture
    ) -> None:
        gcp.misbehaviour = says_nothing

        with watching("gcp", gcp.address) as watched:
            wait_until(lambda: caplog.messages, description="a warning", seconds=20)
            gcp.misbehaviour = None
            gcp.give_notice()
            watched.notice()
