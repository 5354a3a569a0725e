"""Start Flower, the web UI of the fleet: read-only, with a password, our pages, and state that survives restarts."""

import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources

from celery import Celery
from flower.app import Flower
from flower.command import (
    extract_settings,
    print_banner,
    setup_logging,
    sigterm_handler,
)
from flower.options import options
from flower.urls import settings as flower_settings
from tornado.template import DictLoader

from shardsift.fleet.errors import UsageError
from shardsift.fleet.ledger import Ledger
from shardsift.fleet.ledger.connect import START_SECONDS
from shardsift.fleet.process.broker import make_app
from shardsift.fleet.process.settings import Settings, check_state_dir, read_secret
from shardsift.producer.flower.pages import add_runs_pages

_SAVE_MS = 10_000
_MAX_TASKS = 100_000  # Flower forgets the oldest tasks beyond this number; allow for all shards of a large run
_RUNTIME_BUCKETS_SECONDS = (
    "1,10,60,300,900,1800,3600,7200"  # Flower's default buckets end at 10 s, which is less than any shard takes
)
_OFFLINE_SECONDS = 600  # Flower forgets a silent worker after this; a reclaimed spot machine does not come back


def run_flower(settings: Settings, *, address: str, port: int) -> None:
    """Serve until a signal. Raises UsageError if no Redis answers or the port is taken."""
    ledger = Ledger.connect(settings, wait_seconds=START_SECONDS)
    _check_port(address, port)
    auth = settings.flower_auth if settings.flower_auth_file is None else read_secret(settings.flower_auth_file)
    if auth is None:
        auth = f"shardsift:{secrets.token_urlsafe(12)}"
        sys.stderr.write(
            f"Flower's user and password until it stops: {auth}  (choose them with SHARDSIFT_FLOWER_AUTH)\n"
        )
    check_state_dir(settings)
    celery = make_app("flower", settings)
    application = _new_application(
        celery,
        [
            f"--address={address}",
            f"--port={port}",
            "--read_only=True",
            "--persistent=True",
            f"--db={settings.state_dir / 'flower.db'}",
            f"--state_save_interval={_SAVE_MS}",
            f"--max_tasks={_MAX_TASKS}",
            f"--task_runtime_metric_buckets={_RUNTIME_BUCKETS_SECONDS}",
            f"--purge_offline_workers={_OFFLINE_SECONDS}",
            "--inspect_timeout=5000",
        ],
        auth,
    )
    add_runs_pages(application, ledger)
    _serve(application, celery)


def _new_application(celery: Celery, arguments: Sequence[str], auth: str) -> Flower:
    """Build Flower's application from command-line arguments, with our templates.

    Flower's own command would also read FLOWER_… variables and run a flowerconfig.py in the current folder.
    """
    options.parse_command_line(["flower", *arguments])
    options.basic_auth = [auth]  # not passed as an argument, because Flower splits that at commas
    extract_settings()
    setup_logging()
    return Flower(
        capp=celery, options=options, template_loader=template_loader(), compress_response=True, **flower_settings
    )


def _serve(application: Flower, celery: Celery) -> None:
    """Serve like the command `celery flower`. Returns after a signal, even if Redis is down."""
    signal.signal(signal.SIGTERM, sigterm_handler)
    port = application.start_http_server()
    print_banner(celery, ssl="ssl_options" in flower_settings, port=port)
    try:
        with suppress(KeyboardInterrupt, SystemExit):
            application.start()
    finally:
        application.stop()  # saves the state


def _check_port(address: str, port: int) -> None:
    """Raise UsageError if the port is taken. If Tornado found this out, it would leave a socket open."""
    try:
        family, *_, socket_address = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Flower does
            probe.bind(socket_address)
    except OSError as error:
        raise UsageError(
            f"Flower cannot listen on {address}:{port}: {error.strerror}. Choose another --port or --address."
        ) from error


# Templates: Flower's navigation bar with an entry for the Runs page, and our pages in Flower's layout.

_FIRST_ENTRY = '<ul class="app-nav navbar-nav">'  # our entry goes first in this list


def template_loader() -> DictLoader:
    """Return a loader of templates. `NAME` is our template if there is one, otherwise Flower's.

    `flower/NAME` is always Flower's template, with our pages in the navigation bar.
    """
    theirs, ours = _templates("flower"), _templates("shardsift.producer.flower")
    navbar = theirs["navbar.html"].replace(_FIRST_ENTRY, _FIRST_ENTRY + ours["navbar_entry.html"], 1)
    wrapped = {f"flower/{name}": text for name, text in theirs.items()} | {"flower/navbar.html": navbar}
    return DictLoader({**theirs, **ours, **wrapped})


def _templates(package: str) -> dict[str, str]:
    folder = resources.files(package).joinpath("templates")
    return {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".html")}
