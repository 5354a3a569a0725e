"""Access to Reddit: the credentials that the user has for PRAW. They are handed to PRAW, and neither stored nor shown."""

import configparser
import os
import sys
from importlib.metadata import version
from typing import Any

from praw import Reddit
from praw.config import Config

from fleet.errors import UsageError

# What PRAW reads from the environment as praw_client_id …, and otherwise from praw.ini.
_CREDENTIALS = ("client_id", "client_secret", "username", "password", "refresh_token")
_SITE = "praw_site"  # the section of praw.ini
_NEEDED = ("client_id", "client_secret")
_APPS = "https://www.reddit.com/prefs/apps"


def open_reddit() -> Reddit:
    """A client that names shardsift in its user agent. Asks Reddit nothing yet. Raises UsageError without credentials."""
    given = _in_capitals()
    try:
        config = Config(os.environ.get(_SITE) or "DEFAULT", **given)
    except (configparser.Error, ValueError) as error:  # whose message may show a line with a password
        raise UsageError(f"praw.ini cannot be used: {type(error).__name__}. Correct it, or praw_site.") from error
    if missing := [name for name in _NEEDED if not getattr(config, name)]:
        raise UsageError(
            f"Reddit asks for the credentials of an app, and there is no {' and no '.join(missing)}. Create an app of the type "
            f'"script" at {_APPS} and set praw_client_id and praw_client_secret, in the environment or in praw.ini.'
        )
    return Reddit(user_agent=_user_agent(config), check_for_updates=False, **given)


def _in_capitals() -> dict[str, Any]:
    """PRAW ignores PRAW_CLIENT_ID, a name that many use. Its own names come first."""
    named = {name: os.environ.get(f"PRAW_{name.upper()}") for name in _CREDENTIALS}
    return {name: value for name, value in named.items() if value and not os.environ.get(f"praw_{name}")}


def _user_agent(config: Config) -> str:
    """As Reddit's rules want it: platform, program, version and the user whom it can ask. PRAW adds its own version."""
    ours = f"shardsift:{version('shardsift')}"
    if config.user_agent:
        return f"{config.user_agent} {ours}"
    return f"{sys.platform}:{ours}" + (f" (by /u/{config.username})" if config.username else "")
