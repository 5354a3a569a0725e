"""Settings of a machine or a process. They are read from the environment only here.

A setting must not change what a run publishes; such an option belongs in the RunSpec.
"""

import os
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import platformdirs
from pydantic import AliasChoices, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shardsift.fleet.errors import UsageError
from shardsift.fleet.process.redis_address import RedisAddress, redis_address
from shardsift.fleet.run.choices import (
    DEFAULT_MODEL,
    DEVICES,
    BackendName,
    Dtype,
    LogFormat,
    SpotCloud,
    WayToShard,
    is_device,
)
from shardsift.fleet.run.model import SEQUENCE_CLASSIFIER, model_names, with_revision


class Process(StrEnum):
    """The kind of process that reads a setting, in the metadata of its field.

    docs/settings.md groups the settings by it.
    """

    PRODUCER = "producer"  # a command of `producer`, without the finalizer
    FINALIZER = "finalizer"
    WORKER = "worker"  # a command of `worker`
    SEVERAL = "several"


class Settings(BaseSettings):
    """The settings of a process. Each is read from the environment variable `SHARDSIFT_<FIELD>`, or from its alias."""

    model_config = SettingsConfigDict(
        env_prefix="SHARDSIFT_",
        extra="ignore",
        populate_by_name=True,
        frozen=True,
        env_ignore_empty=True,
        allow_inf_nan=False,
    )

    redis_url: Annotated[str | None, NoDecode, Process.SEVERAL] = Field(
        None,
        validation_alias=AliasChoices("REDIS_URL", "SHARDSIFT_REDIS_URL"),
        description="The fleet's Redis or Valkey: redis://, rediss:// or unix://. Unset: `producer run` starts its own.",
    )
    redis_password_file: Annotated[Path | None, Process.SEVERAL] = Field(
        None,
        validation_alias=AliasChoices("REDIS_PASSWORD_FILE", "SHARDSIFT_REDIS_PASSWORD_FILE"),
        description="File with the Redis password, if REDIS_URL contains none.",
    )
    redis_is_embedded: bool = Field(False, exclude=True, description="Set by `producer run` for its own Redis.")
    only_run: str | None = Field(None, exclude=True, description="Set by `producer run`: leave other runs alone.")
    scorer: Annotated[str, Process.WORKER] = Field(
        SEQUENCE_CLASSIFIER,
        description="Kind of scorer. Unset: sequence-classifier if a model is named, otherwise what each run asks for.",
    )
    model: Annotated[str, Process.WORKER] = Field(
        DEFAULT_MODEL,
        description="Serve this model only: a Hub name, with @REVISION for one revision of it, or a folder; or all models of a "
        "run, with commas between them or as a JSON list. Unset: serve what open runs need; `worker tune` takes "
        "fineweb-edu-classifier.",
    )
    dtype: Annotated[Dtype, Process.WORKER] = Field(
        "auto",
        description="Serve runs in this number format only: float32, bfloat16, float16 or auto. Unset: that of each run; "
        "`worker tune` takes auto.",
    )
    first_dtypes: dict[str, str] = Field(
        {}, exclude=True, description="Set by a worker: the format that `auto` tries first, for each model."
    )
    device: Annotated[str, Process.WORKER] = Field(
        "auto",
        description=f"Where to score: {DEVICES}. auto: a GPU if there is one.",
    )
    max_batch_tokens: Annotated[int, Process.WORKER] = Field(
        0,
        ge=0,
        description="Tokens per batch, including padding. "
        "0: the number that `worker tune` found best here, else 32,768 on a GPU and 2,048 on a CPU.",
    )
    backend: Annotated[BackendName, Process.WORKER] = Field(
        "auto",
        description="How batches run. auto: the fastest way that gives the model's scores here; packed: without padding, and not "
        "compiled for a GPU; padded: works for any model.",
    )
    compile: Annotated[bool, Process.WORKER] = Field(
        False, description="Use torch.compile: starts more slowly, then scores more rows per second."
    )
    gpus_per_worker: Annotated[int, Process.WORKER] = Field(
        1,
        ge=1,
        description="GPUs over which a worker divides its model. Needs shardsift[sharded]. With SHARDSIFT_DEVICE=cpu: the number "
        "of processes.",
    )
    sharding: Annotated[WayToShard, Process.WORKER] = Field(
        "auto",
        description="How the model is divided: by layers, for any model; by tensor, for some families; auto: tensor "
        "if that works.",
    )
    parity_rows: Annotated[int | None, Process.WORKER] = Field(
        None,
        ge=0,
        description="Sample texts of the parity gate. Unset: 1,024 on a GPU, 16 on a CPU or on several GPUs. 0: no gate.",
    )
    threads: Annotated[int, Process.WORKER] = Field(
        0, ge=0, description="CPU threads for the model of a worker. 0: its share of the cores."
    )
    spot_notice: Annotated[SpotCloud | None, Process.WORKER] = Field(
        None,
        description="Stop in time when this cloud reclaims the spot machine: aws, gcp or azure. Unset: none.",
    )
    spot_notice_address: Annotated[str | None, Process.WORKER] = Field(
        None, description="Address of the metadata service, for tests and proxies. Unset: the cloud's own."
    )
    lease_seconds: Annotated[float, Process.SEVERAL] = Field(
        60.0,
        gt=0,
        description="Time after which another worker may take a shard whose worker stopped renewing the lease.",
    )
    sweep_seconds: Annotated[float, Process.SEVERAL] = Field(
        15.0, gt=0, description="Time between two sweeps of the ledger by a finalizer."
    )
    resend_seconds: Annotated[float, Process.SEVERAL] = Field(
        60.0, gt=0, description="Time after which a message that is missing from the queue is sent again."
    )
    wave_shards: Annotated[int, Process.FINALIZER] = Field(
        100, gt=0, description="Finished shards that are saved on the Hub in one wave while a run goes on."
    )
    wave_seconds: Annotated[float, Process.FINALIZER] = Field(
        3600.0,
        gt=0,
        le=43_200,
        description="Time after which finished shards are saved even if the wave is not full. The Hub drops uncommitted "
        "files after about a day.",
    )
    log_format: Annotated[LogFormat, Process.SEVERAL] = Field(
        "text", description="Log lines of workers and finalizers: text, or json with a field for each fact."
    )
    metrics_port: Annotated[int | None, Process.FINALIZER] = Field(
        None,
        gt=0,
        le=65535,
        description="Port on which a finalizer serves Prometheus' metrics of the fleet. Unset: none.",
    )
    metrics_address: Annotated[str, Process.FINALIZER] = Field(
        "127.0.0.1", description="Address for the metrics. There is no password: run ids and names of queues are shown."
    )
    max_attempts: Annotated[int, Process.SEVERAL] = Field(
        3,
        gt=0,
        description="Crashes without a newer checkpoint between them, after which a shard is failed.",
    )
    max_errors: Annotated[int, Process.SEVERAL] = Field(
        8,
        gt=0,
        description="Errors of a network, disk or service, without a newer checkpoint between them, after which a shard is "
        "failed. It is tried again after 5, 20, 80, … s.",
    )
    checkpoint_mib: Annotated[int, Process.SEVERAL] = Field(
        512,
        ge=0,
        description="Limit on a run's checkpoints in Redis. Further ones go to the output's storage. 0: all, to outlive Redis.",
    )
    state_uri: Annotated[str | None, Process.SEVERAL] = Field(
        None,
        description="Folder or bucket, the same for all processes, that keeps receipts of runs whose output is a dataset on the "
        "Hub: a loss of Redis costs no finished shard.",
    )
    stop_seconds: Annotated[float, Process.WORKER] = Field(
        8.0,
        gt=0,
        description="Time that a worker has to finish its batch or upload after a signal to stop.",
    )
    stall_seconds: Annotated[float, Process.WORKER] = Field(
        900.0,
        gt=0,
        description="Time without progress after which a worker's process is replaced, because its device hangs.",
    )
    state_dir: Annotated[Path, Process.SEVERAL] = Field(
        Path(platformdirs.user_state_dir("shardsift")),
        description="Folder for the data and logs of `producer run`, the results of `worker tune`, and faults of GPUs.",
    )
    scratch_dir: Annotated[Path | None, Process.SEVERAL] = Field(
        None,
        description="Folder in which workers build output files, and the finalizer merges them. Unset: the system's temporary "
        "folder.",
    )
    price_per_gpu_hour: Annotated[float | None, Process.PRODUCER] = Field(
        None,
        ge=0,
        description="What a GPU costs, for estimates, costs and --max-cost. Unset: no cost is shown, and estimates use "
        "list prices.",
    )
    flower_auth: Annotated[str | None, Process.PRODUCER] = Field(
        None, description="user:password for Flower. Unset: generated and printed at the start."
    )
    flower_auth_file: Annotated[Path | None, Process.PRODUCER] = Field(
        None, description="File with user:password for Flower."
    )

    @field_validator("device")
    @classmethod
    def _is_a_device(cls, value: str) -> str:
        if not is_device(value):
            raise PydanticCustomError(
                "device", "{value} is not one of {devices}", {"value": repr(value), "devices": DEVICES}
            )
        return value

    @property
    def models(self) -> tuple[tuple[str, str | None], ...]:
        """The name and revision of each model that a worker loads. The revision is None if SHARDSIFT_MODEL gives none.

        Raises UsageError if SHARDSIFT_MODEL is an invalid JSON list.
        """
        return tuple(map(with_revision, model_names(self.model)))

    @property
    def redis(self) -> RedisAddress | None:
        """The Redis server in REDIS_URL, with the password from its file. None without REDIS_URL.

        Raises UsageError if the URL is invalid or the file cannot be read.
        """
        if self.redis_url is None:
            return None
        file = self.redis_password_file
        return redis_address(self.redis_url, read_secret(file) if file else None)


