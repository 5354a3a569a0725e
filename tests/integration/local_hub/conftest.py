"""The local Hub, with LFS and with xet, and its client."""

from support.hub_client import api, connect, home, hub

__all__ = ["api", "connect", "home", "hub"]
