"""A Hugging Face Hub for tests: the real client talks to it over loopback HTTP.

Knows nothing of shardsift. Read `server.py` first; each other file is one part of the Hub.
"""

from hubserver.repos import Commit, Operation
from hubserver.server import HubServer
from hubserver.traffic import Request

__all__ = ["Commit", "HubServer", "Operation", "Request"]