def read_secret(file: Path) -> str:
    """Read a password from a file. Raises UsageError if the file cannot be read."""
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise UsageError(f"The password file {file} cannot be read: {why}.") from error


def check_state_dir(settings: Settings) -> None:
    """Create the state folder if needed. Raises UsageError if it cannot be written."""
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=settings.state_dir):
            pass
    except OSError as error:
        raise UsageError(
            f"SHARDSIFT_STATE_DIR is {settings.state_dir}, where nothing can be written ({error.strerror}). Name another folder."
        ) from error


def read_settings(**given: Any) -> Settings:
    """Read the settings from the environment. Arguments that are not None take precedence.

    Raises UsageError for an invalid value, and for a variable that seems to be a misspelled setting.
    """
    _refuse_misspelled()
    arguments = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**arguments)
    except ValidationError as error:
        wrong = error.errors()[0]
        name = str(wrong["loc"][0])
        if name in arguments:
            raise UsageError(f"{name}={arguments[name]!r} is wrong: {wrong['msg']}.") from error
        variable = name if name.isupper() else f"SHARDSIFT_{name.upper()}"
        raise UsageError(f"The environment variable {variable} has a wrong value: {wrong['msg']}.") from error


def _refuse_misspelled() -> None:
    known = [f"SHARDSIFT_{field.upper()}" for field in Settings.model_fields]
    for name in os.environ:
        if name.startswith("SHARDSIFT_") and name not in known and (near := get_close_matches(name, known, 1, 0.9)):
            raise UsageError(f"There is no setting {name}. Did you mean {near[0]}?")
