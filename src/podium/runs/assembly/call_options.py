"""Determine the options for calls to a model, from the settings, the model's test results and its server's address."""

from __future__ import annotations

from ...engines.engine_choice import CallOptions, ModelAddress
from ...engines.local_model_servers import is_loopback
from ...engines.model.model_wire import DEFAULT_MAX_WAIT
from ...engines.model.providers import LOCAL, without_credentials
from ...files.settings import Settings
from ...files.settings_document import ProviderLimits
from ...files.tested_models import find_ability_record
from ...values.model_abilities import UNTESTED
from ...values.usage import LOCAL_CALL_LIMITS, NO_CALL_LIMITS, CallLimits

LOCAL_CONCURRENT = 1
"""The maximum number of concurrent calls to a server on this machine, unless a test shows that it can answer more."""


def find_call_options(settings: Settings, address: ModelAddress) -> CallOptions:
    """Return the options for calls to a model.

    Settings take precedence over test results, and test results over defaults. By default, calls to a server
    on this machine that needs no key are made one at a time, with longer time limits.
    """
    set_limits = settings.providers.get(address.provider.name, ProviderLimits())
    record = find_ability_record(settings.home, without_credentials(address.url), address.model)
    abilities = UNTESTED if record is None else record.abilities
    is_local = address.provider.name == LOCAL or (address.provider.key_name is None and is_loopback(address.url))
    default_limits = LOCAL_CALL_LIMITS if is_local else NO_CALL_LIMITS
    default_concurrent = (abilities.concurrent or LOCAL_CONCURRENT) if is_local else None
    return CallOptions(
        abilities=abilities,
        limits=CallLimits(
            first_token=set_limits.first_token_timeout or default_limits.first_token,
            silence=set_limits.silence_timeout or default_limits.silence,
        ),
        tool_calls=set_limits.tool_calls or "auto",
        max_tokens=set_limits.max_tokens,
        requests_per_minute=set_limits.requests_per_minute,
        tokens_per_minute=set_limits.tokens_per_minute,
        concurrent=set_limits.concurrent or default_concurrent,
        max_wait=settings.limits.max_wait or DEFAULT_MAX_WAIT,
    )
