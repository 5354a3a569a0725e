"""Record which branches of the ledger's scripts are taken: each `then`, `else` and `do` gets a call that notes it in
Redis.
"""

import re

TAKEN = "test:branches"
_BRANCH = re.compile(r"'[^']*'|--.*|\b(then|else|do)\b")  # not in texts and comments
_NOTE = f"local function note_branch(branch) redis.call('SADD', '{TAKEN}', branch) end\n"


def with_notes(script: str, branches: dict[str, int]) -> str:
    """Add a call to each branch of a Lua script. The call notes the number of its branch in Redis.

    `branches` gets the text of each branch with its number.
    """
    lines = script.splitlines()
    for place, line in enumerate(lines):
        parts, end = [], 0
        for found in _BRANCH.finditer(line):
            if found[1]:
                what = f"{line[: found.end()].strip()} … {(line[found.end() :] or ''.join(lines[place + 1 :][:1])).strip()}"
                parts.append(f"{line[end : found.end()]} note_branch({branches.setdefault(what, len(branches))})")
                end = found.end()
        lines[place] = "".join([*parts, line[end:]])
    return _NOTE + "\n".join(lines)
