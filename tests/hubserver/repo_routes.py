"""Routes for whole repositories: create, delete, info, branches, history. Also whoami and the check of a card."""

import re
from typing import Any

import yaml

from hubserver.access import TYPES, Hub, require_write, url_prefix
from hubserver.errors import HubError, invalid_token
from hubserver.file_routes import timestamp
from hubserver.repos import MAIN, PULL_REQUEST, BlobStore, Commit, File, Operation, Repo
from hubserver.wire import Call, Reply, Route, json_reply

GITATTRIBUTES = ".gitattributes"


class RepoRoutes:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def routes(self) -> list[Route]:
        return [
            ("GET", "/api/whoami-v2", self.whoami),
            ("POST", "/api/validate-yaml", self.validate_card),
            ("POST", "/api/repos/create", self.create),
            ("DELETE", "/api/repos/delete", self.delete),
            ("GET", "/api/{types}/{repo_id}", self.info),
            ("GET", "/api/{types}/{repo_id}/revision/{revision}", self.info),
            ("GET", "/api/{types}/{repo_id}/auth-check/write", self.check_write),
            ("GET", "/api/{types}/{repo_id}/refs", self.refs),
            ("POST", "/api/{types}/{repo_id}/branch/{branch}", self.create_branch),
            ("DELETE", "/api/{types}/{repo_id}/branch/{branch}", self.delete_branch),
            ("GET", "/api/{types}/{repo_id}/commits/{revision}", self.history),
        ]

    def whoami(self, call: Call) -> Reply:
        if call.grant.name is None:
            raise invalid_token()
        token: dict[str, Any] = {"displayName": call.grant.name, "role": "write" if call.grant.write else "read"}
        if call.grant.scopes is not None:
            scoped = [
                {"entity": {"type": "user", "name": name}, "permissions": ["repo.content.read", "repo.write"]}
                for name in call.grant.scopes
            ]
            token |= {"role": "fineGrained", "fineGrained": {"global": [], "scoped": scoped}}
        auth = {"type": "access_token", "accessToken": token}
        return json_reply({"type": "user", "name": call.grant.name, "orgs": [], "auth": auth})

    def validate_card(self, call: Call) -> Reply:
        try:
            card_metadata(call.json()["content"])
        except yaml.YAMLError as error:
            return json_reply({"errors": [{"message": f"bad YAML: {error}"}], "warnings": []}, status=400)
        return json_reply({"errors": [], "warnings": []})

    def create(self, call: Call) -> Reply:
        require_write(call.grant)
        body = call.json()
        repo_type, repo_id = body.get("type", "model"), requested_id(call, body)
        url = {"url": f"{self._hub.endpoint}/{url_prefix(repo_type)}{repo_id}"}
        try:
            repo = self._hub.repos.create(repo_type, repo_id, private=is_private(body))
        except HubError as error:
            return json_reply({"error": error.message, **url}, status=error.status)
        add_initial_commit(repo, self._hub.blobs, author=call.grant.name or "")
        return json_reply(url)

    def delete(self, call: Call) -> Reply:
        require_write(call.grant)
        body = call.json()
        self._hub.repos.delete(body.get("type", "model"), requested_id(call, body))
        return json_reply({})

    def info(self, call: Call, types: str, repo_id: str, revision: str = MAIN) -> Reply:
        repo = self._hub.readable(call.grant, TYPES[types], repo_id)
        commit = repo.commit_at(revision)
        return json_reply(
            {
                "id": repo_id,
                "sha": commit.oid,
                "lastModified": timestamp(commit.date),
                "private": repo.private,
                "cardData": self._card_data(commit),
                "siblings": [{"rfilename": path} for path in sorted(commit.tree)],
            }
        )

    def _card_data(self, commit: Commit) -> Any:
        readme = commit.tree.get("README.md")
        return card_metadata(self._hub.blobs.read(readme.sha256).decode(errors="replace")) if readme else None

    def check_write(self, call: Call, types: str, repo_id: str) -> Reply:
        self._hub.writable(call.grant, TYPES[types], repo_id)
        return json_reply({})

    def refs(self, call: Call, types: str, repo_id: str) -> Reply:
        branches = self._hub.readable(call.grant, TYPES[types], repo_id).branches
        listed = [
            {"name": name, "ref": name if name.startswith(PULL_REQUEST) else f"refs/heads/{name}", "targetCommit": oid}
            for name, oid in sorted(branches.items())
        ]
        heads = [entry for entry in listed if not entry["name"].startswith(PULL_REQUEST)]
        asked = [entry for entry in listed if entry not in heads and "include_prs" in call.query]
        return json_reply({"branches": heads, "converts": [], "tags": [], "pullRequests": asked})

    def create_branch(self, call: Call, types: str, repo_id: str, branch: str) -> Reply:
        repo = self._hub.writable(call.grant, TYPES[types], repo_id)
        repo.create_branch(branch, call.json().get("startingPoint", MAIN))
        return json_reply({})

    def delete_branch(self, call: Call, types: str, repo_id: str, branch: str) -> Reply:
        self._hub.writable(call.grant, TYPES[types], repo_id).delete_branch(branch)
        return json_reply({})

    def history(self, call: Call, types: str, repo_id: str, revision: str) -> Reply:
        commits = self._hub.readable(call.grant, TYPES[types], repo_id).history(revision)
        return json_reply(
            [
                {
                    "id": commit.oid,
                    "title": commit.title,
                    "message": "",
                    "authors": [{"user": commit.author}],
                    "date": timestamp(commit.date),
                }
                for commit in commits
            ]
        )


def card_metadata(content: str) -> Any:
    """Parse the YAML between the `---` lines at the top of a card. Returns None if there is no such block."""
    match = re.match(r"---\s*\n(.*?)^---\s*$", content.replace("\r\n", "\n"), re.DOTALL | re.MULTILINE)
    return yaml.safe_load(match[1]) if match else None


def requested_id(call: Call, body: dict[str, Any]) -> str:
    return f"{body.get('organization') or call.grant.name}/{body['name']}"


def is_private(body: dict[str, Any]) -> bool:
    return bool(body.get("private")) or body.get("visibility") == "private"


def add_initial_commit(repo: Repo, blobs: BlobStore, *, author: str) -> None:
    """Commit a `.gitattributes`, as the Hub does in a new repository."""
    content = b"*.parquet filter=lfs diff=lfs merge=lfs -text\n*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
    blobs.write(content)
    added = Operation(path=GITATTRIBUTES, added=File.regular(content))
    repo.commit(MAIN, [added], title="initial commit", author=author)
