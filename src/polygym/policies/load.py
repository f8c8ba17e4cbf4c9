"""load_policy: from the name of a model to a policy.

The one idea: one name says where a model is. `nano` and `smollm2-135m` are known by name; a URL is an
OpenAI-compatible endpoint; a folder or a name with `/` is read by transformers; anything else is a model at the
endpoint of the environment variables `OPENAI_BASE_URL` and `OPENAI_API_KEY`. The prefixes `hf:` and `openai:` force
one.
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from importlib import resources
from pathlib import Path
from typing import Any

from polygym.errors import UsageError, nearest
from polygym.policies.base import Policy
from polygym.policies.fetch import WHEELS, fetch_model, quiet_transformers

KNOWN = ("nano", *WHEELS)
LOCAL_KINDS = "nano, smollm2-135m, a folder with config.json, a Hugging Face id (organisation/name), hf:NAME"
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
MODELS_SECONDS = 5.0
HUB_SECONDS = 10.0
ENDPOINT_CONCURRENCY = 64
RETRIES = 6


def load_policy(
    name: str,
    *,
    device: str | None = None,
    dtype: str | None = None,
    concurrency: int | None = None,
    retries: int = RETRIES,
    max_context: int | None = None,
    max_batch_tokens: int | None = None,
    gather_seconds: float = 0.0,
) -> Policy:
    """The policy that a model name stands for.

    Args:
        name: see the module; `URL#MODEL` names a model at a URL, otherwise the first that it lists is used.
        device, dtype, max_context, max_batch_tokens: for models that run here; default: the best device there is.
        concurrency: most requests at a time, for an endpoint.
        retries: further tries after a failure of the endpoint that may pass by itself.
        gather_seconds: for a model that runs here and whose requests come from the clients of a server.

    Raises:
        UsageError: when the name stands for nothing that can be had; the message says what would.
    """
    if is_local(name):
        from polygym.policies.local import LocalPolicy

        device = device or best_device()
        model, tokenizer = load_model_and_tokenizer(name, device, dtype)
        return LocalPolicy(
            model,
            tokenizer,
            name=name,
            device=device,
            dtype=dtype or default_dtype(name, device),
            max_context=max_context,
            max_batch_tokens=max_batch_tokens,
            gather_seconds=gather_seconds,
        )
    from polygym.policies.openai import OpenAIPolicy

    concurrency = ENDPOINT_CONCURRENCY if concurrency is None else concurrency
    if _is_url(name):
        url, _, model_name = name.partition("#")
        return OpenAIPolicy(model_name or _first_model(url), url, concurrency=concurrency, retries=retries)
    if not name.startswith("openai:") and not (os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_KEY")):
        raise UsageError(
            f"model {name!r} is no known name, and no endpoint is set that could have it. {nearest(name, KNOWN)}, or "
            "oracle, a folder, a Hugging Face id (organisation/name), a URL; for a model of an endpoint set "
            "OPENAI_API_KEY (and OPENAI_BASE_URL)"
        )
    return OpenAIPolicy(name.removeprefix("openai:"), concurrency=concurrency, retries=retries)


def is_local(name: str) -> bool:
    """Whether the model of that name runs in this process.

    Raises:
        UsageError: when the name is empty, or that of the oracle, which is no model.
    """
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"model={name!r} must be a name: {LOCAL_KINDS}, a URL, or a model of an endpoint")
    if name == "oracle":
        raise UsageError("the oracle answers with an environment's demonstrations: name it where one is evaluated")
    if name.startswith("openai:") or _is_url(name):
        return False
    return name in KNOWN or name.startswith("hf:") or "/" in name or os.sep in name or Path(name).is_dir()


def check_local(name: str) -> None:
    """Check that a name is one of a local model, as far as that can be told without a network and reading weights.

    Raises:
        UsageError: when it is not.
    """
    if not is_local(name):
        raise UsageError(f"model {name!r} does not run in this process; {nearest(name, KNOWN)}; or {LOCAL_KINDS}")
    if name not in WHEELS:
        _source(name)


def best_device() -> str:
    """`cuda` where there is one, else `mps`, else `cpu`."""
    torch = _torch()
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def default_dtype(name: str, device: str) -> str:
    """`bfloat16` on a CUDA device, where it is fast, but for nano; else `float32`."""
    return "bfloat16" if device.startswith("cuda") and name != "nano" else "float32"


def load_model_and_tokenizer(name: str, device: str | None = None, dtype: str | None = None) -> tuple[Any, Any]:
    """The torch module, in evaluation mode on its device, and the tokenizer of a model that runs here.

    Raises:
        UsageError: when the name is not one of a local model, or it cannot be read.
    """
    if not is_local(name):
        raise UsageError(f"model {name!r} does not run in this process; allowed: {LOCAL_KINDS}")
    _torch()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from polygym.policies.local import as_device, as_dtype

    device = device or best_device()
    where, weights = as_device(device), as_dtype(dtype or default_dtype(name, device))
    with _reading(name) as source:
        tokenizer = AutoTokenizer.from_pretrained(source)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=weights)
    return model.to(where).eval(), tokenizer


def load_outline(name: str) -> tuple[Any, Any]:
    """As `load_model_and_tokenizer`, but the module has no weights, only layers and shapes: nothing large is read.

    Raises:
        UsageError: when the name is not one of a local model, or its config or tokenizer cannot be read.
    """
    if not is_local(name):
        raise UsageError(f"model {name!r} does not run in this process; allowed: {LOCAL_KINDS}")
    torch = _torch()
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    with _reading(name) as source, torch.device("meta"):
        tokenizer = AutoTokenizer.from_pretrained(source)
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source)), tokenizer


@contextmanager
def _reading(name: str) -> Iterator[str]:
    """The folder or hub id to read a local model from, while it is read.

    Raises:
        UsageError: when it is not there or a file of it is broken.
    """
    from safetensors import SafetensorError

    source = _source(name)
    if not Path(source).is_dir():
        _check_hub(name, source)
    try:
        with quiet_transformers():
            yield source
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UsageError(
            f"model {name!r} could not be read from {source}: {reason} Give a folder that save_pretrained wrote "
            "(config.json, weights, tokenizer), or the id of a causal language model that the network or the Hugging "
            "Face cache has"
        ) from error


def _source(name: str) -> str:
    """The folder or hub id to read a local model from."""
    if name == "nano":
        return str(resources.files("polygym.policies") / "nano")
    if name in WHEELS:
        return str(fetch_model(name))
    if name.startswith("hf:"):
        return name.removeprefix("hf:")
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            inside = sorted(path.parent.name for path in folder.glob("*/config.json"))
            hint = f"; did you mean {folder / inside[0]}?" if inside else ""
            raise UsageError(f"model folder {name!r} has no config.json{hint}; give one that save_pretrained wrote")
        return str(folder)
    if not HUB_ID.fullmatch(name):
        raise UsageError(f"model folder {name!r} does not exist; allowed: {LOCAL_KINDS}")
    return name


def _check_hub(name: str, source: str) -> None:
    """Ask the hub once for a model that is not in its cache: reading it would try for a minute, and complain, first.

    Raises:
        UsageError: when nobody answers.
    """
    from huggingface_hub import HfApi, constants, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        if constants.HF_HUB_OFFLINE or try_to_load_from_cache(source, "config.json"):
            return
    except HFValidationError:
        return  # no id; reading it tells so
    try:
        HfApi().model_info(source, timeout=HUB_SECONDS)
    except HfHubHTTPError:
        return  # somebody is there; reading the model tells what is wrong with it
    except Exception as error:  # the classes are those of the hub's transport
        raise UsageError(
            f"model {name!r} could not be read from {source}: it is no folder, and the Hugging Face hub at "
            f"{constants.ENDPOINT} cannot be reached: {error}; give a folder that save_pretrained wrote, or try again "
            "with a network"
        ) from error


def _is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def _first_model(url: str) -> str:
    """The first model that an endpoint lists. One that does not answer is told of by the first request."""
    key = os.environ.get("OPENAI_API_KEY")
    request = urllib.request.Request(
        f"{url.rstrip('/')}/models", headers={"Authorization": f"Bearer {key}"} if key else {}
    )
    try:
        with urllib.request.urlopen(request, timeout=MODELS_SECONDS) as answer:
            return str(json.load(answer)["data"][0]["id"])
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return "default"


def _torch() -> Any:
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"a model that runs here needs {error.name}; install it with `pip install 'polygym[train]'`"
        ) from error
    return torch
