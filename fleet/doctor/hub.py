"""The checks of the Hub: it answers, and the token here may do what is needed."""

from huggingface_hub import constants

from fleet.doctor.checks import Check, Verdict, ok, warning, wrong
from fleet.errors import UsageError
from fleet.storage.hub_access import FINE_GRAINED, HubToken, check_hub_answers, hub_token

_NETWORK = "Check the network and HF_ENDPOINT; inputs, models and outputs may also be folders of this machine."
_NEW_TOKEN = "Make a token with write access at https://huggingface.co/settings/tokens, and set HF_TOKEN."


def hub_checks(*, is_needed: bool, output_repo: str | None = None) -> list[Check]:
    """Without `is_needed`, a Hub that does not answer is only a warning. `output_repo` is a dataset to be written."""
    return [
        Check(name="hub", look=lambda: _answers(is_needed=is_needed), mend=_NETWORK),
        Check(name="hub token", look=lambda: _token(output_repo), mend=_NEW_TOKEN, needs=("hub",)),
    ]


def _answers(*, is_needed: bool) -> Verdict:
    if constants.HF_HUB_OFFLINE and not is_needed:
        return warning(
            "HF_HUB_OFFLINE is set: the Hub is not asked, and nothing can be published on it.",
            "Unset it, if that is not intended.",
        )
    try:
        check_hub_answers()
    except UsageError as error:
        return wrong(str(error), _NETWORK) if is_needed else warning(str(error), _NETWORK)
    return ok("The Hub answers.")


def _token(output_repo: str | None) -> Verdict:
    token = hub_token()
    if token is None:
        says = "There is no Hugging Face token: only public datasets and models can be read, and none written."
        return wrong(says, _NEW_TOKEN) if output_repo else warning(says, _NEW_TOKEN)
    if output_repo and not token.may_write(output_repo):
        return wrong(f"{_described(token)} It may not write to {output_repo}.", _NEW_TOKEN)
    return ok(_described(token)) if token.writable else warning(_described(token), _NEW_TOKEN)


def _described(token: HubToken) -> str:
    role = "fine-grained" if token.role == FINE_GRAINED else token.role
    rights = f"it may write to {', '.join(sorted(token.writable))}" if token.writable else "it may only read"
    return f"The token is of {token.user}, role {role}: {rights}."
